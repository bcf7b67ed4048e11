//! Verification: reads every file, checks every checksum, and continues past damage.
//!
//! `report` defines the findings and `checker` collects them. `files` checks runs, views and
//! values, `log` checks the log, and `whole` an open or closed database.

mod checker;
mod files;
mod log;
mod report;
mod whole;

#[cfg(test)]
pub use checker::Checker;
pub use whole::{verify_open, verify_path};

pub use report::{AffectedKeys, ProblemKind, TreeKey, VerifyOptions, VerifyProblem, VerifyProgress, VerifyReport};
