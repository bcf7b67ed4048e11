//! Explains a get: runs it with an observer that notes each step.

use super::{
    healing,
    point_read::{self, Unresolved},
};
use crate::{
    base::{FoundEntry, FoundKind, ReadStep, ReadTrace, Result, SequenceNumber, TreeId},
    db::engine::{key::KeyBuf, read_hold::Hold, root::Engine},
    platform::{Runtime, SystemTime, moment_of},
    read::{self, LookupKey},
    view::FastGet,
};
use std::{cell::RefCell, fmt, time::Duration};

/// The steps of a get: see [`Tree::explain`](crate::Tree::explain).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explain {
    /// The last commit visible to it.
    pub sequence: SequenceNumber,
    /// The steps, in order.
    pub steps: Vec<ExplainedStep>,
    /// The result.
    pub outcome: Outcome,
    /// The time of all steps. A plain get is faster: it does not read the clock.
    pub took: Duration,
}

/// A step with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainedStep {
    /// The step.
    pub step: ReadStep,
    /// Its time, since the step before.
    pub took: Duration,
}

/// The result of an explained get.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// There is no visible version, or merges have dropped the deleted ones.
    Absent,
    /// The newest visible version is a tombstone.
    Deleted {
        /// The commit of the tombstone.
        sequence: SequenceNumber,
        /// It deletes a range of keys.
        is_range: bool,
    },
    /// The value has expired.
    Expired {
        /// The commit that wrote it.
        sequence: SequenceNumber,
        /// When it expired.
        expires: SystemTime,
        /// Where it is.
        place: FoundPlace,
    },
    /// There is a value.
    Found {
        /// The commit that wrote it; with merge operands, that of the newest.
        sequence: SequenceNumber,
        /// Its bytes.
        bytes: u64,
        /// When it expires.
        expires: Option<SystemTime>,
        /// Where it, or its reference, is.
        place: FoundPlace,
    },
}

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FoundPlace {
    /// A memtable: 0 takes writes, then frozen ones, newest first.
    Memtable(usize),
    /// The run with this number.
    Run(u64),
}

/// Notes steps with their times.
struct Recorder<'e> {
    runtime: &'e dyn Runtime,
    noted: RefCell<Noted>,
}

#[derive(Default)]
struct Noted {
    steps: Vec<ExplainedStep>,
    last_ns: u64,
}

impl<'e> Recorder<'e> {
    fn new(runtime: &'e dyn Runtime) -> Recorder<'e> {
        Recorder { runtime, noted: RefCell::default() }
    }

    fn restart(&self) {
        *self.noted.borrow_mut() = Noted { steps: Vec::new(), last_ns: self.runtime.monotonic_ns() };
    }
}

impl ReadTrace for &Recorder<'_> {
    fn note(self, step: impl FnOnce() -> ReadStep) {
        let now_ns = self.runtime.monotonic_ns();
        let step = step();
        let mut noted = self.noted.borrow_mut();
        let took = Duration::from_nanos(now_ns.saturating_sub(noted.last_ns));
        noted.steps.push(ExplainedStep { step, took });
        // Not the time of the note.
        noted.last_ns = self.runtime.monotonic_ns();
    }

    fn look<R>(self, look: impl FnOnce() -> R) -> Option<R> {
        let before_ns = self.runtime.monotonic_ns();
        let seen = look();
        self.noted.borrow_mut().last_ns += self.runtime.monotonic_ns().saturating_sub(before_ns);
        Some(seen)
    }
}

/// Runs a get of the latest value, or at a snapshot, and returns its steps.
pub fn explain(engine: &Engine, tree: TreeId, key: &[u8], snapshot: Option<&Hold>) -> Result<Explain> {
    engine.health.check_open()?;
    let whole = KeyBuf::new(tree, key);
    let recorder = Recorder::new(&*engine.settings.runtime);
    let explained = healing::retry(engine, || {
        recorder.restart();
        if snapshot.is_none() {
            try_fast_path(engine, tree, key, &recorder);
        }
        let (state, sequence) = engine.state_for(snapshot)?;
        let found = {
            let guard = crossbeam_epoch::pin();
            let lookup = LookupKey::of_parts(&whole, tree.first_key(), key);
            let entry = read::get_with(&state, lookup, sequence, true, &guard, &recorder)?;
            entry.map(|entry| (FoundEntry::of(&entry), Unresolved::of(&entry)))
        };
        let outcome = match found {
            None => outcome_of_absent(&recorder.noted.borrow().steps),
            Some((entry, unresolved)) => {
                let place = place_of(&recorder.noted.borrow().steps, &entry);
                let (now_us, own_end_us) = (point_read::time_of(engine, snapshot), unresolved.expires_us());
                let step = unresolved.reading_step();
                let resolved = point_read::resolve_with_end(engine, &state, unresolved, now_us)?;
                let bytes = resolved.as_ref().map_or(0, |(value, _)| value.len() as u64);
                if let (Some(step), true) = (step, resolved.is_some()) {
                    recorder.note(|| step(bytes));
                }
                match resolved {
                    Some((_, expires_us)) => {
                        Outcome::Found { sequence: entry.sequence, bytes, expires: expires_us.map(moment_of), place }
                    }
                    None => Outcome::Expired {
                        sequence: entry.sequence,
                        expires: moment_of(own_end_us.unwrap_or_default()),
                        place,
                    },
                }
            }
        };
        Ok((sequence, outcome))
    });
    let (sequence, outcome) = explained.map_err(|e| engine.catalog.with_tree(e, &whole))?;
    let steps = recorder.noted.into_inner().steps;
    let took = steps.iter().map(|step| step.took).sum();
    Ok(Explain { sequence, steps, outcome, took })
}

/// Runs the fast path, as [`point_read::get_now`] does.
fn try_fast_path(engine: &Engine, tree: TreeId, key: &[u8], recorder: &Recorder<'_>) {
    let Some(state) = engine.cell.fast_state.borrow() else { return };
    let answer = point_read::fast_get(engine, &state, tree, key);
    let is_answered = !matches!(answer, FastGet::Unknown);
    recorder.note(|| ReadStep::FastPath { is_answered });
}

fn outcome_of_absent(steps: &[ExplainedStep]) -> Outcome {
    let deleted = |step: &ExplainedStep| match step.step {
        ReadStep::Memtable { found, covered_by, .. } => newest(found, covered_by),
        ReadStep::Compared { found } => newest(found, None),
        ReadStep::Partition { covered_by, .. } => newest(None, covered_by),
        _ => None,
    };
    let deleted = steps.iter().filter_map(deleted).max_by_key(|(sequence, _)| *sequence);
    deleted.map_or(Outcome::Absent, |(sequence, is_range)| Outcome::Deleted { sequence, is_range })
}

/// Returns the newest deletion, and whether it deletes a range.
fn newest(found: Option<FoundEntry>, covered_by: Option<SequenceNumber>) -> Option<(SequenceNumber, bool)> {
    let tombstone = found.filter(|found| found.kind == FoundKind::Tombstone).map(|found| (found.sequence, false));
    tombstone.max(covered_by.map(|sequence| (sequence, true)))
}

fn place_of(steps: &[ExplainedStep], entry: &FoundEntry) -> FoundPlace {
    let mut place = FoundPlace::Memtable(0);
    let mut last_run = 0;
    for step in steps {
        match &step.step {
            ReadStep::Memtable { position, found: Some(found), .. } if found == entry => {
                place = FoundPlace::Memtable(*position);
            }
            ReadStep::Block { run, .. } => last_run = *run,
            ReadStep::Compared { found: Some(found) } if found == entry => place = FoundPlace::Run(last_run),
            _ => {}
        }
    }
    place
}

impl fmt::Display for FoundPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FoundPlace::Memtable(0) => f.write_str("the active memtable"),
            FoundPlace::Memtable(position) => write!(f, "frozen memtable {position}"),
            FoundPlace::Run(number) => write!(f, "run {number}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Absent => f.write_str("absent"),
            Outcome::Deleted { sequence, is_range: false } => write!(f, "deleted by commit {sequence}"),
            Outcome::Deleted { sequence, is_range: true } => write!(f, "deleted with a range by commit {sequence}"),
            Outcome::Expired { sequence, place, .. } => write!(f, "expired: commit {sequence}, in {place}"),
            Outcome::Found { sequence, bytes, place, .. } => {
                write!(f, "found: {bytes} bytes of commit {sequence}, in {place}")
            }
        }
    }
}

impl fmt::Display for Explain {
    /// A line for each step with its time, then the result.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ExplainedStep { step, took } in &self.steps {
            writeln!(f, "{:>9}  {step}", format!("{took:.1?}"))?;
        }
        write!(f, "{:>9}  {}", format!("{:.1?}", self.took), self.outcome)
    }
}
