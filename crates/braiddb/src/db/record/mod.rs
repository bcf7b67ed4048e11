//! Records in the API: owned keys and values, and versions.

pub mod bytes;
pub mod version;
pub mod version_tags;
