//! Tests of what transactions are made of.
