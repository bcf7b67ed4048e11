//! The workloads, named like their bars.

mod catalog;
mod context;
mod kill;
mod large;
mod load;
mod measure;
mod memory;
mod mixed;
mod queue;
mod read;
mod scale;
mod sync;
#[cfg(test)]
mod tests;
mod warm_open;
mod write;
mod ycsb;

pub use catalog::{all, by_name};
pub use context::{Batch, Context};
pub use kill::write_and_die;
pub use load::{SHARES as LOAD_SHARES, measure_name as load_measure_name};
pub use measure::Measure;
