//! Pinned values.

use crate::boundary::{braid_slice, free};

/// A value that a call returned. It stays valid, also after changes of its key and after its
/// database was closed, until `braid_value_free`.
pub struct braid_value {
    bytes: Bytes,
}

enum Bytes {
    Key(braiddb::Key),
    Value(braiddb::Value),
    Own(Vec<u8>),
}

impl From<braiddb::Value> for braid_value {
    fn from(value: braiddb::Value) -> braid_value {
        braid_value { bytes: Bytes::Value(value) }
    }
}

impl From<braiddb::Key> for braid_value {
    fn from(key: braiddb::Key) -> braid_value {
        braid_value { bytes: Bytes::Key(key) }
    }
}

impl From<Vec<u8>> for braid_value {
    fn from(bytes: Vec<u8>) -> braid_value {
        braid_value { bytes: Bytes::Own(bytes) }
    }
}

/// Returns the bytes of a value, without a copy: valid until it is freed. Of NULL, `data` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_value_bytes(value: *const braid_value) -> braid_slice {
    // SAFETY: the header's rules.
    match unsafe { value.as_ref() } {
        None => braid_slice::NULL,
        Some(braid_value { bytes: Bytes::Key(key) }) => braid_slice::of(key),
        Some(braid_value { bytes: Bytes::Value(value) }) => braid_slice::of(value),
        Some(braid_value { bytes: Bytes::Own(bytes) }) => braid_slice::of(bytes),
    }
}

/// Frees a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_value_free(value: *mut braid_value) {
    // SAFETY: the header's rules.
    unsafe { free(value) };
}
