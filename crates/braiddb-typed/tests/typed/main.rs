//! Tests of typed trees, one behaviour for each file.

mod common;
mod concurrency;
mod evolution;
mod expiry;
mod indexes;
mod keys;
mod model;
mod survival;
mod text_form;
mod vectors;
