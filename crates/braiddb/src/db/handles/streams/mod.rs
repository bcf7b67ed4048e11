//! Values that are written and read in pieces.

pub mod reader;
pub mod writer;
