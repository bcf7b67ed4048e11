//! Errors of object stores as errors of BraidDB.

use braiddb::Error;
use object_store::Error as StoreError;
use std::{io, path::Path};

/// Returns whether the same request may succeed later.
pub fn is_transient(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. })
}

/// Adds advice to the text where the error permits it.
pub fn to_error(action: &'static str, path: &Path, error: &StoreError) -> Error {
    let (kind, advice) = match error {
        StoreError::NotFound { .. } => {
            return Error::NotFound(format!("there is no {}, or its bucket is missing", path.display()));
        }
        StoreError::AlreadyExists { .. } => {
            return Error::AlreadyExists(format!("there is another object {}", path.display()));
        }
        StoreError::PermissionDenied { .. } => (
            io::ErrorKind::PermissionDenied,
            "the credentials must allow to get, put, list and delete objects and to abort multipart uploads",
        ),
        StoreError::Unauthenticated { .. } => {
            (io::ErrorKind::PermissionDenied, "check the access key, the secret and the clock of this machine")
        }
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => (
            io::ErrorKind::Unsupported,
            "the store lacks this operation; without conditional writes, set TargetOptions::conditional_writes to \
             false, and let one process at a time write",
        ),
        _ => (io::ErrorKind::Other, "check the address, the bucket and the network, and try again"),
    };
    Error::Io { action, path: path.to_owned(), source: io::Error::new(kind, format!("{error}; {advice}")) }
}
