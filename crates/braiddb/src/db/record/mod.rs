//! Records as users see them: keys and values that own their bytes, and versions.

pub mod bytes;
pub mod version;
pub mod version_tags;
