//! Tests of the room. `unbuffered.rs` is a module of `aligned_io.rs`, whose private items it uses.

use crate::platform::{File, OpenMode, Vfs};

pub mod conformance;
mod file_systems;
mod system_runtime;
