//! Tests of the room, each file of one behaviour.

pub mod bulk;
pub mod external_table;
