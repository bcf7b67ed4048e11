//! Events for the program: see [`Builder::on_event`](crate::Builder::on_event).

pub mod event;
pub mod queue;
#[cfg(test)]
mod tests;
