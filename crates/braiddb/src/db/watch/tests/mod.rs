//! Tests of the room, each file of one behaviour.

pub mod watch;
