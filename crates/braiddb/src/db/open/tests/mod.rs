//! Tests of the room, each file of one behaviour.

pub mod cut_tails;
pub mod open;
