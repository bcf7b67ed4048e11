//! `braid top`: a live view of a database.
//!
//! Counters, latencies, memory and readers are known only to the process that has the database open.
//! A server of `braid serve` shows its own at `/stats`. Of a plain directory, a follower knows the
//! commits and the files, and the frame names everything else as not known.

mod draw;
mod files;
mod frame;
mod http;
mod reading;
mod report;
mod run;
mod screen;
mod sections;
mod server;
#[cfg(unix)]
mod terminal;
#[cfg(test)]
mod tests;
mod tls;

pub use run::run;
