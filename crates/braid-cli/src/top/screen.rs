//! The loop on a terminal: a thread reads, this one draws and handles keys.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::{
    draw::{Screen, draw},
    frame::Frame,
    reading::Reading,
    run::Source,
};
use crate::exit::{OK, text_of};

/// Time between checks for a new reading and for signals.
const TICK: Duration = Duration::from_millis(50);

const HISTORY_FRAMES: usize = 1000;

/// Shows frames until the user ends it. An error in the first reading ends it too.
pub fn run(title: &str, source: Source, interval: Duration) -> Result<u8> {
    let ended = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&ended)).context("cannot catch SIGTERM")?;
    let (send, readings) = sync_channel(0);
    thread::Builder::new().name("readings".to_owned()).spawn(move || read_on(&source, interval, &send))?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    #[cfg(unix)]
    super::terminal::watch(Arc::clone(&ended)).context("cannot watch the terminal")?;
    let mut view = View { title: title.to_owned(), before: None, screen: Screen::default() };
    let done = view.show(&mut terminal, &readings, &ended);
    ratatui::restore();
    done?;
    Ok(if ended.load(Ordering::Relaxed) { 128 + SIGTERM } else { OK })
}

const SIGTERM: u8 = 15;

/// Ends when nothing receives the readings any more.
fn read_on(source: &Source, interval: Duration, send: &SyncSender<Result<Reading>>) {
    let mut reading = source.read_first();
    while send.send(reading).is_ok() {
        thread::sleep(interval);
        reading = source.read();
    }
}

struct View {
    title: String,
    before: Option<Reading>,
    screen: Screen,
}

impl View {
    fn show(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        readings: &Receiver<Result<Reading>>,
        ended: &AtomicBool,
    ) -> Result<()> {
        while !ended.load(Ordering::Relaxed) {
            terminal.draw(|to| draw(&self.screen, to)).context("cannot write to the terminal")?;
            while event::poll(TICK).context("cannot read from the terminal")? {
                if self.handle(&event::read().context("cannot read from the terminal")?) {
                    return Ok(());
                }
                terminal.draw(|to| draw(&self.screen, to)).context("cannot write to the terminal")?;
            }
            match readings.recv_timeout(Duration::ZERO) {
                Ok(reading) => self.take(reading)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        Ok(())
    }

    fn take(&mut self, reading: Result<Reading>) -> Result<()> {
        let Some(before) = &self.before else {
            self.before = Some(reading?);
            return Ok(());
        };
        if self.screen.is_paused {
            return Ok(());
        }
        match reading {
            // A server keeps a reading for half a second.
            Ok(now) if now.time_us == before.time_us => {}
            Ok(now) => {
                let frame = Frame::new(&self.title, before, now.clone());
                self.screen.history.push_back(frame.commits_per_second as u64);
                if self.screen.history.len() > HISTORY_FRAMES {
                    self.screen.history.pop_front();
                }
                self.before = Some(now);
                self.screen.frame = Some(frame);
                self.screen.error = None;
            }
            Err(error) => self.screen.error = Some(text_of(&error)),
        }
        Ok(())
    }

    /// Returns true to end.
    fn handle(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return false };
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let scroll = &mut self.screen.scroll;
        match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Char('q') | KeyCode::Esc, _) | (KeyCode::Char('c'), true) => return true,
            (KeyCode::Char('p'), false) => self.screen.is_paused = !self.screen.is_paused,
            (KeyCode::Up | KeyCode::Char('k'), _) => *scroll = scroll.saturating_sub(1),
            // The drawing stops at the last line; the bound lets Up react at once after it.
            (KeyCode::Down | KeyCode::Char('j'), _) => *scroll = (*scroll + 1).min(SCROLL_MAX),
            _ => {}
        }
        false
    }
}

/// Maximum first line: all sections have fewer lines than the trees and this.
const SCROLL_MAX: u16 = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{SYSTEM, failure};
    use crate::top::server::reading;
    use crossterm::event::KeyEvent;
    use serde_json::{Value, json};

    /// A key had no effect until the first reading was there, which a slow server delays by seconds.
    #[test]
    fn key_ends_the_view_before_its_first_reading() {
        let mut view = View { title: "t".to_owned(), before: None, screen: Screen::default() };
        assert!(!view.handle(&Event::Key(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::NONE))));
        assert!(view.handle(&Event::Key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE))));
        assert!(view.screen.frame.is_none() && view.screen.is_paused);
    }

    #[test]
    fn first_error_ends_the_view_and_later_ones_are_shown() {
        let error = || Err(failure(SYSTEM, "refused"));
        let at = |seconds: u64| reading(&json!({"time_us": seconds * 1_000_000}), &Value::Null);
        let mut view = View { title: "t".to_owned(), before: None, screen: Screen::default() };
        assert!(view.take(error()).is_err());
        view.take(Ok(at(1))).unwrap();
        assert!(view.screen.frame.is_none());
        view.take(error()).unwrap();
        assert_eq!(view.screen.error.as_deref(), Some("refused"));
        view.take(Ok(at(2))).unwrap();
        assert!(view.screen.frame.is_some() && view.screen.error.is_none());
    }
}
