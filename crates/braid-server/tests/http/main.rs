//! Tests of the service over real sockets.

mod access;
mod backups;
mod batches;
mod changes;
mod client;
mod codings;
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
mod tls;
mod trees;
