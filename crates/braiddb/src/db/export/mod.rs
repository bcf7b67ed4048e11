//! Copies of a database: checkpoints, dumps and followers.

pub mod checkpoint;
pub mod dump_gaps;
pub mod dump_source;
pub mod follower;
#[cfg(test)]
pub mod tests;
