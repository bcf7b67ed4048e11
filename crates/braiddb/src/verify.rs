//! Checks of all checksums, and upgrades of files of older versions.

pub use crate::base::{Corruption, DatabaseFile};
pub use crate::db::{
    AffectedKeys, OlderFile, ProblemKind, TreeKey, UpgradeReport, VerifyOptions, VerifyProblem, VerifyProgress,
    VerifyReport,
};
