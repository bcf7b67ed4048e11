//! The block cache: see `block_cache.rs`.
