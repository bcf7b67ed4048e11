//! Transactions: what one has written, what it has read, and whether others have written that since.

mod check;
mod intervals;
mod overlay;
mod read_set;
mod window;

#[cfg(test)]
mod tests;

pub use check::Check;
pub use intervals::Intervals;
pub use overlay::{Overlay, Savepoint, Written};
pub use read_set::{RangeSlot, ReadSet};
pub use window::{Validation, Window};
