//! Costs of a process: processor time, memory, bytes written, disk space.
//!
//! `VmHWM` includes mapped files; anonymous memory is private to the process.

use anyhow::{Context, Result};
use rustix::{
    fs::{Advice, fadvise},
    time::{ClockId, clock_gettime},
};
use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// The engine is idle when it hardly wrote or computed for this time.
const REST: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 800 });
/// Processor time within [`REST`] that counts as idle.
const REST_CPU: Duration = Duration::from_millis(8);
/// Bytes written within [`REST`] that count as idle: sled writes half a megabyte twice a second,
/// forever.
const REST_BYTES: u64 = 2 << 20;
const REST_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 300 });

pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(all(feature = "braiddb", feature = "lmdb"))]
pub fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn proc_number(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

pub fn bytes_written() -> u64 {
    proc_number("/proc/self/io", "write_bytes")
}

pub fn bytes_fetched() -> u64 {
    proc_number("/proc/self/io", "read_bytes")
}

pub fn resident_peak() -> u64 {
    proc_number("/proc/self/status", "VmHWM") << 10
}

/// Samples the anonymous memory of the process until dropped.
#[derive(Debug)]
pub struct MemorySampler {
    peak: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl MemorySampler {
    pub fn start() -> MemorySampler {
        let sampler = MemorySampler { peak: Arc::default(), stop: Arc::default() };
        let (peak, stop) = (Arc::clone(&sampler.peak), Arc::clone(&sampler.stop));
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous(), Ordering::Relaxed);
                thread::sleep(SAMPLE_INTERVAL);
            }
        });
        sampler
    }

    pub fn peak(&self) -> u64 {
        self.peak.fetch_max(anonymous(), Ordering::Relaxed).max(anonymous())
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn anonymous() -> u64 {
    let status = "/proc/self/status";
    (proc_number(status, "RssAnon") + proc_number(status, "RssShmem")) << 10
}

/// Returns the time until the process was idle.
pub fn wait_for_rest() -> Duration {
    let start = Instant::now();
    let (mut since, mut written, mut cpu) = (Instant::now(), bytes_written(), cpu_time());
    while start.elapsed() < REST_LIMIT {
        thread::sleep(Duration::from_millis(50));
        let (written_now, cpu_now) = (bytes_written(), cpu_time());
        if written_now - written > REST_BYTES || cpu_now - cpu > REST_CPU {
            (since, written, cpu) = (Instant::now(), written_now, cpu_now);
        } else if since.elapsed() >= REST {
            break;
        }
    }
    since - start
}

pub fn folder_bytes(folder: &Path) -> u64 {
    let mut bytes = 0;
    for_each_file(folder, &mut |path| {
        bytes += fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
        Ok(())
    })
    .map_or(0, |()| bytes)
}

pub fn files_len(folder: &Path, wanted: impl Fn(&str) -> bool) -> u64 {
    let mut bytes = 0;
    let _ = for_each_file(folder, &mut |path| {
        if wanted(&path.to_string_lossy()) {
            bytes += fs::metadata(path).map_or(0, |metadata| metadata.len());
        }
        Ok(())
    });
    bytes
}

pub fn drop_from_page_cache(folder: &Path) -> Result<()> {
    for_each_file(folder, &mut |path| {
        let file = match File::open(path) {
            // Background threads remove files.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed).context("fadvise")
    })
}

fn for_each_file(folder: &Path, act: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            for_each_file(&entry.path(), act)?;
        } else if kind.is_file() {
            act(&entry.path())?;
        }
    }
    Ok(())
}
