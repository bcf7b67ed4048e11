//! Notable events of the database, for the page: errors, waits, backups, long work.

use braiddb::events::Event;
use serde::Serialize;
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Events kept of each class: frequent ones do not push rare ones out.
const DAMAGE_MAX: usize = 30;
const FAILURES_MAX: usize = 30;
const OTHERS_MAX: usize = 40;
/// Flushes and merges of less time are routine.
const LONG: Duration = Duration::from_secs(2);

/// The latest notable events of a database.
///
/// ```
/// use braid_server::{Journal, Options};
///
/// # fn main() -> braiddb::Result<()> {
/// let journal = Journal::default();
/// let listener = journal.clone();
/// let db = braiddb::Db::builder().on_event(move |event| listener.note(event)).open_in_memory()?;
/// let options = Options::new().journal(journal);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<VecDeque<Noted>>>);

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

/// An event in `GET /stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Noted {
    /// The time of the latest of them.
    time_us: u64,
    kind: &'static str,
    text: String,
    /// Events of this kind in succession.
    count: u64,
}

impl Journal {
    /// Keeps an event if it is notable. Successive ones of a kind become one entry.
    pub fn note(&self, event: &Event) {
        let Some((kind, text)) = notable(event) else { return };
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let time_us = crate::monitor::now_us();
        let class = Class::of(kind);
        // Each damaged place counts.
        let is_same = |last: &Noted| last.kind == kind && (last.text == text || class != Class::Damage);
        if let Some(last) = entries.back_mut().filter(|last| is_same(last)) {
            let count = last.count + 1;
            *last = Noted { time_us, kind, text, count };
            return;
        }
        let is_of_class = |noted: &Noted| Class::of(noted.kind) == class;
        if entries.iter().filter(|noted| is_of_class(noted)).count() == class.events_max()
            && let Some(oldest) = entries.iter().position(is_of_class)
        {
            entries.remove(oldest);
        }
        entries.push_back(Noted { time_us, kind, text, count: 1 });
    }

    pub(crate) fn entries(&self) -> Vec<Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Damage,
    Failures,
    Others,
}

impl Class {
    fn of(kind: &str) -> Class {
        match kind {
            "damage" | "failed" => Class::Damage,
            "background_error" | "flush_failed" | "disk_full" | "backup_failed" | "archive_failed" | "lost" => {
                Class::Failures
            }
            _ => Class::Others,
        }
    }

    fn events_max(self) -> usize {
        match self {
            Class::Damage => DAMAGE_MAX,
            Class::Failures => FAILURES_MAX,
            Class::Others => OTHERS_MAX,
        }
    }
}

/// Returns the kind and a sentence; `None` for routine.
fn notable(event: &Event) -> Option<(&'static str, String)> {
    Some(match event {
        Event::FlushEnd { took, is_done: true } if *took >= LONG => ("flush", format!("a flush took {took:.1?}")),
        Event::FlushEnd { is_done: false, .. } => ("flush_failed", "a flush failed and is tried again".to_owned()),
        Event::MergeEnd { partition, kind, took, is_done: true } if *took >= LONG => {
            ("merge", format!("partition {partition}: {kind:?} took {took:.1?}"))
        }
        Event::StallEnd { took } => ("stall", format!("a writer waited {took:.1?} for a flush")),
        Event::ThrottleBegin => ("throttle", "writers are throttled: flushes and merges fall behind".to_owned()),
        Event::ThrottleEnd => ("throttle_end", "writers are not throttled any more".to_owned()),
        Event::BackgroundError { error } => ("background_error", format!("background work failed: {error}")),
        Event::ReserveUsed => ("disk_full", "the disk is full, and the reserve is in use".to_owned()),
        Event::ReserveRefilled => ("disk_free", "the reserve is whole again".to_owned()),
        Event::Failed { reason } => ("failed", format!("the database takes no more writes: {reason}")),
        Event::ViewDamaged { file_number } => {
            ("damage", format!("the view {file_number} is damaged and will be rebuilt"))
        }
        Event::DamageFound { path, offset } => ("damage", format!("damage in {} at byte {offset}", path.display())),
        Event::ReaderOverstays { kind, sequence, age } => {
            ("long_reader", format!("a {kind} at commit {sequence} has been open for {age:.0?}"))
        }
        Event::ReaderExpired { kind, sequence, age } => {
            ("expired_reader", format!("a {kind} at commit {sequence} expired after {age:.0?}"))
        }
        Event::ArchiveFailed { error } => ("archive_failed", format!("the log archive cannot be written: {error}")),
        Event::BackupEnd { id: Some(id), took } => ("backup", format!("backup {id} is complete, after {took:.1?}")),
        Event::BackupEnd { id: None, took } => ("backup_failed", format!("a backup failed after {took:.1?}")),
        Event::Lost { count } => ("lost", format!("{count} events were dropped: the listener was too slow")),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notable_events_are_kept_and_successive_ones_joined() {
        let journal = Journal::default();
        journal.note(&Event::FlushBegin);
        journal.note(&Event::FlushEnd { took: Duration::from_millis(5), is_done: true });
        for millis in 1..=3 {
            journal.note(&Event::StallEnd { took: Duration::from_millis(millis) });
        }
        journal.note(&Event::BackgroundError { error: "no space".to_owned() });
        let kept = journal.entries();
        assert_eq!(
            kept.iter().map(|noted| (noted.kind, noted.count)).collect::<Vec<_>>(),
            [("stall", 3), ("background_error", 1)]
        );
        assert_eq!(kept[0].text, "a writer waited 3.0ms for a flush");
        throttles(&journal);
        assert_eq!(journal.entries().len(), OTHERS_MAX + 1);
    }

    fn throttles(journal: &Journal) {
        for number in 0..2 * OTHERS_MAX {
            journal.note(&if number % 2 == 0 { Event::ThrottleBegin } else { Event::ThrottleEnd });
        }
    }

    /// Writers that were throttled again and again pushed the damage out.
    #[test]
    fn damage_stays_beside_frequent_events() {
        let journal = Journal::default();
        let damage = |offset: usize| Event::DamageFound { path: "7.run".into(), offset: offset as u64 };
        journal.note(&damage(1));
        journal.note(&damage(2));
        journal.note(&damage(2));
        throttles(&journal);
        let of = |kind: &str| journal.entries().into_iter().filter(|noted| noted.kind == kind).collect::<Vec<_>>();
        assert_eq!(of("damage").iter().map(|noted| noted.count).collect::<Vec<_>>(), [1, 2]);
        // Much damage leaves room for the present.
        (0..2 * DAMAGE_MAX).for_each(|offset| journal.note(&damage(offset)));
        let kept = of("damage");
        assert_eq!((kept.len(), of("throttle").len()), (DAMAGE_MAX, OTHERS_MAX / 2));
        assert!(kept[DAMAGE_MAX - 1].text.ends_with(&format!("byte {}", 2 * DAMAGE_MAX - 1)));
    }
}
