//! What the system counts of this process (on Linux; zeros elsewhere), and the files of a folder.

use std::{fs, path::Path};

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The anonymous and shared part of the resident set.
pub fn memory_kib() -> u64 {
    field("/proc/self/status", "RssAnon") + field("/proc/self/status", "RssShmem")
}

/// Bytes given to storage, the page cache's later writing included.
pub fn written_bytes() -> u64 {
    field("/proc/self/io", "write_bytes")
}

/// Bytes of all files of a folder, and of the log's among them.
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
