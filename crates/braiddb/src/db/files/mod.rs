//! Other files of a database: blobs, the disk-full reserve, copies of cut log tails, notes of archive
//! gaps; and the dump of any file for people (inspect).

pub mod archive_gaps;
pub mod blob_store;
pub mod cut_tails;
pub mod inspect;
pub mod names;
pub mod reserve;
