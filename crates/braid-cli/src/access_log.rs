//! The access log of `braid serve`: a line of JSON for each request.
//!
//! The server's threads format a line and pass it to a thread that writes. If the file is slower
//! than the requests, or cannot be written, lines are dropped rather than answers delayed, and a line
//! counts them.

use std::{
    borrow::Cow,
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use braid_server::{Access, AccessLog};
use serde::Serialize;

use crate::{
    output::{Stdout, is_reader_gone, note},
    places::check_output_file,
};

/// Maximum lines that wait for the writer.
const LINES_MAX: usize = 8192;
/// Bytes of the buffer of a file: more than the longest line, so that a failed write leaves no part of
/// one. The buffer keeps whole lines until they can be written.
const BUFFER_BYTES: usize = 256 << 10;
/// Time for the last lines at the end. A reader that takes none would keep the process.
const FINISH_TIME: Duration = Duration::from_secs(2);
/// Pause until the end is announced again to a writer whose queue is full.
const FINISH_PAUSE: Duration = Duration::from_millis(10);
/// Parameters with data or secrets: a value of a record, and a ticket.
const HIDDEN: [&str; 2] = ["value", "ticket"];

/// A log that a thread writes.
#[derive(Debug)]
pub struct AccessFile {
    /// `None` is the end.
    lines: SyncSender<Option<String>>,
    /// Disconnected when the writer has ended.
    writer: Mutex<Receiver<()>>,
    dropped: Arc<AtomicU64>,
    shows_keys: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    method: &'a str,
    route: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, str>>,
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
            let mut options = OpenOptions::new();
            options.append(true).create(true);
            // It has addresses, and with --log-keys names and keys.
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            Some(options.open(path).with_context(|| format!("cannot open the access log {}", path.display()))?)
        };
        let (lines, queue) = sync_channel(LINES_MAX);
        let (running, writer) = channel();
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let write = move || {
            let _running = running;
            match file {
                Some(file) => write(&queue, BufWriter::with_capacity(BUFFER_BYTES, file), &counted),
                None => write(&queue, Stdout::new(), &counted),
            }
        };
        std::thread::Builder::new().name("access-log".to_owned()).spawn(write)?;
        Ok(AccessFile { lines, writer: Mutex::new(writer), dropped, shows_keys })
    }

    /// Writes the lines so far and ends. Gives up after a time: see [`FINISH_TIME`].
    pub fn finish(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + FINISH_TIME;
        let mut is_announced = false;
        loop {
            is_announced = is_announced || !matches!(self.lines.try_send(None), Err(TrySendError::Full(_)));
            let left = end.saturating_duration_since(Instant::now());
            match writer.recv_timeout(if is_announced { left } else { left.min(FINISH_PAUSE) }) {
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    note!("braid: the access log lacks its last lines: nothing takes them");
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
        }
    }
}

/// Writes lines until the end, also after errors: a disk that is full now has space later. Each line
/// reaches the file when no further one waits. One that cannot be buffered is counted as dropped.
fn write(queue: &Receiver<Option<String>>, mut out: impl Write, dropped: &AtomicU64) {
    let mut failing = Failing(false);
    let mut is_over = false;
    while !is_over {
        let Ok(first) = queue.recv() else { return };
        let mut failure = None;
        for line in std::iter::once(first).chain(queue.try_iter()) {
            let Some(line) = line else {
                is_over = true;
                break;
            };
            if let Err(error) = out.write_all(line.as_bytes()) {
                dropped.fetch_add(1, Ordering::Relaxed);
                failure = Some(error);
            }
        }
        match out.flush().err().or(failure) {
            // Nothing reads standard output any more.
            Some(error) if is_reader_gone(&error) => return,
            failure => failing.report(failure.as_ref()),
        }
    }
}

/// Reports the first of several failures, and their end.
struct Failing(bool);

impl Failing {
    fn report(&mut self, failure: Option<&io::Error>) {
        match failure {
            Some(error) if !self.0 => note!("braid: the access log cannot be written, and is tried again: {error}"),
            None if self.0 => note!("braid: the access log is written again"),
            _ => {}
        }
        self.0 = failure.is_some();
    }
}

/// Returns the path and the query without the contents of [`HIDDEN`] parameters.
fn shown(target: &str) -> Cow<'_, str> {
    let Some((path, query)) = target.split_once('?') else { return target.into() };
    let is_hidden = |part: &str| part.split_once('=').is_some_and(|(name, _)| HIDDEN.contains(&name));
    if !query.split('&').any(is_hidden) {
        return target.into();
    }
    let shown = |part| match is_hidden(part) {
        true => format!("{}=-", part.split('=').next().unwrap_or_default()),
        false => part.to_owned(),
    };
    format!("{path}?{}", query.split('&').map(shown).collect::<Vec<_>>().join("&")).into()
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
                target: self.shows_keys.then(|| shown(access.target)),
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
        let log = AccessFile { lines, writer: Mutex::new(channel().1), dropped: Arc::default(), shows_keys: false };
        let push = || log.push(|dropped| format!("{dropped}\n"));
        (0..5).for_each(|_| push());
        queue.recv().unwrap();
        push();
        assert_eq!(queue.try_iter().flatten().collect::<String>(), "0\n3\n");
    }

    /// A disk that is full for a while.
    struct Disk<'d> {
        written: &'d mut Vec<u8>,
        failures_left: usize,
    }

    impl Write for Disk<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.failures_left > 0 {
                self.failures_left -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            // A part, as a disk takes it that is almost full.
            let len = bytes.len().min(3);
            self.written.extend_from_slice(&bytes[..len]);
            Ok(len)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log ended at the first error.
    #[test]
    fn log_goes_on_after_failed_writes() {
        let (lines, queue) = sync_channel(99);
        let sent: Vec<String> = (0..20).map(|number| format!("line {number}\n")).collect();
        for line in &sent {
            lines.send(Some(line.clone())).unwrap();
        }
        lines.send(None).unwrap();
        let (mut written, dropped) = (Vec::new(), AtomicU64::new(0));
        write(&queue, BufWriter::with_capacity(40, Disk { written: &mut written, failures_left: 5 }), &dropped);
        let text = String::from_utf8(written).unwrap();
        let found: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        // The buffer has the first lines until they can be written, and no line is there in part.
        assert_eq!(dropped.load(Ordering::Relaxed), 5);
        assert_eq!(found, [&sent[..5], &sent[10..]].concat());
    }

    #[test]
    fn values_and_tickets_are_not_shown() {
        for (target, expected) in [
            ("/trees/t/k", "/trees/t/k"),
            ("/trees/m/k?value=secret", "/trees/m/k?value=-"),
            ("/trees/m/k?codec=tuple&value=a%3Db=c&x", "/trees/m/k?codec=tuple&value=-&x"),
            ("/trees/t/?values=false&start=value", "/trees/t/?values=false&start=value"),
            ("/changes?ticket=abc&tree=t", "/changes?ticket=-&tree=t"),
            ("/trees/t/value=1", "/trees/t/value=1"),
        ] {
            assert_eq!(shown(target), expected);
        }
    }
}
