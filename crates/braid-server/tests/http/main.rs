//! Tests of the service over real sockets.

mod backups;
mod batches;
mod changes;
mod client;
mod disk;
mod limits;
mod page;
mod pairs;
mod records;
mod rules;
mod safety;
mod scans;
mod shutdown;
mod streams;
mod trees;
