//! Checks of all checksums, and upgrades of files of older versions.

pub use crate::db::{
    AffectedKeys, OlderFile, ProblemKind, TreeKey, UpgradeReport, VerifiedFile, VerifyOptions, VerifyProblem,
    VerifyProgress, VerifyReport,
};
