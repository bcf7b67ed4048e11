//! Measures the sorted view against a plain merging iterator over the same runs, in one binary and one run.
//!
//! No part of the engine: built for tests and for `examples/runs.rs` only. `data.rs` has the rows, `shelf.rs` builds runs and
//! views of them, `plain_run.rs` and `plain_merge.rs` are what the view is held against, `questions.rs` and `ask.rs`
//! put the same questions to both, `contest.rs` counts and times, `report.rs` has the figures.

mod ask;
mod chain;
mod contest;
mod counters;
mod data;
mod filter;
mod plain_merge;
mod plain_run;
mod questions;
mod report;
mod shelf;
#[cfg(test)]
mod tests;

pub use contest::{Clock, Contestant, MeasureOptions, measure};
pub use data::Layout;
pub use questions::Operation;
pub use report::{Figure, IndexSize, Report, Standing};
