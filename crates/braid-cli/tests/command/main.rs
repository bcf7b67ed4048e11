//! The `braid` command, run as its users run it.

mod backup;
mod bench;
mod common;
mod demo;
mod dump;
mod exit_codes;
mod import_dirt;
mod import_formats;
mod import_resume;
mod index;
mod point;
#[cfg(target_os = "linux")]
mod read_only;
mod salvage;
mod scan;
mod upgrade;
mod watch;
