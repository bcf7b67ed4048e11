//! `braid bench`: measures the engine with the workloads of RocksDB's db_bench and of YCSB.

mod arguments;
mod crew;
mod database;
mod distribution;
mod expect;
mod latencies;
mod ledger;
mod pace;
mod place;
mod progress;
mod report;
mod rows;
mod runner;
mod session;
mod store;
mod tally;
mod worker;
mod workload;
mod ycsb;
mod zipf;

#[cfg(test)]
mod tests;

pub use arguments::BenchArguments;
pub use session::run;
