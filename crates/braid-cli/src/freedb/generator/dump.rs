//! Writes a whole dump as `.tar.bz2`.
//!
//! Threads generate and compress chunks of discs into separate bzip2 streams, and one writer writes
//! them in order. The bytes do not depend on the number of threads.

use std::{
    io::{self, Write},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use bzip2::{Compression, write::BzEncoder};

use super::disc::{category, disc_file};

const DISCS_PER_STREAM: u64 = 1500;

const MODIFIED_SECONDS: u64 = 1_072_915_200;

#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    pub seed: u64,
    pub discs: u64,
    pub threads: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct DumpReport {
    pub disc_bytes: u64,
    pub archive_bytes: u64,
    pub compressed_bytes: u64,
}

struct Stream {
    disc_bytes: u64,
    archive_bytes: u64,
    compressed: Vec<u8>,
}

pub fn write_dump(options: &DumpOptions, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> io::Result<DumpReport> {
    let streams = options.discs.div_ceil(DISCS_PER_STREAM).max(1);
    let next = AtomicU64::new(0);
    // Each worker queues its result channel in order, so that few streams are held in memory.
    let (queue_sender, queue) = mpsc::sync_channel(options.threads * 2);
    let taking = Mutex::new(queue_sender);
    let mut report = DumpReport::default();
    thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let (index, result_sender) = {
                        let queue = taking.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let (sender, receiver) = mpsc::sync_channel::<io::Result<Stream>>(1);
                        if index >= streams || queue.send(receiver).is_err() {
                            return;
                        }
                        (index, sender)
                    };
                    let _ = result_sender.send(make_stream(options, index, index + 1 == streams));
                }
            });
        }
        let queue = queue;
        for index in 0..streams {
            let gone = || io::Error::other("a dump thread has stopped");
            let stream = queue.recv().map_err(|_| gone())?.recv().map_err(|_| gone())??;
            out.write_all(&stream.compressed)?;
            report.disc_bytes += stream.disc_bytes;
            report.archive_bytes += stream.archive_bytes;
            report.compressed_bytes += stream.compressed.len() as u64;
            progress(((index + 1) * DISCS_PER_STREAM).min(options.discs));
        }
        out.flush()
    })?;
    Ok(report)
}

fn make_stream(options: &DumpOptions, index: u64, is_last: bool) -> io::Result<Stream> {
    let first = index * DISCS_PER_STREAM;
    let end = (first + DISCS_PER_STREAM).min(options.discs);
    let mut archive = Vec::new();
    let mut disc_bytes = 0;
    for number in first..end {
        let folder = category(number, options.discs);
        if number == 0 || folder != category(number - 1, options.discs) {
            append(&mut archive, &format!("{folder}/"), b"", tar::EntryType::Directory)?;
        }
        let file = disc_file(options.seed, number, options.discs);
        disc_bytes += file.bytes.len() as u64;
        append(&mut archive, &file.path, &file.bytes, tar::EntryType::Regular)?;
    }
    if is_last {
        archive.extend_from_slice(&[0; 1024]);
    }
    let mut encoder = BzEncoder::new(Vec::with_capacity(archive.len() / 4), Compression::best());
    encoder.write_all(&archive)?;
    Ok(Stream { disc_bytes, archive_bytes: archive.len() as u64, compressed: encoder.finish()? })
}

fn append(archive: &mut Vec<u8>, path: &str, bytes: &[u8], kind: tar::EntryType) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(kind);
    header.set_size(bytes.len() as u64);
    header.set_mode(if kind == tar::EntryType::Directory { 0o755 } else { 0o644 });
    header.set_mtime(MODIFIED_SECONDS);
    header.set_cksum();
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(bytes);
    archive.resize(archive.len().next_multiple_of(512), 0);
    Ok(())
}
