//! Identifiers, and the internal key.
//!
//! There is one ordered keyspace: `tree id (u32, big endian) + user key`, compared as bytes. Versions of one key
//! are ordered by sequence number, newest first.

/// The number of a commit: every batch has one, later batches have larger ones. Zero is before every commit.
pub type SequenceNumber = u64;

/// The largest sequence number that is ever given out.
pub const MAX_SEQUENCE: SequenceNumber = (1 << 62) - 1;

/// The number in a file's name. Never reused.
pub type FileNumber = u64;

/// A file's random identity, mixed into each of its checksums.
pub type FileId = u64;

/// A tree's number; tree 0 is the catalog. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

impl TreeId {
    /// The tree that names all others.
    pub const CATALOG: TreeId = TreeId(0);

    /// The smallest internal key of this tree.
    pub fn first_key(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// The smallest internal key after this tree; `None` for the last tree.
    pub fn end_key(self) -> Option<[u8; 4]> {
        self.0.checked_add(1).map(u32::to_be_bytes)
    }
}

/// Appends the internal key of `user_key` in `tree` to `out`.
pub fn internal_key(tree: TreeId, user_key: &[u8], out: &mut Vec<u8>) {
    out.reserve(4 + user_key.len());
    out.extend_from_slice(&tree.0.to_be_bytes());
    out.extend_from_slice(user_key);
}

/// The tree and user key of an internal key; `None` if it is shorter than a tree id.
pub fn split_internal_key(key: &[u8]) -> Option<(TreeId, &[u8])> {
    let (head, rest) = key.split_first_chunk::<4>()?;
    Some((TreeId(u32::from_be_bytes(*head)), rest))
}
