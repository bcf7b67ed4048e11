//! Large values, read and written piece by piece.

pub use crate::db::{PendingStream, StreamReader, StreamWriter};
