//! `unbuffered.rs` is a module of `aligned_io.rs`.

use crate::platform::{File, OpenMode, Vfs};

pub mod conformance;
mod file_systems;
mod system_runtime;
