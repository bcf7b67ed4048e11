//! In place of `run.rs` where one of the two engines is left out.

use crate::arguments::MultiOptions;
use anyhow::{Result, bail};

pub fn run(_options: &MultiOptions) -> Result<()> {
    bail!("`multi` compares BraidDB and LMDB: build with both");
}
