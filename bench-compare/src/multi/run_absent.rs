//! Replaces `run.rs` in a build without one of the two engines.

use crate::arguments::MultiOptions;
use anyhow::{Result, bail};

pub fn run(_options: &MultiOptions) -> Result<()> {
    bail!("`multi` compares BraidDB and LMDB: build with both");
}
