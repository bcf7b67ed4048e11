//! Standard output and standard error.
//!
//! If the reader of standard output goes away, the command ends with code 0. Any other failure is
//! an error. Failed writes to standard error are ignored. [`Stdout::patient`] returns its first
//! error only at the end.

use std::{
    fmt,
    io::{self, BufWriter, StdoutLock, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Result;
use serde_json::json;

const PREFIX: &str = "braid: ";

pub struct Stdout {
    out: BufWriter<StdoutLock<'static>>,
    is_patient: bool,
    failure: Option<io::Error>,
}

impl Stdout {
    pub fn new() -> Stdout {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that opens it")]
        let out = io::stdout().lock();
        Stdout { out: BufWriter::with_capacity(1 << 16, out), is_patient: false, failure: None }
    }

    pub fn patient() -> Stdout {
        Stdout { is_patient: true, ..Stdout::new() }
    }

    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self.failure.take() {
            None => Ok(()),
            Some(failure) => Err(failure.into()),
        }
    }

    fn attempt<T>(
        &mut self,
        refused: T,
        write: impl FnOnce(&mut BufWriter<StdoutLock<'static>>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.failure.is_some() {
            return Ok(refused);
        }
        match write(&mut self.out).map_err(named) {
            Err(failure) if self.is_patient => {
                self.failure = Some(failure);
                Ok(refused)
            }
            result => result,
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), Write::flush)
    }
}

#[cfg(any(feature = "shell", feature = "top"))]
pub fn is_terminal() -> bool {
    #[expect(clippy::disallowed_methods, reason = "only asks for its kind")]
    std::io::IsTerminal::is_terminal(&io::stdout())
}

pub fn print_line(line: impl fmt::Display) -> Result<()> {
    print_lines(&format!("{line}\n"))
}

pub fn print_lines(lines: &str) -> Result<()> {
    let mut out = Stdout::new();
    out.write_all(lines.as_bytes())?;
    out.finish()
}

macro_rules! note {
    ($($argument:tt)*) => { $crate::output::note_line(format_args!($($argument)*)) };
}
pub(crate) use note;

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Turns each line of standard error into a JSON object.
pub fn set_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

pub fn note_line(line: fmt::Arguments<'_>) {
    match IS_JSON.load(Ordering::Relaxed) {
        false => write_error_line(line),
        true => {
            let line = line.to_string();
            if line.starts_with('{') {
                return write_error_line(line);
            }
            let note = line.strip_prefix(PREFIX).unwrap_or(&line);
            write_error_line(json!({"note": note}));
        }
    }
}

pub fn report_error(code: u8, text: &str) {
    match IS_JSON.load(Ordering::Relaxed) {
        false => write_error_line(format_args!("{PREFIX}{text}")),
        true => write_error_line(json!({"error": text, "code": code})),
    }
}

fn write_error_line(line: impl fmt::Display) {
    // One write, so that lines of several processes and threads do not mix.
    let line = format!("{line}\n");
    #[expect(clippy::disallowed_methods, reason = "this is the one place that opens it")]
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

pub fn is_reader_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe && error.get_ref().is_some_and(|inner| inner.is::<StdoutFailed>())
}

#[derive(Debug)]
struct StdoutFailed(io::Error);

impl fmt::Display for StdoutFailed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot write to standard output: {}", self.0)
    }
}

impl std::error::Error for StdoutFailed {}

fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), StdoutFailed(error))
}
