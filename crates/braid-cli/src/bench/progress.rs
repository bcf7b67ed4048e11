//! Progress on standard error: lines at a given interval, or else a bar on a terminal.

use std::time::Duration;

use crate::{bar::Bar, notation::show_count, output::note};

const BAR_EVERY: Duration = Duration::from_millis(200);

pub struct Progress {
    name: String,
    every: Option<Duration>,
    bar: Option<Bar>,
    last: (u64, Duration),
}

impl Progress {
    pub fn begin(name: &str, operations: Option<u64>, every: Option<Duration>) -> Progress {
        let bar = every.is_none().then(|| Bar::count(operations, format!("{name:<16}")));
        Progress { name: name.to_owned(), every, bar, last: (0, Duration::ZERO) }
    }

    pub fn every(&self) -> Duration {
        self.every.unwrap_or(BAR_EVERY)
    }

    pub fn report(&mut self, operations: u64, elapsed: Duration) {
        if let Some(bar) = &self.bar {
            return bar.set_count(operations);
        }
        let (operations_before, before) = self.last;
        let per_second = |operations: u64, time: Duration| operations as f64 / time.as_secs_f64().max(1e-9);
        note!(
            "{}: {:.1} s, {} operations; {} /s recently, {} /s overall",
            self.name,
            elapsed.as_secs_f64(),
            show_count(operations),
            show_count(per_second(operations - operations_before, elapsed - before) as u64),
            show_count(per_second(operations, elapsed) as u64)
        );
        self.last = (operations, elapsed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}
