//! The simulated world of BraidDB: a disk whose crashes can be replayed, a clock that tells simulated time, a
//! reference model, and checkers.
//!
//! Everything follows from a seed: the same seed and the same calls give the same bytes, the same crash images and
//! the same failures.

pub mod contention;
mod contents;
mod crash;
pub mod cycles;
mod disk;
mod faults;
pub mod history;
mod journal;
pub mod log_off;
pub mod model;
pub mod numbered;
mod random;
mod runtime;
mod speed;
#[cfg(test)]
mod tests;

pub use crash::CrashPolicy;
pub use disk::SimDisk;
pub use faults::{Call, Effect, Fault};
pub use random::{Random, mix};
pub use runtime::SimRuntime;
pub use speed::DiskSpeed;
