//! Signals that end a long command: SIGINT (Ctrl-C) and SIGTERM.
//!
//! A long command announces itself with [`begin`]. A signal then sets a flag, on which its output, its input or its loop fails:
//! the command ends in order, removes what is not finished, and `main` prints what was done and how to go on. A command that
//! does not end within [`GRACE`], because it waits for its input or is in the midst of the engine, is ended by the thread that
//! takes signals, and so is one that gets a second signal. The engine loses nothing by that: its files are as after a kill.
//!
//! The exit code is 128 plus the signal's number, as shells have it: 130 after Ctrl-C. Other commands, and all of them on
//! systems without these signals, are ended by the system.

#![cfg_attr(not(unix), allow(dead_code, reason = "no signal is caught there"))]

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::output::note;

/// How long a command has to end in order.
#[cfg(unix)]
const GRACE: std::time::Duration = std::time::Duration::from_secs(3);

/// How a command that got a signal comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order: what is not finished was removed.
    InOrder,
    /// At once: what is not finished stays, as after a kill.
    AtOnce,
}

/// How soon a command ends after a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as its input, its output or its loop meets the flag.
    InOrder,
    /// At once: nothing would meet the flag for long.
    AtOnce,
}

type Message = Box<dyn Fn(End) -> String + Send>;

#[derive(Default)]
struct State {
    signal: Option<i32>,
    /// The command, and what it says when it is ended.
    work: Option<(Pace, Message)>,
    temporary_files: Vec<PathBuf>,
    /// Somebody prints the message and ends the process.
    is_ending: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { signal: None, work: None, temporary_files: Vec::new(), is_ending: false });

static IS_WANTED: AtomicBool = AtomicBool::new(false);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Announces a long command, or its next part: `message` says, at the end, what was done and how to go on.
pub fn begin(pace: Pace, message: impl Fn(End) -> String + Send + 'static) {
    let is_first = state().work.replace((pace, Box::new(message))).is_none();
    if is_first && let Err(error) = watch_signals() {
        note!("braid: signals cannot be caught, and end the command as they are: {error}");
    }
}

/// The command was ended by a signal.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Fails once a signal came.
pub fn check() -> Result<(), Interrupted> {
    if IS_WANTED.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}

/// Fails once a signal came, as reading or writing does. The kind is not `Interrupted`, after which callers try again.
pub fn check_io() -> io::Result<()> {
    check().map_err(io::Error::other)
}

/// Has a file removed should the command be ended at once.
pub fn add_temporary_file(path: PathBuf) {
    state().temporary_files.push(path);
}

/// Ends that: the file was removed, or has another name by now.
pub fn forget_temporary_file(path: &std::path::Path) {
    state().temporary_files.retain(|known| known != path);
}

/// After a command that failed: the exit code if a signal was the reason. Prints what was done and how to go on.
pub fn code_of_end() -> Option<u8> {
    let mut state = state();
    let signal = state.signal?;
    state.is_ending = true;
    Some(report(&state, signal, End::InOrder))
}

fn report(state: &State, signal: i32, end: End) -> u8 {
    let message = state.work.as_ref().map_or_else(String::new, |(_, message)| message(end));
    note!("braid: interrupted: {message}");
    128_u8.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX))
}

#[cfg(unix)]
fn watch_signals() -> io::Result<()> {
    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        iterator::Signals,
    };
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            take_signal(signal);
        }
    })?;
    Ok(())
}

#[cfg(not(unix))]
fn watch_signals() -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn take_signal(signal: i32) {
    IS_WANTED.store(true, Ordering::Relaxed);
    let mut state = state();
    let is_second = state.signal.replace(signal).is_some();
    let is_ordered = state.work.as_ref().is_some_and(|(pace, _)| *pace == Pace::InOrder);
    if is_ordered && !is_second {
        // This thread goes on to take a second signal.
        std::thread::spawn(move || {
            std::thread::sleep(GRACE);
            end_at_once(&self::state(), signal);
        });
        return;
    }
    end_at_once(&state, signal);
}

/// Ends the process, unless `main` is about to.
#[cfg(unix)]
fn end_at_once(state: &State, signal: i32) {
    if state.is_ending {
        return;
    }
    for file in &state.temporary_files {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                note!("braid: cannot remove {}: {error}", file.display());
            }
            _ => {}
        }
    }
    std::process::exit(i32::from(report(state, signal, End::AtOnce)))
}
