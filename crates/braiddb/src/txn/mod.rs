//! Transactions: their writes, their reads, and the detection of conflicts.

mod check;
mod intervals;
mod overlay;
mod read_set;
mod tree_ends;
mod window;

#[cfg(test)]
mod tests;

pub use check::Check;
pub use intervals::Intervals;
pub use overlay::{Overlay, Savepoint, Written};
pub use read_set::{RangeSlot, ReadSet};
pub use tree_ends::{Side, Ticket, TreeEnds};
pub use window::{Validation, Window};
