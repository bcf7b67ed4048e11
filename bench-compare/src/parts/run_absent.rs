//! Without BraidDB or LMDB there is nothing to compare.

use crate::arguments::PartsOptions;
use anyhow::{Result, bail};

/// Says so.
pub fn run(_options: &PartsOptions) -> Result<()> {
    bail!("this binary lacks BraidDB or LMDB")
}
