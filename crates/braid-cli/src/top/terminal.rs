//! Ends the process when its terminal is gone, or after a SIGTERM that the loop on the terminal does
//! not see.
//!
//! A closed terminal sends SIGHUP, which `nohup` and some supervisors make a process ignore. After
//! that, crossterm's poll finds an end of input again and again, and never returns. So a thread of its
//! own checks the terminal.

use std::{
    io,
    os::fd::AsFd as _,
    process::exit,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

/// Time between checks, and for the loop to end by itself.
const PERIOD: Duration = Duration::from_secs(1);

const SIGHUP: i32 = 1;
const SIGTERM: i32 = 15;

/// `is_ended` is set by SIGTERM.
pub fn watch(is_ended: Arc<AtomicBool>) -> io::Result<()> {
    thread::Builder::new().name("terminal".to_owned()).spawn(move || {
        loop {
            let was_ended = is_ended.load(Ordering::Relaxed);
            if is_gone(PERIOD) {
                // Without a terminal, nothing is to be restored.
                exit(128 + SIGHUP);
            }
            if was_ended {
                ratatui::restore();
                exit(128 + SIGTERM);
            }
        }
    })?;
    Ok(())
}

/// Waits for the end of the terminal, at most this long. Returns whether it has ended.
fn is_gone(patience: Duration) -> bool {
    #[expect(clippy::disallowed_methods, reason = "writes nothing")]
    let output = io::stdout();
    // Polls report a hangup without being asked for it.
    let mut polled = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::empty())];
    let timeout = Timespec::try_from(patience).ok();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return false,
        Err(_) => thread::sleep(patience),
    }
    let found = polled[0].revents();
    let is_gone = found.intersects(PollFlags::HUP);
    if !is_gone && !found.is_empty() {
        // An error that stays must not make this thread spin.
        thread::sleep(patience);
    }
    is_gone
}
