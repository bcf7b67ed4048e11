//! Verification: every file, every checksum, in one pass that goes on behind damage.
//!
//! `report` has what is found, `checker` collects it, `files` checks runs, views and values, `log` the log, `whole` a
//! database in a directory or an open one.

mod checker;
mod files;
mod log;
mod report;
mod whole;

#[cfg(test)]
pub use checker::Checker;
pub use whole::verify_path;

pub use report::{
    AffectedKeys, ProblemKind, TreeKey, VerifiedFile, VerifyOptions, VerifyProblem, VerifyProgress, VerifyReport,
};
