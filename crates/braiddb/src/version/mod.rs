//! Partitions, versions, edits and the manifest.

mod current;
mod edit;
mod layout;
mod manifest;
mod partition;
mod version;

#[cfg(test)]
mod tests;

pub use current::{CURRENT_NAME, Current, CurrentSlot, SLOT_LEN, SLOT_OFFSETS};
pub use edit::{Change, Edit};
pub use layout::{Layout, PartitionLayout};
pub use manifest::{Manifest, ManifestRecord, manifest_name, read_records};
pub use partition::{Partition, RunHandle};
pub use version::{FileSet, Version};
