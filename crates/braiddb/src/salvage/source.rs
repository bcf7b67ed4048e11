//! Iterates the entries of a run or of the log in order, past damage.

use super::{
    losses::{Losses, Oracle, Shadow, loss, lost_key},
    plan::{KeyRange, PlannedRun, within},
    report::{Loss, LossKind},
};
use crate::{
    base::{EntryKind, EntryRef, Result, SequenceNumber},
    table::{DamagedRun, Opened, Step, TableContext},
    view::View,
};
use std::{ops::Range, sync::Arc};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    pub key: Vec<u8>,
    pub sequence: SequenceNumber,
    pub kind: EntryKind,
    pub value: Vec<u8>,
}

impl LoggedEntry {
    pub fn entry(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, sequence: self.sequence, kind: self.kind, value: &self.value }
    }
}

#[derive(Debug)]
pub enum Source {
    Run(Box<RunSource>),
    Log(std::vec::IntoIter<LoggedEntry>),
}

impl Source {
    pub fn entry(&self) -> Option<EntryRef<'_>> {
        match self {
            Source::Run(run) => run.entry(),
            Source::Log(entries) => entries.as_slice().first().map(LoggedEntry::entry),
        }
    }

    pub fn advance(&mut self, losses: &mut Losses) {
        match self {
            Source::Run(run) => run.advance(losses),
            Source::Log(entries) => drop(entries.next()),
        }
    }
}

#[derive(Debug)]
struct Pending {
    range: Range<u64>,
    entries: Option<u64>,
    blocks: Range<u16>,
    detail: String,
}

#[derive(Debug)]
pub struct RunSource {
    run: DamagedRun,
    planned: PlannedRun,
    context: TableContext,
    slot: u16,
    count: u16,
    is_at_end: bool,
    last_key: Option<Vec<u8>>,
    pending: Option<Pending>,
    range: usize,
}

impl RunSource {
    pub fn open(context: &TableContext, planned: &PlannedRun, losses: &mut Losses) -> Result<Option<RunSource>> {
        let opened = DamagedRun::open(context, &planned.path, planned.number, planned.listed.as_ref())?;
        let Opened::Run(mut run) = opened else {
            losses.add(loss(LossKind::Records, &planned.path, "it can be read no more"));
            return Ok(None);
        };
        run.give_sequence(planned.given);
        let mut source = RunSource {
            run: *run,
            planned: planned.clone(),
            context: context.clone(),
            slot: 0,
            count: 0,
            is_at_end: false,
            last_key: None,
            pending: None,
            range: 0,
        };
        source.skip_to_intact(losses);
        Ok(Some(source))
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        if self.is_at_end { None } else { self.run.entry(self.slot) }
    }

    fn advance(&mut self, losses: &mut Losses) {
        if let Some(entry) = self.run.entry(self.slot).filter(|_| self.count > 0) {
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(entry.key);
        }
        self.slot += 1;
        self.skip_to_intact(losses);
    }

    fn skip_to_intact(&mut self, losses: &mut Losses) {
        loop {
            if self.slot < self.count {
                if self.counts() {
                    return;
                }
                self.slot += 1;
                continue;
            }
            match self.run.step() {
                Step::Block => {
                    (self.slot, self.count) = (0, self.run.entries());
                    if let Some(pending) = self.pending.take() {
                        let next = self.run.entry(0).map(|entry| entry.key.to_vec());
                        self.lose(pending, next, losses);
                    }
                }
                Step::Lost { range, entries, blocks, detail } => match &mut self.pending {
                    Some(pending) => {
                        pending.range.end = range.end;
                        pending.blocks.end = blocks.end;
                        pending.entries = pending.entries.zip(entries).map(|(a, b)| a + b);
                    }
                    None => self.pending = Some(Pending { range, entries, blocks, detail }),
                },
                Step::End => {
                    (self.is_at_end, self.slot, self.count) = (true, 0, 0);
                    if let Some(pending) = self.pending.take() {
                        let last = self.run_meta().map(|meta| meta.largest.clone());
                        self.lose(pending, last, losses);
                    }
                    return;
                }
            }
        }
    }

    fn run_meta(&self) -> Option<&crate::table::RunMeta> {
        self.run.meta().or(self.planned.listed.as_ref())
    }

    fn counts(&mut self) -> bool {
        let Some(allowed) = &self.planned.allowed else { return true };
        let Some(entry) = self.run.entry(self.slot) else { return false };
        while allowed.get(self.range).and_then(|(_, end)| end.as_deref()).is_some_and(|end| entry.key >= end) {
            self.range += 1;
        }
        let counts = allowed.get(self.range).is_some_and(|(start, _)| entry.key >= start.as_slice());
        if !counts {
            // It is still the lower bound of blocks lost after it.
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(entry.key);
        }
        counts
    }

    /// `next` is the upper bound of the lost keys.
    fn lose(&self, pending: Pending, next: Option<Vec<u8>>, losses: &mut Losses) {
        let meta = self.run_meta();
        if meta
            .is_some_and(|meta| pending.range.is_empty() && meta.largest == self.last_key.clone().unwrap_or_default())
        {
            return;
        }
        let smallest = meta.map(|meta| meta.smallest.clone()).unwrap_or_default();
        let first = self.last_key.clone().unwrap_or(smallest);
        let everywhere: [KeyRange; 1] = [(Vec::new(), None)];
        let allowed = self.planned.allowed.as_deref().unwrap_or(&everywhere);
        let parts = within(allowed, &first, next.as_deref());
        let oracle = self.oracle(&pending);
        for (start, end) in &parts {
            let what = loss(LossKind::Records, &self.planned.path, pending.detail.clone());
            losses.add(Loss {
                offset: Some(pending.range.start),
                bytes: Some(pending.range.end - pending.range.start).filter(|&bytes| bytes > 0),
                from: lost_key(start),
                to: end.as_deref().and_then(lost_key),
                commits: meta.map(|meta| (meta.min_sequence, meta.max_sequence)).filter(|(_, last)| *last > 0),
                records: pending.entries.filter(|_| parts.len() == 1),
                ..what
            });
            let max_sequence = match (meta, end) {
                (Some(meta), _) => meta.max_sequence.max(self.planned.given),
                (None, Some(_)) => SequenceNumber::MAX,
                // An unbounded shadow would put all following keys in doubt.
                (None, None) => continue,
            };
            losses.cast(Shadow {
                start: start.clone(),
                is_start_known: self.last_key.as_ref() == Some(start),
                end: end.clone(),
                max_sequence,
                oracle: oracle.clone(),
                path: self.planned.path.clone(),
            });
        }
    }

    fn oracle(&self, pending: &Pending) -> Option<Oracle> {
        let run = self.run.indexed().filter(|_| !pending.blocks.is_empty())?;
        let view = View::open_embedded(&self.context, run).ok()?;
        Some(Oracle::Blocks(view, Arc::clone(run), vec![pending.blocks.clone()]))
    }
}
