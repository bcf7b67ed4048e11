//! Tests of the room, each file of one behaviour.

pub mod checkpoint;
pub mod follower;
pub mod follower_watch;
