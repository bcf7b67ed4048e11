//! Standard output and standard error.
//!
//! A reader of standard output that goes away (`braid scan .. | head`) ends the command early and quietly, with code 0. Any
//! other failure, such as a full disk, is an error that names standard output. What standard error does not take is lost:
//! there is no better place to say so.
//!
//! A command that works on after it has printed either prints last, or prints to [`Stdout::patient`], which keeps its first
//! error for the end.
//!
//! Where standard output is closed, the system's runtime has opened `/dev/null` in its place before `main`.

use std::{
    fmt,
    io::{self, BufWriter, StdoutLock, Write},
};

use anyhow::Result;

/// Standard output, buffered. What was written counts once [`Stdout::finish`] has succeeded.
pub struct Stdout {
    out: BufWriter<StdoutLock<'static>>,
    is_patient: bool,
    failure: Option<io::Error>,
}

impl Stdout {
    /// Standard output that fails at once.
    pub fn new() -> Stdout {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that opens it")]
        let out = io::stdout().lock();
        Stdout { out: BufWriter::with_capacity(1 << 16, out), is_patient: false, failure: None }
    }

    /// Standard output for work that goes on without it: writing never fails, but [`Stdout::finish`] does.
    pub fn patient() -> Stdout {
        Stdout { is_patient: true, ..Stdout::new() }
    }

    /// Writes out what is buffered. The first failure of all that was written is returned.
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

/// Writes a line to standard output.
pub fn print_line(line: impl fmt::Display) -> Result<()> {
    print_lines(&format!("{line}\n"))
}

/// Writes whole lines to standard output.
pub fn print_lines(lines: &str) -> Result<()> {
    let mut out = Stdout::new();
    out.write_all(lines.as_bytes())?;
    out.finish()
}

/// Writes a line to standard error, as far as that takes it.
macro_rules! note {
    ($($argument:tt)*) => { $crate::output::note_line(format_args!($($argument)*)) };
}
pub(crate) use note;

/// Writes a line to standard error, as far as that takes it: what `note!` calls.
pub fn note_line(line: fmt::Arguments<'_>) {
    // At once, so that the lines of several processes and threads stay whole.
    let line = format!("{line}\n");
    #[expect(clippy::disallowed_methods, reason = "this is the one place that opens it")]
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Whether an error means that the reader of standard output went away.
pub fn is_reader_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe && error.get_ref().is_some_and(|inner| inner.is::<StdoutFailed>())
}

/// A failure of standard output.
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
