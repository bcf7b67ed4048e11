//! Tests of the import.
