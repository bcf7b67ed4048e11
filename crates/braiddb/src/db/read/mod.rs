//! Point reads, merge operands, and the list of readers.

pub mod explain;
#[cfg(feature = "json")]
mod explain_json;
pub mod healing;
pub mod merge_operands;
pub mod point_read;
pub mod reader_registry;
#[cfg(test)]
pub mod tests;
