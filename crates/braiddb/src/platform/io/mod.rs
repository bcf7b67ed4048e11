//! Layers over a file system that throttle, prefetch, write behind or share descriptors.

#[cfg(test)]
pub mod fault_vfs;
pub mod layer;
pub mod open_files;
pub mod paced;
pub mod rate_limiter;
pub mod read_ahead;
#[cfg(test)]
mod tests;
pub mod throttled;
pub mod write_behind;
