//! The system's counters of this process (on Linux, zeros elsewhere), and file sizes of a folder.

use std::{fs, path::Path};

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Anonymous and shared memory.
pub fn memory_kib() -> u64 {
    field("/proc/self/status", "RssAnon") + field("/proc/self/status", "RssShmem")
}

/// Bytes written to storage, later write-back of the page cache included.
pub fn written_bytes() -> u64 {
    field("/proc/self/io", "write_bytes")
}

/// Bytes of all files of a folder, and of its log.
pub fn space_bytes(folder: &Path) -> (u64, u64) {
    let (mut all, mut log) = (0, 0);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let len = entry.metadata().map_or(0, |metadata| metadata.len());
        all += len;
        if entry.path().extension().is_some_and(|extension| extension == "wal") {
            log += len;
        }
    }
    (all, log)
}
