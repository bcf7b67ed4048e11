//! Events of a database, for the listener of [`Builder::on_event`](crate::Builder::on_event).

pub use crate::db::{Event, MergeKind};
