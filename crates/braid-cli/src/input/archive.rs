//! The files of a tar archive as records.
//!
//! Each regular file is a record, whatever its name, so that the numbers of records depend on the archive alone. A record
//! ends where its member ends, so that reading can begin again at the member after it.

use std::io::{self, Read};

use super::chunk::{Chunk, ChunkSink, RECORD_BYTES_MAX, Stopped};
use crate::dirt::Dirt;

const BLOCK: u64 = 512;

/// Reads all members from `offset`, where `reader` stands. Ends early, without an error, if the sink takes no more.
pub fn read_archive<R, F>(reader: R, offset: u64, sink: &mut ChunkSink<F>) -> io::Result<()>
where
    R: Read,
    F: FnMut(Chunk) -> Result<(), Stopped>,
{
    let mut archive = tar::Archive::new(reader);
    let mut bytes = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let size = entry.size();
        let next_offset = offset + entry.raw_file_position() + size.next_multiple_of(BLOCK);
        let place = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        bytes.clear();
        let oversized = size > RECORD_BYTES_MAX as u64;
        let limit = if oversized { 100 } else { size };
        entry.by_ref().take(limit).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < limit {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the archive ends inside {place}")));
        }
        if sink.push(&bytes, next_offset, &place, oversized.then_some(Dirt::TooLarge)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}
