//! Edits: the changes from one version to the next, and their encoding.
//!
//! The changes of an edit take effect together. Each is a tag byte and its fields. Numbers are
//! varints, keys are length-prefixed. Tags are never reused:
//!
//! | tag | change | fields |
//! |---|---|---|
//! | 1 | `NewRun` | run meta |
//! | 2 | `NewPartition` | id, start, has end (0/1), end |
//! | 3 | `DropPartition` | id |
//! | 4 | `AddLoose` | partition id, run number |
//! | 5 | `SetRuns` | partition id, run count and numbers in view order, unindexed count and numbers oldest first, has view (0/1), view meta |
//! | 6 | `Flushed` | sequence: everything up to it is in runs |
//! | 7 | `Log` | oldest segment needed, durable LSN |
//! | 8 | `NextFile` | every lower file number may have been used |
//! | 9 | `LastSequence` | every sequence number up to it may have been used |
//! | 10 | `Incarnation` | random id of the database, drawn at creation and at restore |
//! | 11 | `Epoch` | the log epoch (see `wal/format.rs`) in force |
//! | 12 | `NewRun` with entries that expire | run meta, expiries |
//! | 13 | `Time` | database time, and its lead over the wall clock; microseconds |

use crate::{
    base::{FileNumber, SequenceNumber},
    codec::{ByteReader, put_bytes, put_varint},
    table::{Expiries, RunMeta},
    view::ViewMeta,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    NewRun(Box<RunMeta>),
    NewPartition {
        /// Never reused.
        id: u64,
        start: Vec<u8>,
        end: Option<Vec<u8>>,
    },
    DropPartition(u64),
    AddLoose {
        partition: u64,
        run: FileNumber,
    },
    /// Replaces all runs and the view.
    SetRuns {
        partition: u64,
        /// By selector of the view.
        runs: Vec<FileNumber>,
        loose: Vec<FileNumber>,
        view: Option<Box<ViewMeta>>,
    },
    Flushed(SequenceNumber),
    Log {
        oldest_segment: FileNumber,
        /// Synced length of the log.
        durable_lsn: u64,
    },
    NextFile(FileNumber),
    LastSequence(SequenceNumber),
    Incarnation(u64),
    Epoch(u64),
    Time {
        /// Microseconds since 1970. Never goes back.
        now_us: u64,
        ahead_us: u64,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    pub changes: Vec<Change>,
}

impl Edit {
    pub fn new(changes: Vec<Change>) -> Edit {
        Edit { changes }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for change in &self.changes {
            change.encode(&mut out);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Edit> {
        let mut reader = ByteReader::new(bytes);
        let mut changes = Vec::new();
        while !reader.is_at_end() {
            changes.push(Change::decode(&mut reader)?);
        }
        Some(Edit { changes })
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[FileNumber]) {
    put_varint(out, numbers.len() as u64);
    for &number in numbers {
        put_varint(out, number);
    }
}

fn read_numbers(reader: &mut ByteReader<'_>) -> Option<Vec<FileNumber>> {
    let count = usize::try_from(reader.varint()?).ok()?;
    if count > reader.remaining() {
        return None;
    }
    (0..count).map(|_| reader.varint()).collect()
}

fn read_flag(reader: &mut ByteReader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

impl Change {
    fn encode(&self, out: &mut Vec<u8>) {
        let tagged = |out: &mut Vec<u8>, tag: u8, numbers: &[u64]| {
            out.push(tag);
            numbers.iter().for_each(|&n| put_varint(out, n));
        };
        match self {
            Change::NewRun(meta) => {
                let expires = !meta.expiries.is_empty();
                out.push(if expires { 12 } else { 1 });
                meta.encode(out);
                if expires {
                    meta.expiries.encode(out);
                }
            }
            Change::NewPartition { id, start, end } => {
                tagged(out, 2, &[*id]);
                put_bytes(out, start);
                out.push(u8::from(end.is_some()));
                if let Some(end) = end {
                    put_bytes(out, end);
                }
            }
            Change::DropPartition(id) => tagged(out, 3, &[*id]),
            Change::AddLoose { partition, run } => tagged(out, 4, &[*partition, *run]),
            Change::SetRuns { partition, runs, loose, view } => {
                tagged(out, 5, &[*partition]);
                put_numbers(out, runs);
                put_numbers(out, loose);
                out.push(u8::from(view.is_some()));
                if let Some(view) = view {
                    view.encode(out);
                }
            }
            Change::Flushed(sequence) => tagged(out, 6, &[*sequence]),
            Change::Log { oldest_segment, durable_lsn } => tagged(out, 7, &[*oldest_segment, *durable_lsn]),
            Change::NextFile(number) => tagged(out, 8, &[*number]),
            Change::LastSequence(sequence) => tagged(out, 9, &[*sequence]),
            Change::Incarnation(id) => tagged(out, 10, &[*id]),
            Change::Epoch(epoch) => tagged(out, 11, &[*epoch]),
            Change::Time { now_us, ahead_us } => tagged(out, 13, &[*now_us, *ahead_us]),
        }
    }

    fn decode(reader: &mut ByteReader<'_>) -> Option<Change> {
        Some(match reader.u8()? {
            1 => Change::NewRun(Box::new(RunMeta::decode(reader)?)),
            2 => {
                let id = reader.varint()?;
                let start = reader.bytes()?.to_vec();
                let end = if read_flag(reader)? { Some(reader.bytes()?.to_vec()) } else { None };
                Change::NewPartition { id, start, end }
            }
            3 => Change::DropPartition(reader.varint()?),
            4 => Change::AddLoose { partition: reader.varint()?, run: reader.varint()? },
            5 => {
                let partition = reader.varint()?;
                let runs = read_numbers(reader)?;
                let loose = read_numbers(reader)?;
                let view = if read_flag(reader)? { Some(Box::new(ViewMeta::decode(reader)?)) } else { None };
                Change::SetRuns { partition, runs, loose, view }
            }
            6 => Change::Flushed(reader.varint()?),
            7 => Change::Log { oldest_segment: reader.varint()?, durable_lsn: reader.varint()? },
            8 => Change::NextFile(reader.varint()?),
            9 => Change::LastSequence(reader.varint()?),
            10 => Change::Incarnation(reader.varint()?),
            11 => Change::Epoch(reader.varint()?),
            12 => {
                let meta = RunMeta::decode(reader)?;
                let expiries = Expiries::decode(reader).filter(|expiries| expiries.entries <= meta.entries)?;
                Change::NewRun(Box::new(RunMeta { expiries, ..meta }))
            }
            13 => Change::Time { now_us: reader.varint()?, ahead_us: reader.varint()? },
            _ => return None,
        })
    }
}
