//! Handles SIGINT (Ctrl-C) and SIGTERM in long commands, which call [`begin`].
//!
//! A signal sets a flag, which makes the command's next input, output or loop check fail. The
//! command removes unfinished files, and `main` prints how to continue. After [`GRACE`] or a second
//! signal, the signal thread ends the process; the database survives this like a kill.
//!
//! The exit code is 128 plus the signal's number.

#![cfg_attr(not(unix), allow(dead_code, reason = "no signal is caught there"))]

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::output::{note, report_error};

#[cfg(unix)]
const GRACE: std::time::Duration = std::time::Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself: unfinished files were removed.
    InOrder,
    /// Immediately: unfinished files stay, as after a kill.
    AtOnce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It ends itself at its next check of the flag.
    InOrder,
    /// The signal thread ends it: nothing would check the flag for a long time.
    AtOnce,
}

type Message = Box<dyn Fn(End) -> String + Send>;

#[derive(Default)]
struct State {
    signal: Option<i32>,
    work: Option<(Pace, Message)>,
    temporary_files: Vec<PathBuf>,
    is_ending: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { signal: None, work: None, temporary_files: Vec::new(), is_ending: false });

static IS_WANTED: AtomicBool = AtomicBool::new(false);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a long command or its next phase. `message` returns what was done and how to continue.
pub fn begin(pace: Pace, message: impl Fn(End) -> String + Send + 'static) {
    let is_first = state().work.replace((pace, Box::new(message))).is_none();
    if is_first && let Err(error) = watch_signals() {
        note!("braid: cannot catch signals, so they end the command at once: {error}");
    }
}

#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

pub fn check() -> Result<(), Interrupted> {
    if IS_WANTED.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}

/// The error kind is not `Interrupted`, which would make callers retry.
pub fn check_io() -> io::Result<()> {
    check().map_err(io::Error::other)
}

pub fn add_temporary_file(path: PathBuf) {
    state().temporary_files.push(path);
}

pub fn forget_temporary_file(path: &std::path::Path) {
    state().temporary_files.retain(|known| known != path);
}

/// Returns the exit code if a signal caused the failure, and prints the interrupt message.
pub fn code_of_end() -> Option<u8> {
    let mut state = state();
    let signal = state.signal?;
    state.is_ending = true;
    Some(report(&state, signal, End::InOrder))
}

fn report(state: &State, signal: i32, end: End) -> u8 {
    let message = state.work.as_ref().map_or_else(String::new, |(_, message)| message(end));
    let code = 128_u8.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX));
    report_error(code, &format!("interrupted: {message}"));
    code
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
        // This thread must stay free for a second signal.
        std::thread::spawn(move || {
            std::thread::sleep(GRACE);
            end_at_once(&self::state(), signal);
        });
        return;
    }
    end_at_once(&state, signal);
}

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
