//! Parts of the engine, each with its own locks. Functions of `db/write`, `db/read` and
//! `db/maintenance` work on most of them; `pressure.rs` and `health.rs` decide by themselves.

pub mod archiver;
pub mod commits;
pub mod garbage_limit;
pub mod health;
pub mod index_attempt;
pub mod limited_work;
pub mod log_state;
pub mod maintenance;
pub mod pressure;
pub mod readers;
pub mod scrubber;
pub mod state_cell;
pub mod storage;
pub mod sync_waits;
pub mod upcalls;
