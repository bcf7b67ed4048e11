//! Concurrency over the operating system: barriers, hazard pointers and deferred closes.

pub mod barrier;
pub mod deferred_close;
#[cfg(test)]
pub mod gated_runtime;
pub mod hazard_cell;
#[cfg(test)]
mod tests;
