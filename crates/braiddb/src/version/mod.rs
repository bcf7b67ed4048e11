//! Partitions, versions, edits and the manifest.

mod current;
mod damage;
mod damaged;
mod edit;
mod file_set;
mod layout;
mod manifest;
mod partition;
mod partition_index;

#[cfg(test)]
mod tests;

pub use current::{CURRENT_NAME, Current, CurrentSlot, SLOT_LEN, SLOT_OFFSETS, SeenCurrent};
pub use damage::{walk_current, walk_manifest};
pub use damaged::{DamagedManifest, read_damaged_current, read_damaged_manifest};
pub use edit::{Change, Edit};
pub use file_set::{FileSet, Version, key_head};
pub use layout::{Layout, PartitionLayout};
pub use manifest::{Manifest, manifest_name, read_records};
pub use partition::{FirstView, Partition, RunHandle, ViewOfRuns, is_counted};
