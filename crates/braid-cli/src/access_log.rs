//! The access log of `braid serve`: a line of JSON for each request.
//!
//! The server's threads format a line and pass it to a thread that writes. If the file is slower
//! than the requests, lines are dropped rather than answers delayed, and a line counts them.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    net::SocketAddr,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use braid_server::{Access, AccessLog};
use serde::Serialize;

use crate::{
    output::{Stdout, note},
    places::check_output_file,
};

/// Maximum lines that wait for the writer.
const LINES_MAX: usize = 8192;

/// A log that a thread writes.
#[derive(Debug)]
pub struct AccessFile {
    /// `None` is the end.
    lines: SyncSender<Option<String>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    dropped: AtomicU64,
    shows_keys: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    method: &'a str,
    route: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    status: u16,
    bytes: u64,
    micros: u64,
    peer: SocketAddr,
    #[serde(skip_serializing_if = "is_false")]
    cut: bool,
    #[serde(skip_serializing_if = "is_zero")]
    dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl AccessFile {
    /// Opens a file to append to; `-` is standard output.
    pub fn open(path: &Path, shows_keys: bool) -> Result<AccessFile> {
        let file = if path == Path::new("-") {
            None
        } else {
            check_output_file(path, "the access log")?;
            let file = OpenOptions::new().append(true).create(true).open(path);
            Some(file.with_context(|| format!("cannot open the access log {}", path.display()))?)
        };
        let (lines, queue) = sync_channel(LINES_MAX);
        let write = move || {
            let written = match file {
                Some(file) => write(&queue, BufWriter::new(file)),
                None => write(&queue, Stdout::new()),
            };
            // A log that cannot be written stops no requests.
            match written {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    note!("braid: the access log ends here: {error}");
                }
                _ => {}
            }
        };
        let writer = std::thread::Builder::new().name("access-log".to_owned()).spawn(write)?;
        Ok(AccessFile { lines, writer: Mutex::new(Some(writer)), dropped: AtomicU64::new(0), shows_keys })
    }

    /// Writes the lines so far and ends.
    pub fn finish(&self) {
        let writer = self.writer.lock().ok().and_then(|mut writer| writer.take());
        if let Some(writer) = writer {
            // Fails if the writer has ended.
            let _ = self.lines.send(None);
            let _ = writer.join();
        }
    }
}

/// Writes lines until the end. Each reaches the file when no further one waits.
fn write(queue: &Receiver<Option<String>>, mut out: impl Write) -> io::Result<()> {
    while let Ok(Some(line)) = queue.recv() {
        out.write_all(line.as_bytes())?;
        for next in queue.try_iter() {
            let Some(line) = next else { return out.flush() };
            out.write_all(line.as_bytes())?;
        }
        out.flush()?;
    }
    Ok(())
}

impl AccessFile {
    /// Adds a line, which gets the number of those dropped before.
    fn push(&self, line: impl FnOnce(u64) -> String) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if self.lines.try_send(Some(line(dropped))).is_err() {
            self.dropped.fetch_add(dropped + 1, Ordering::Relaxed);
        }
    }
}

impl AccessLog for AccessFile {
    fn record(&self, access: &Access<'_>) {
        self.push(|dropped| {
            let line = Line {
                time: utc(access.began),
                method: access.method,
                route: access.route,
                target: self.shows_keys.then_some(access.target),
                status: access.status,
                bytes: access.bytes,
                micros: micros(access.time),
                peer: access.peer,
                cut: !access.is_whole,
                dropped,
            };
            serde_json::to_string(&line).unwrap_or_default() + "\n"
        });
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a time as RFC 3339 has it, in UTC.
fn utc(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Counted from March of the year 0, so that a leap day is the last of its year. A cycle has 400 years.
    let from_march = days + 719_468;
    let (cycle, day) = (from_march / 146_097, from_march % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (400 * cycle + year + month / 10, (month + 2) % 12 + 1);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z", since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000000Z"),
            (1_796_025_600, "2026-11-30T08:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        assert_eq!(utc(UNIX_EPOCH + Duration::from_micros(1_000_042)), "1970-01-01T00:00:01.000042Z");
    }

    /// A writer that never gets on: the requests go on, and the next line counts those that are lost.
    #[test]
    fn lines_over_the_limit_are_counted() {
        let (lines, queue) = sync_channel(2);
        let log = AccessFile { lines, writer: Mutex::new(None), dropped: AtomicU64::new(0), shows_keys: false };
        let push = || log.push(|dropped| format!("{dropped}\n"));
        (0..5).for_each(|_| push());
        queue.recv().unwrap();
        push();
        assert_eq!(queue.try_iter().flatten().collect::<String>(), "0\n3\n");
    }
}
