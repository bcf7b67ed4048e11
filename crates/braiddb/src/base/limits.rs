//! Every limit, by name.

/// The longest user key, in bytes; and the longest value of a multi-tree.
pub const MAX_KEY_LEN: usize = 65_536;

/// The longest value, in bytes (4 GiB - 1).
pub const MAX_VALUE_LEN: u64 = u32::MAX as u64;

/// The longest internal key, in bytes: a tree id, an escaped multi-tree key with its terminator, and a multi-tree
/// value. Decoders refuse longer ones.
pub const MAX_INTERNAL_KEY_LEN: usize = 4 + 2 * MAX_KEY_LEN + 2 + MAX_KEY_LEN;

/// The most blocks in a run: a position in a run is `{u16 block, u16 slot}`.
pub const MAX_RUN_BLOCKS: usize = 60_000;

/// The most entries in a block, so that a count fits a byte.
pub const MAX_BLOCK_ENTRIES: usize = 255;

/// The most runs a view can braid: five selector bits, one value of which is kept for "empty".
pub const MAX_VIEW_RUNS: usize = 31;

/// The most loose runs a partition is let to gather before it must fold.
pub const MAX_LOOSE_RUNS: usize = 8;

/// The most entries in a segment of a view.
pub const SEGMENT_ENTRIES: usize = 32;

const _: () = assert!(MAX_RUN_BLOCKS <= u16::MAX as usize);
const _: () = assert!(SEGMENT_ENTRIES <= 32);

/// The longest application cursor, in bytes.
pub const MAX_APPLICATION_CURSOR_LEN: usize = 64 << 10;
