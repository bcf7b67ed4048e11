//! Replaces `run.rs` in a build without BraidDB or LMDB.

use crate::arguments::PartsOptions;
use anyhow::{Result, bail};

pub fn run(_options: &PartsOptions) -> Result<()> {
    bail!("this binary lacks BraidDB or LMDB")
}
