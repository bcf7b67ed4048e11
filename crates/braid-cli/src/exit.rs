//! Exit codes of the command, and the code that each error ends with.

use std::{fmt, io};

use crate::output;

pub const OK: u8 = 0;
/// The database, tree, key, backup or commit is absent; or a check found a problem.
pub const NOT_FOUND: u8 = 1;
/// clap uses the same code.
pub const USAGE: u8 = 2;
pub const CORRUPTION: u8 = 3;
/// System error: input or output failed, the disk is full, or the database is open elsewhere.
pub const SYSTEM: u8 = 4;
/// Unusable input of an import, or not the input that the resumed import began with.
pub const INPUT: u8 = 5;

/// 128 and the number of SIGINT.
#[cfg(feature = "shell")]
pub const INTERRUPTED: u8 = 130;

pub const HELP: &str = "\
Exit codes:
  0  success
  1  not found; or verify, archive, bench or demo found a problem
  2  invalid command line
  3  a file of the database is damaged
  4  system error: input or output failed, disk full, or the database is open elsewhere
  5  the input of an import is not usable
  129       the terminal of `braid top` was closed
  130, 143  interrupted by Ctrl-C or SIGTERM";

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

pub fn failure(code: u8, message: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Failure { code, message: message.into() })
}

pub fn usage(message: impl Into<String>) -> anyhow::Error {
    failure(USAGE, message)
}

/// Returns the exit code for `error`. A closed output pipe (`braid scan .. | head`) is success.
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

/// Returns the message of an error with its causes, each once: some messages include their cause's.
pub fn text_of(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        before if before.ends_with(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}

/// Ends the process after a failed parse of the command line. Replaces clap's message for arguments
/// that are not UTF-8.
pub fn refuse_arguments(error: &clap::Error) -> ! {
    if error.kind() == clap::error::ErrorKind::InvalidUtf8 {
        output::report_error(
            USAGE,
            "an argument is not UTF-8 text: write other bytes of keys and values as \\xNN, or give the key in \
             hexadecimal, with `--keys hex`; `put` reads a value from standard input, with `-`",
        );
        std::process::exit(i32::from(USAGE));
    }
    if error.kind() == clap::error::ErrorKind::ValueValidation {
        output::note!("{}", with_advice(error).trim_end());
        std::process::exit(i32::from(USAGE));
    }
    let code = match error.print() {
        Err(failure) if !error.use_stderr() && failure.kind() != io::ErrorKind::BrokenPipe => {
            output::note!("braid: cannot write to standard output: {failure}");
            i32::from(SYSTEM)
        }
        _ => error.exit_code(),
    };
    std::process::exit(code)
}

/// Returns the text of a refused command line. The standard
/// library's errors about numbers do not say which input is valid.
pub fn with_advice(error: &clap::Error) -> String {
    let advice = [
        ("invalid digit found in string", "give a whole number"),
        ("cannot parse integer from empty string", "give a whole number"),
        ("number too large to fit in target type", "the number is too large"),
        ("invalid float literal", "give a number"),
    ];
    advice.into_iter().fold(error.render().to_string(), |text, (found, better)| text.replace(found, better))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A printed error and its sources showed "permission denied" twice.
    #[test]
    fn text_of_error_shows_each_cause_once() {
        let io = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = anyhow::Error::new(braiddb::Error::io("lock", "db/LOCK", io)).context("copying");
        assert_eq!(text_of(&error), "copying: cannot lock db/LOCK: permission denied");
    }
}
