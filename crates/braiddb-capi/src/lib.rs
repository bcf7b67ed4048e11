//! The C interface of BraidDB. `include/braiddb.h` is generated from these functions, with their
//! comments, and begins with the rules for callers (`tests/header.rs`).
//!
//! # Safety
//!
//! The header states what each call requires; the `SAFETY` comments here refer to it as "the
//! header's rules": pointers are null or valid for the stated length, handles are null or were
//! returned by this library and not freed, and out-parameters are null or writable. Null is refused
//! with `BRAID_INVALID_ARGUMENT`. All else, as any order of calls, any thread and any bytes, is
//! safe.

#![allow(non_camel_case_types, reason = "C's names")]
#![allow(clippy::missing_safety_doc, reason = "the header's rules are the same for all functions")]

mod batch;
mod boundary;
mod code;
mod condition;
mod cursor;
mod db;
mod merge;
mod options;
mod place;
mod range;
mod rows;
mod scan;
mod snapshot;
mod stream;
mod transaction;
mod tree;
mod value;
mod watch;
mod write;
