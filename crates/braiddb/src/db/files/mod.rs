//! Files of a database beside its tables and its log: blobs, the disk-full reserve, log tails that recovery cut off.

pub mod blob_store;
pub mod cut_tails;
pub mod names;
pub mod reserve;
