//! Reads the files of a tar archive as records.
//!
//! Each regular file is a record, so that record numbers depend only on the archive. So is a link
//! to an earlier file. A file with several discs (`#FILENAME=id` before each) is that many records.
//!
//! Reading can resume after each record. The resume offset is the end of a member; inside a member,
//! it is the member's offset plus the number of read records in the upper bits.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read},
};

use super::chunk::{Chunk, ChunkSink, RECORD_BYTES_MAX, Stopped};
use crate::dirt::Dirt;

const BLOCK: u64 = 512;

/// Bytes of recently read files that are kept as link targets.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Low bits of an encoded place for the offset; the upper bits count skipped records.
const OFFSET_BITS: u32 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    pub skipped: u64,
}

impl Place {
    pub fn of(offset: u64) -> Place {
        Place { offset: offset & ((1 << OFFSET_BITS) - 1), skipped: offset >> OFFSET_BITS }
    }

    fn encode(self) -> u64 {
        self.offset | self.skipped << OFFSET_BITS
    }
}

pub fn read_archive<R, F>(reader: R, from: Place, sink: &mut ChunkSink<F>) -> io::Result<()>
where
    R: Read,
    F: FnMut(Chunk) -> Result<(), Stopped>,
{
    let mut archive = tar::Archive::new(reader);
    let mut kept = KeptFiles::default();
    let mut bytes = Vec::new();
    let mut member_offset = from.offset;
    let mut skipped = from.skipped;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        let size = entry.size();
        let next_offset = from.offset + entry.raw_file_position() + size.next_multiple_of(BLOCK);
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let defect;
        bytes.clear();
        if kind.is_file() {
            let oversized = size > RECORD_BYTES_MAX as u64;
            let limit = if oversized { 100 } else { size };
            entry.by_ref().take(limit).read_to_end(&mut bytes)?;
            if (bytes.len() as u64) < limit {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the archive ends inside {path}")));
            }
            defect = oversized.then_some(Dirt::TooLarge);
            kept.keep(&path, &bytes, defect);
        } else if kind.is_hard_link() || kind.is_symlink() {
            let target = entry.link_name_bytes().map(|name| String::from_utf8_lossy(&name).into_owned());
            let target = target.map(|name| if kind.is_symlink() { beside(&path, &name) } else { name });
            match target.as_deref().and_then(|name| kept.find(name)) {
                Some((found, its_defect)) => {
                    bytes.extend_from_slice(found);
                    defect = its_defect;
                    kept.keep(&path, &bytes.clone(), defect);
                }
                None => {
                    bytes.extend_from_slice(target.unwrap_or_default().as_bytes());
                    defect = Some(Dirt::LostLink);
                }
            }
        } else {
            continue;
        }
        let records = if defect.is_none() { records_of(&bytes, &path) } else { vec![(path.clone(), &bytes[..])] };
        let count = records.len() as u64;
        for (number, (place, record)) in (1..).zip(records) {
            if number <= skipped {
                continue;
            }
            let next = match number < count {
                true => Place { offset: member_offset, skipped: number }.encode(),
                false => next_offset,
            };
            if sink.push_file(record, member_offset, next, &place, defect).is_err() {
                return Ok(());
            }
        }
        skipped = 0;
        member_offset = next_offset;
    }
    Ok(())
}

fn beside(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Splits a file into records with their paths, at lines `#FILENAME=id`.
fn records_of<'a>(bytes: &'a [u8], path: &str) -> Vec<(String, &'a [u8])> {
    const MARK: &[u8] = b"#FILENAME=";
    let mut starts = Vec::new();
    let mut at = 0;
    if bytes.starts_with(MARK) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Some(name) = line.strip_prefix(MARK) {
                starts.push((at, String::from_utf8_lossy(name.trim_ascii()).into_owned()));
            }
            at += line.len();
        }
    }
    if starts.is_empty() {
        return vec![(path.to_owned(), bytes)];
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([bytes.len()]);
    let record = |((start, name), end): (&(usize, String), usize)| {
        let name = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        (name, &bytes[*start..end])
    };
    starts.iter().zip(ends).map(record).collect()
}

#[derive(Default)]
struct KeptFiles {
    by_name: HashMap<String, (Vec<u8>, Option<Dirt>)>,
    order: VecDeque<String>,
    bytes: usize,
}

impl KeptFiles {
    fn keep(&mut self, name: &str, bytes: &[u8], defect: Option<Dirt>) {
        let name = plain(name);
        self.bytes += bytes.len() + name.len();
        match self.by_name.insert(name.clone(), (bytes.to_vec(), defect)) {
            Some((before, _)) => self.bytes -= before.len() + name.len(),
            None => self.order.push_back(name),
        }
        while self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some((gone, _)) = self.by_name.remove(&oldest) {
                self.bytes -= gone.len() + oldest.len();
            }
        }
    }

    fn find(&self, name: &str) -> Option<(&[u8], Option<Dirt>)> {
        self.by_name.get(&plain(name)).map(|(bytes, defect)| (bytes.as_slice(), *defect))
    }
}

fn plain(name: &str) -> String {
    name.strip_prefix("./").unwrap_or(name).to_owned()
}
