//! Identifiers, and the internal key: `tree id (u32, big endian) + user key`.
//!
//! All trees share one keyspace of internal keys, ordered as bytes. The versions of a key are
//! ordered by sequence number, newest first.

/// Number of a commit. Later commits have larger numbers; 0 is before all commits.
pub type SequenceNumber = u64;

/// Largest sequence number that is ever assigned.
pub const MAX_SEQUENCE: SequenceNumber = (1 << 62) - 1;

/// Number in a file's name. Never reused.
pub type FileNumber = u64;

/// Random identity of a file, mixed into each of its checksums.
pub type FileId = u64;

/// Number of a tree; tree 0 is the catalog. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

impl TreeId {
    /// The catalog: the tree that names all other trees.
    pub const CATALOG: TreeId = TreeId(0);

    /// Returns the smallest internal key of this tree.
    pub fn first_key(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// Returns the smallest internal key after this tree; `None` for the last tree.
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

/// Splits an internal key in tree and user key; `None` if it is shorter than a tree id.
pub fn split_internal_key(key: &[u8]) -> Option<(TreeId, &[u8])> {
    let (head, rest) = key.split_first_chunk::<4>()?;
    Some((TreeId(u32::from_be_bytes(*head)), rest))
}
