//! Salvage: copies all readable data of a damaged database into a new one.
//!
//! `plan` finds the valid files; `log` reads intact commit groups; `source` iterates a run or the
//! log past damage; `losses` tracks losses and possibly stale versions; `merge` merges all sources
//! by key; `target` writes the new database. ADR 0043 gives the reasons.

mod job;
mod log;
mod losses;
mod merge;
mod plan;
mod report;
mod source;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use job::salvage;
pub use job::{SalvageOptions, SalvageProgress};
pub use report::{Loss, LossKind, LostKey, ManifestCondition, SalvageReport, SalvagedTree};
