//! Dumps: all that a database holds as of one commit, in one stream of bytes, for another database to be made of it.
//!
//! `format` has the bytes of frames and of what the catalog tells, `records` those of records, `reader` goes over a stream frame by frame and
//! checks it, `create` writes one and `load` makes a database of one. The format is specified in `docs/dump.md`.

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

pub use check::{DumpInfo, DumpedTreeInfo, check_dump};
pub use create::{DumpOptions, DumpProgress, DumpReport};
pub use load::{LoadOptions, LoadProgress, LoadReport, load};
