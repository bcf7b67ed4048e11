//! Limits of keys, values and files.

/// Maximum length of a user key, and of a value of a multi-tree, in bytes.
pub const MAX_KEY_LEN: usize = 65_536;

/// Maximum length of a value, in bytes (4 GiB - 1).
pub const MAX_VALUE_LEN: u64 = u32::MAX as u64;

/// Maximum length of an internal key, in bytes: a tree id, an escaped multi-tree key with its
/// terminator, and a multi-tree value. Decoders refuse longer ones.
pub const MAX_INTERNAL_KEY_LEN: usize = 4 + 2 * MAX_KEY_LEN + 2 + MAX_KEY_LEN;

/// Maximum number of blocks in a run: a position in a run is `{u16 block, u16 slot}`.
pub const MAX_RUN_BLOCKS: usize = 60_000;

/// Maximum number of entries in a block; the count fits a byte.
pub const MAX_BLOCK_ENTRIES: usize = 255;

/// Maximum number of runs in a view: a selector has five bits for the run, and one value means
/// "empty".
pub const MAX_VIEW_RUNS: usize = 31;

/// Maximum number of unindexed runs in a partition before it must fold.
pub const MAX_LOOSE_RUNS: usize = 8;

/// Maximum number of entries in a segment of a view.
pub const SEGMENT_ENTRIES: usize = 32;

const _: () = assert!(MAX_RUN_BLOCKS <= u16::MAX as usize);
const _: () = assert!(SEGMENT_ENTRIES <= 32);

/// Maximum length of an application cursor, in bytes.
pub const MAX_APPLICATION_CURSOR_LEN: usize = 64 << 10;
