//! Dumps: a database at one commit as one stream of bytes, to make another database from.
//!
//! `format` encodes frames and the catalog, `records` encodes records, `reader` checks frames,
//! `create` writes a dump, `load` makes a database. `docs/dump.md` specifies the format.

mod check;
mod create;
mod format;
mod lanes;
mod load;
mod reader;
mod records;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_damaged;
#[cfg(test)]
mod tests_expiry;
#[cfg(test)]
mod tests_failing;

pub use crate::db::DumpGap;
pub use check::{DumpInfo, DumpedTreeInfo, check_dump};
pub use create::{DumpOptions, DumpProgress, DumpReport};
pub(crate) use load::load;
pub use load::{LoadOptions, LoadProgress, LoadReport};
