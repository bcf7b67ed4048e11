//! State that the engine holds for parts of its work; the work itself is in the rooms above.

pub mod garbage_limit;
pub mod index_look;
pub mod limited_work;
pub mod pressure;
pub mod scrubber;
