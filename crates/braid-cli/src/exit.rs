//! Exit codes, and which error ends with which.

use std::{fmt, io};

use crate::output;

/// It worked.
pub const OK: u8 = 0;
/// What was asked for is not there; or a check (verify, archive, bench, demo) found something wrong.
pub const NOT_FOUND: u8 = 1;
/// The command line makes no sense. clap ends with the same code.
pub const USAGE: u8 = 2;
/// A file of the database is damaged.
pub const CORRUPTION: u8 = 3;
/// The operating system refused: input or output failed, the disk is full, or the database is open elsewhere and was to be written.
pub const SYSTEM: u8 = 4;
/// The input of an import is not usable: no record of it, a bad record with `--on-error stop`, a damaged archive, or
/// another input than the one an import is resumed from.
pub const INPUT: u8 = 5;

/// The table for `--help`.
pub const HELP: &str = "\
Exit codes:
  0  it worked
  1  not found; or verify, archive, bench or demo found something wrong
  2  the command line makes no sense
  3  a file of the database is damaged
  4  the system refused: input or output failed, disk full, or the database is open elsewhere
  5  the input of an import is not usable
  130, 143  interrupted by Ctrl-C or SIGTERM";

/// An error of the command itself, with its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An error with a given code.
pub fn failure(code: u8, message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Failure { code, message: message.into() })
}

/// An error in how the command was called.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    failure(USAGE, message)
}

/// The code to end with. Only a reader of our output that went away (`braid scan .. | head`) is no failure.
pub fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if let Some(engine) = cause.downcast_ref::<braiddb::Error>() {
            return engine_code(engine);
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return if output::is_reader_gone(io) { OK } else { SYSTEM };
        }
    }
    SYSTEM
}

/// Ends the command, whose arguments are not understood. What clap says of arguments that are not text helps nobody.
pub fn refuse_arguments(error: &clap::Error) -> ! {
    if error.kind() == clap::error::ErrorKind::InvalidUtf8 {
        output::note!(
            "braid: an argument is not UTF-8 text: write the other bytes of keys and values as \\xNN, or a key in \
             hexadecimal, with `--keys hex`, and have `put` take a value from standard input, with `-`"
        );
        std::process::exit(i32::from(USAGE));
    }
    // Help and the version go to standard output, which may be full.
    let code = match error.print() {
        Err(failure) if !error.use_stderr() && failure.kind() != io::ErrorKind::BrokenPipe => {
            output::note!("braid: cannot write to standard output: {failure}");
            i32::from(SYSTEM)
        }
        _ => error.exit_code(),
    };
    std::process::exit(code)
}

fn engine_code(error: &braiddb::Error) -> u8 {
    if error.is_corruption() {
        return CORRUPTION;
    }
    if error.is_not_found() || error.is_watch_too_old() || error.is_archive_gap() {
        return NOT_FOUND;
    }
    match error {
        braiddb::Error::InvalidArgument(_) | braiddb::Error::AlreadyExists(_) => USAGE,
        _ => SYSTEM,
    }
}
