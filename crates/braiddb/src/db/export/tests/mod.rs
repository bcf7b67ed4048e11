pub mod checkpoint;
pub mod follower;
pub mod follower_busy;
pub mod follower_watch;
