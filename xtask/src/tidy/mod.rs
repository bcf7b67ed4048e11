//! `tidy`: checks the structure of the source tree.
//!
//! Each check takes sources and returns [`Finding`]s; `run.rs` runs the checks. `source.rs` and
//! `tokens.rs` parse just enough Rust: comments, strings, use trees, braces.

mod cited;
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
