//! Tests of the room.

mod barrier;
pub mod hazard_cell;
