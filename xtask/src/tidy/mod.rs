//! `tidy`: the structure of the source tree, checked.
//!
//! Each check takes sources and returns [`Finding`]s; `run.rs` reads the tree, runs the checks and prints.
//! `source.rs` and `tokens.rs` know just enough of Rust's grammar for that: comments, strings, use trees, braces.

mod islands;
mod layers;
mod rooms;
mod run;
mod shape;
mod source;
mod tokens;
mod words;

#[cfg(test)]
mod tests;

use run::Finding;
pub use run::{main, workspace_root};
