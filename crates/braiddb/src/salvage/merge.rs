//! Merges all sources key by key into records.
//!
//! The version with the highest sequence number counts. Merge operands are stacked down to their
//! base, so no merge function is needed. A source is opened only once its first key is due, so the
//! overlapping runs bound memory.

use super::{
    losses::{Losses, Shade},
    plan::PlannedRun,
    report::LossKind,
    source::{LoggedEntry, RunSource, Source},
};
use crate::{
    base::{Content, EntryKind, EntryRef, RangeTombstoneSet, Result, SequenceNumber},
    codec::{Base, Operands},
    table::TableContext,
};
use std::{cmp::Ordering, collections::BinaryHeap, path::PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Vec<u8>,
    pub sequence: SequenceNumber,
    pub kind: EntryKind,
    pub value: Vec<u8>,
    pub beneath: Option<Version>,
    /// Other entries of this version (or of the base): the log has the blob reference from before a
    /// merge moved the value.
    pub copies: Vec<(EntryKind, Vec<u8>)>,
}

pub type Version = (SequenceNumber, EntryKind, Vec<u8>);

#[derive(Debug, PartialEq, Eq)]
struct Head {
    key: Vec<u8>,
    sequence: SequenceNumber,
    source: usize,
}

impl Ord for Head {
    /// Max-heap: the smallest key and its newest version first.
    fn cmp(&self, other: &Head) -> Ordering {
        let by_key = other.key.cmp(&self.key).then(self.sequence.cmp(&other.sequence));
        by_key.then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub struct Merge {
    context: TableContext,
    /// The smallest key last.
    waiting: Vec<PlannedRun>,
    sources: Vec<Option<Source>>,
    heap: BinaryHeap<Head>,
    tombstones: RangeTombstoneSet,
    now_us: u64,
    keep_stale: bool,
    pub entries: u64,
    /// Highest number of valid runs if their list is uncertain. The base of their operands may have
    /// been deleted since.
    unsure: Option<(SequenceNumber, PathBuf)>,
}

#[derive(Debug, Default)]
struct Versions {
    newest: Option<Version>,
    operands: Vec<(SequenceNumber, Vec<u8>)>,
    beneath: Option<Version>,
    copies: Vec<(EntryKind, Vec<u8>)>,
    reached: SequenceNumber,
    is_done: bool,
    is_founded: bool,
    /// The last operands contain their base.
    is_founded_inline: bool,
}

impl Versions {
    fn add(&mut self, version: Option<Gathered>, deleted: SequenceNumber) {
        let Some(Gathered { version: (sequence, kind, value), copies }) = version else { return };
        let entry = EntryRef { key: &[], sequence, kind, value: &value };
        if self.is_done || (self.newest.is_some() && entry.sequence >= self.reached) {
            return;
        }
        let is_deleted = entry.sequence < deleted || entry.kind == EntryKind::Tombstone;
        if is_deleted {
            (self.is_done, self.is_founded) = (true, true);
            return;
        }
        let version = (sequence, kind, value.clone());
        let operands = Operands::decode(entry.value).filter(|_| entry.kind == EntryKind::Merge);
        match (operands, self.newest.is_none()) {
            (Some(operands), _) => {
                self.reached = entry.sequence.saturating_sub(operands.reach);
                self.is_done = operands.base != Base::Beneath;
                (self.is_founded, self.is_founded_inline) = (self.is_done, self.is_done);
                self.operands.push((entry.sequence, entry.value.to_vec()));
                self.newest.get_or_insert(version);
            }
            (None, true) => {
                (self.newest, self.is_done, self.copies) = (Some(version), true, copies);
            }
            (None, false) => {
                (self.beneath, self.is_done, self.is_founded, self.copies) = (Some(version), true, true, copies);
            }
        }
    }

    fn is_doubtful(&self, shade: &Shade) -> bool {
        let Some((newest, ..)) = &self.newest else { return false };
        if *newest < shade.newest_above {
            return true;
        }
        let Some((last, _)) = self.operands.last() else { return false };
        if self.is_founded_inline && self.operands.len() == 1 {
            return false;
        }
        let lowest = self.beneath.as_ref().map_or(*last, |(sequence, ..)| *sequence);
        lowest < shade.whole_above || (!self.is_founded && shade.whole_above > 0)
    }

    fn record(self, key: Vec<u8>, now_us: u64) -> Option<Record> {
        let (sequence, kind, value) = self.newest?;
        if has_expired(kind, &value, now_us) {
            return None;
        }
        if self.operands.is_empty() {
            return Some(Record { key, sequence, kind, value, beneath: None, copies: self.copies });
        }
        let beneath = self.beneath.filter(|(_, kind, value)| !has_expired(*kind, value, now_us));
        let value = piled_up(&self.operands, beneath.is_none())?;
        Some(Record { key, sequence, kind, value, beneath, copies: self.copies })
    }
}

#[derive(Debug)]
struct Gathered {
    version: Version,
    copies: Vec<(EntryKind, Vec<u8>)>,
}

impl Gathered {
    /// Adds another entry of the same version. The one that covers more operands wins: a run may
    /// have the log's operand combined with older ones or the base.
    fn take_in(&mut self, entry: &EntryRef<'_>) {
        let (_, kind, value) = &mut self.version;
        match weight(entry.kind, entry.value).cmp(&weight(*kind, value)) {
            Ordering::Greater => {
                (*kind, *value) = (entry.kind, entry.value.to_vec());
                self.copies.clear();
            }
            Ordering::Equal if (*kind, value.as_slice()) != (entry.kind, entry.value) => {
                self.copies.push((entry.kind, entry.value.to_vec()));
            }
            _ => {}
        }
    }
}

fn weight(kind: EntryKind, value: &[u8]) -> (u8, u64) {
    match Operands::decode(value).filter(|_| kind == EntryKind::Merge) {
        None => (2, 0),
        Some(operands) => (u8::from(operands.base != Base::Beneath), operands.reach),
    }
}

fn piled_up(lists: &[(SequenceNumber, Vec<u8>)], is_on_nothing: bool) -> Option<Vec<u8>> {
    let ((sequence, oldest), newer) = lists.split_last()?;
    let mut piled = oldest.clone();
    let lowest = sequence.saturating_sub(Operands::decode(&piled)?.reach);
    for (sequence, list) in newer.iter().rev() {
        piled = Operands::decode(list)?.on_top_of(&Operands::decode(&piled)?, sequence - lowest);
    }
    let operands = Operands::decode(&piled)?;
    let is_absent = is_on_nothing && operands.base == Base::Beneath;
    Some(if is_absent { operands.on(Base::Absent) } else { piled })
}

fn has_expired(kind: EntryKind, value: &[u8], now_us: u64) -> bool {
    Content::of(kind, value).and_then(|content| content.expires_us).is_some_and(|expires| expires <= now_us)
}

impl Merge {
    pub fn new(
        context: TableContext,
        mut runs: Vec<PlannedRun>,
        logged: Vec<LoggedEntry>,
        tombstones: RangeTombstoneSet,
        now_us: u64,
        keep_stale: bool,
        unsure: Option<(SequenceNumber, PathBuf)>,
    ) -> Merge {
        runs.sort_by(|a, b| b.smallest.cmp(&a.smallest));
        let (sources, heap) = (Vec::new(), BinaryHeap::new());
        let mut merge =
            Merge { context, waiting: runs, sources, heap, tombstones, now_us, keep_stale, entries: 0, unsure };
        merge.add(Source::Log(logged.into_iter()));
        merge
    }

    fn add(&mut self, source: Source) {
        self.sources.push(Some(source));
        self.push(self.sources.len() - 1);
    }

    fn push(&mut self, source: usize) {
        let Some(place) = self.sources.get_mut(source) else { return };
        match place.as_ref().and_then(Source::entry) {
            Some(entry) => {
                let (key, sequence) = (entry.key.to_vec(), entry.sequence);
                self.heap.push(Head { key, sequence, source });
            }
            None => *place = None,
        }
    }

    fn open_due(&mut self, losses: &mut Losses) -> Result<()> {
        while let Some(run) = self.waiting.last() {
            if self.heap.peek().is_some_and(|head| head.key < run.smallest) {
                break;
            }
            let Some(run) = self.waiting.pop() else { break };
            if let Some(source) = RunSource::open(&self.context, &run, losses)? {
                self.add(Source::Run(Box::new(source)));
            }
        }
        Ok(())
    }

    pub fn peek(&mut self, losses: &mut Losses) -> Result<Option<&[u8]>> {
        self.open_due(losses)?;
        Ok(self.heap.peek().map(|head| head.key.as_slice()))
    }

    /// Returns the next key's record, if it has one; `None` at the end.
    pub fn take(&mut self, losses: &mut Losses) -> Result<Option<Option<Record>>> {
        self.open_due(losses)?;
        let Some(key) = self.heap.peek().map(|head| head.key.clone()) else { return Ok(None) };
        let deleted = self.tombstones.newest_covering(&key, SequenceNumber::MAX);
        let (mut versions, mut gathered) = (Versions::default(), None::<Gathered>);
        while self.heap.peek().is_some_and(|head| head.key == key) {
            let Some(head) = self.heap.pop() else { break };
            self.entries += 1;
            if let Some(source) = self.sources.get_mut(head.source).and_then(Option::as_mut) {
                if let Some(entry) = source.entry() {
                    match &mut gathered {
                        Some(same) if same.version.0 == entry.sequence => same.take_in(&entry),
                        _ => {
                            let version = (entry.sequence, entry.kind, entry.value.to_vec());
                            let next = Gathered { version, copies: Vec::new() };
                            versions.add(gathered.replace(next), deleted);
                        }
                    }
                }
                source.advance(losses);
            }
            self.push(head.source);
            self.open_due(losses)?;
        }
        versions.add(gathered, deleted);
        let mut shade = losses.shade(&key);
        if let Some((sequence, path)) = &self.unsure {
            shade.whole_above = shade.whole_above.max(sequence.saturating_add(1));
            if shade.newest_above == 0 {
                shade.path.clone_from(path);
            }
        }
        if versions.is_doubtful(&shade) {
            if !self.keep_stale {
                let detail = "a newer version of the record may be gone";
                losses.doubt(LossKind::Withheld, &shade, &key, detail);
                return Ok(Some(None));
            }
            let detail = "a newer version of the record may be gone: this one was kept";
            losses.doubt(LossKind::Stale, &shade, &key, detail);
        }
        Ok(Some(versions.record(key, self.now_us)))
    }
}
