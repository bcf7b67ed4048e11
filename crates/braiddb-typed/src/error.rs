//! The error type.

use crate::text;
use std::error::Error as StdError;

/// Result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// An encoder's or decoder's error.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Reason why a call failed, with advice.
///
/// `?` turns it into a [`braiddb::Error`] in the closure of [`braiddb::Db::update`], and back: the
/// engine's errors as they are, all others within [`braiddb::Error::Aborted`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine's error.
    #[error(transparent)]
    Engine(braiddb::Error),
    /// A stored key does not have the tree's key type.
    #[error(
        "the tree {tree:?} has a key that is not of this key type: {key}: {source}; open it with the type that wrote it, \
         or list its keys with `braid scan`"
    )]
    Key {
        /// The tree.
        tree: String,
        /// The key in text form.
        key: String,
        /// The decoder's error.
        source: BoxError,
    },
    /// A stored value does not have the tree's value type.
    #[error(
        "the tree {tree:?} has a value that is not of this value type, at the key {key}: {source}; read it with \
         `braid get`, and give fields added later a default (`#[serde(default)]`), or remove it with `delete`"
    )]
    Value {
        /// The tree.
        tree: String,
        /// The key in text form.
        key: String,
        /// The decoder's error.
        source: BoxError,
    },
    /// A value cannot be encoded. Nothing was written.
    #[error("the value for the key {key} of the tree {tree:?} cannot be encoded: {source}")]
    Encode {
        /// The tree.
        tree: String,
        /// The key in text form.
        key: String,
        /// The encoder's error.
        source: BoxError,
    },
    /// Another record has this value of a unique index. Nothing was written.
    #[error(
        "the unique index {index:?} of the tree {tree:?} has the value {value} already, of the record {key}: change or \
         remove that record first"
    )]
    NotUnique {
        /// The tree.
        tree: String,
        /// The index.
        index: String,
        /// The value in text form.
        value: String,
        /// The key of the other record, in text form.
        key: String,
    },
    /// The tree exists with another codec.
    #[error(
        "the tree {tree:?} has the codec {stored}, not {wanted}: open it with the codec {stored}, or copy its records into \
         a new tree"
    )]
    OtherCodec {
        /// The tree.
        tree: String,
        /// Its codec.
        stored: String,
        /// The codec asked for.
        wanted: String,
    },
    /// The tree has records, but no codec.
    #[error(
        "the tree {tree:?} has records that no typed tree wrote: use another name; or, if its keys and values have this form, \
         declare it with `braid trees DB --set {tree} --codec {wanted}`"
    )]
    Untyped {
        /// The tree.
        tree: String,
        /// The codec asked for.
        wanted: String,
    },
    /// The tree has indexes that the builder does not declare, or declares otherwise. Writes through
    /// it would leave them outdated.
    #[error(
        "the tree {tree:?} has the {kind} {index:?}, which this builder does not declare: declare it with the same \
         function, or remove it with `drop_index({index:?})`"
    )]
    UndeclaredIndex {
        /// The tree.
        tree: String,
        /// The index.
        index: String,
        /// "index" or "unique index".
        kind: &'static str,
    },
    /// The indexes of the tree changed since this handle was opened.
    #[error("the indexes of the tree {tree:?} changed after this handle was opened: open it again")]
    IndexesChanged {
        /// The tree.
        tree: String,
    },
    /// The tree has no such index.
    #[error("the tree {tree:?} was opened without an index {index:?}: declare it with `TypedTree::builder`")]
    NoIndex {
        /// The tree.
        tree: String,
        /// The index.
        index: String,
    },
    /// The index is not complete yet.
    #[error(
        "the index {index:?} of the tree {tree:?} is not complete: another handle builds it, or a build was interrupted; \
         wait, or open the tree again to continue it"
    )]
    IndexIncomplete {
        /// The tree.
        tree: String,
        /// The index.
        index: String,
    },
    /// An index entry names a record that is absent or has another value.
    #[error(
        "the index {index:?} of the tree {tree:?} has an entry for the record {key}, which is absent: something wrote the \
         tree without its indexes; call `rebuild_index({index:?})`"
    )]
    StaleIndex {
        /// The tree.
        tree: String,
        /// The index.
        index: String,
        /// The record's key in text form.
        key: String,
    },
    /// An argument is impossible.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Returns whether another record has the value of a unique index.
    pub fn is_not_unique(&self) -> bool {
        matches!(self, Error::NotUnique { .. })
    }

    /// Returns whether a commit since the begin of the transaction changed its reads.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Engine(error) if error.is_conflict())
    }

    pub(crate) fn key(tree: &str, key: &[u8], source: impl Into<BoxError>) -> Error {
        Error::Key { tree: tree.to_owned(), key: text::show(key), source: source.into() }
    }

    pub(crate) fn value(tree: &str, key: &[u8], source: BoxError) -> Error {
        Error::Value { tree: tree.to_owned(), key: text::show(key), source }
    }
}

impl From<braiddb::Error> for Error {
    fn from(error: braiddb::Error) -> Error {
        match error {
            braiddb::Error::Aborted(reason) => match reason.downcast::<Error>() {
                Ok(error) => *error,
                Err(reason) => Error::Engine(braiddb::Error::Aborted(reason)),
            },
            error => Error::Engine(error),
        }
    }
}

impl From<Error> for braiddb::Error {
    fn from(error: Error) -> braiddb::Error {
        match error {
            Error::Engine(error) => error,
            error => braiddb::Error::abort(error),
        }
    }
}
