//! Tests of opening, one behavior per file.

pub mod cut_tails;
pub mod files;
pub mod open;
