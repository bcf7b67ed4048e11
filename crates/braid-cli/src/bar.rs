//! Progress bars with rate and remaining time, on terminals only.

use std::{borrow::Cow, fmt};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::notation::show_rate;

pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    pub fn bytes(length: Option<u64>, what: &'static str) -> Bar {
        let template = match length {
            Some(_) => "{prefix} {bar:32} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left, {msg}",
            None => "{prefix} {spinner} {bytes} {bytes_per_sec}, {msg}",
        };
        Bar::new(length, what, template)
    }

    pub fn count(length: Option<u64>, what: impl Into<Cow<'static, str>>) -> Bar {
        let template = match length {
            Some(_) => "{prefix} {bar:32} {human_pos}/{human_len} {rate}, {eta} left",
            None => "{prefix} {spinner} {human_pos} {rate}",
        };
        Bar::new(length, what, template)
    }

    fn new(length: Option<u64>, what: impl Into<Cow<'static, str>>, template: &str) -> Bar {
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
                let _ = write!(out, "{}/s", show_rate(state.per_sec()));
            };
            bar.set_style(style.with_key("rate", rate).progress_chars("█▉▊▋▌▍▎▏ "));
        }
        bar.set_prefix(what);
        Bar { bar }
    }

    pub fn set(&self, bytes: u64, records: u64) {
        self.bar.set_position(bytes);
        if !self.bar.is_hidden() {
            self.bar.set_message(crate::notation::show_counted(records, "record"));
        }
    }

    pub fn set_bytes(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    pub fn set_length(&self, length: u64) {
        self.bar.set_length(length);
    }

    pub fn set_count(&self, count: u64) {
        self.bar.set_position(count);
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
