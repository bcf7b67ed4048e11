//! The simulated world of BraidDB: a disk with crash images, a simulated clock, a reference model,
//! and checkers.
//!
//! Everything follows from a seed: the same seed and calls give the same bytes, crash images and
//! failures.

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
