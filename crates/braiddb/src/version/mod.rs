//! Partitions, versions, edits and the manifest.
