//! The `braid` command: store, query, import, inspect and demonstrate BraidDB.

// For the `json!` of all statistics.
#![recursion_limit = "256"]
// These macros panic if the output is closed or full. Use `output` instead.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "serve")]
mod access_log;
mod arguments;
mod bar;
mod bench;
mod command_line;
mod commands;
mod demo;
mod dirt;
mod exit;
mod freedb;
mod import;
mod input;
mod interrupt;
mod invocation;
mod logging;
mod notation;
mod output;
mod places;
mod random;
#[cfg(feature = "shell")]
mod shell;
mod statistics;
mod text_form;
#[cfg(feature = "top")]
mod top;
mod transfer;
mod typed;

use std::{ffi::OsString, process::ExitCode};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    outlive_file_size_limits();
    let line: Vec<OsString> = std::env::args_os().collect();
    let database = std::env::var_os(invocation::DATABASE_VARIABLE);
    let parsed = invocation::parse(&line, database).unwrap_or_else(|refusal| invocation::refuse(&refusal, &line));
    let arguments = parsed.arguments;
    output::set_json(parsed.is_json);
    logging::start(arguments.verbose);
    let code = match commands::run(arguments.command) {
        Ok(code) => code,
        Err(error) => interrupt::code_of_end().unwrap_or_else(|| {
            let code = exit::code_of(&error);
            if code != exit::OK {
                output::report_error(code, &exit::text_of(&error));
            }
            code
        }),
    };
    ExitCode::from(code)
}

/// Turns a write beyond `ulimit -f` into an error; the default action is a silent exit.
fn outlive_file_size_limits() {
    #[cfg(unix)]
    {
        let seen = std::sync::Arc::default();
        if let Err(error) = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen) {
            output::note!("braid: cannot handle SIGXFSZ, the file size limit signal: {error}");
        }
    }
}
