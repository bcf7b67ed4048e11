//! What is run. Names are those of the bars' table; each workload is one child process and yields one measure or more.

mod catalog;
mod context;
mod kill;
mod large;
mod measure;
mod mixed;
mod read;
mod sync;
#[cfg(test)]
mod tests;
mod write;
mod ycsb;

pub use catalog::{all, by_name};
pub use context::{Batch, Context};
pub use kill::write_and_die;
pub use measure::Measure;
