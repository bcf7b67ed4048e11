//! `braid demo`
mod picture;
pub use picture::draw_partitions;
/// Runs.
pub fn run(_: &crate::arguments::DemoArguments) -> anyhow::Result<u8> {
    Ok(0)
}
