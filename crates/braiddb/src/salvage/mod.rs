//! Salvage: all that can be read of a damaged database, into a new one.
//!
//! `plan` finds out which files count, from what is left of the manifest; `log` reads the whole commit groups of the log and sorts them; `source`
//! shows the entries of a run or of the log in key order, past what is damaged; `losses` keeps what is gone, and which older versions
//! may be stale because of it; `merge` merges all sources, key by key; `target` writes the new database, by the way that a dump is
//! loaded; `report` has what is said in the end. What counts, and why, is in `docs/adr/0043-salvage-withholds-possibly-stale-records.md`.

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

pub use job::{SalvageOptions, SalvageProgress, salvage};
pub use report::{Loss, LossKind, LostKey, ManifestCondition, SalvageReport, SalvagedTree};
