//! Import in three stages: a reader thread, parser threads, and the calling thread, which writes.
//!
//! The reader makes a channel for each chunk's result, and queues the receiver for the writer and
//! the chunk for the parsers. So the writer gets results in input order. Both queues are bounded. A
//! writer that fails drops its queue, which ends reader and parsers.

use std::{
    io::{self, Read},
    sync::{
        Mutex,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, Result, anyhow};

use super::{
    format::RecordParser,
    index::{IndexSpec, index_keys},
    stages::Stages,
};
use crate::{
    dirt::{Dirt, Finding},
    input::{Chunk, ChunkSink, Place, Position, Row, RowReader, Stopped, read_archive, unreadable},
};

pub enum RecordSource {
    Rows(RowReader<Box<dyn Read + Send>>, Option<FirstRow>),
    Archive(Box<dyn Read + Send>, Place),
}

#[derive(Debug)]
pub struct FirstRow {
    raw: Vec<u8>,
    length: usize,
    position: Position,
    next_offset: u64,
}

impl FirstRow {
    pub fn of(row: &Row<'_>) -> FirstRow {
        FirstRow { raw: row.raw.to_vec(), length: row.length, position: row.position, next_offset: row.next_offset }
    }

    fn row(&self) -> Row<'_> {
        let FirstRow { raw, length, position, next_offset } = self;
        let (length, position, next_offset) = (*length, *position, *next_offset);
        Row { raw, length, position, next_offset, defect: None, why: String::new() }
    }
}

#[derive(Debug)]
pub struct ParsedRecord {
    pub number: u64,
    pub position: Position,
    pub next_offset: u64,
    pub place: Box<str>,
    pub findings: Vec<Finding>,
    pub ready: Option<ReadyRecord>,
    pub raw: Option<Box<[u8]>>,
}

#[derive(Debug)]
pub struct ReadyRecord {
    pub key: Vec<u8>,
    pub json: Vec<u8>,
    pub index_keys: Vec<(usize, String)>,
}

#[derive(Clone, Copy)]
pub struct Parsing<'a> {
    pub parser: &'a RecordParser,
    pub specs: &'a [IndexSpec],
    pub stages: &'a Stages,
    pub threads: usize,
}

type Parsed = Vec<ParsedRecord>;

/// Passes all records of the input to `consume`. If the reader fails, `consume` gets the records
/// before the error.
pub fn run(
    source: RecordSource,
    first_number: u64,
    parsing: Parsing<'_>,
    consume: &mut dyn FnMut(Parsed) -> Result<()>,
) -> Result<()> {
    let depth = parsing.threads * 2;
    let (chunk_sender, chunks) = mpsc::sync_channel::<(Chunk, SyncSender<Parsed>)>(depth);
    let (result_sender, results) = mpsc::sync_channel::<Receiver<Parsed>>(depth);
    let chunks = Mutex::new(chunks);
    thread::scope(|scope| {
        let reader = scope.spawn(move || read(source, first_number, parsing.stages, chunk_sender, result_sender));
        for _ in 0..parsing.threads {
            scope.spawn(|| parse_chunks(&chunks, parsing));
        }
        let consumed = consume_all(results, consume);
        let read = reader.join().map_err(|_| anyhow!("the reader thread panicked"))?;
        consumed.and(read.map_err(unreadable))
    })
}

fn consume_all(results: Receiver<Receiver<Parsed>>, consume: &mut dyn FnMut(Parsed) -> Result<()>) -> Result<()> {
    for result in results {
        let parsed = result.recv().context("a parser thread panicked")?;
        consume(parsed)?;
    }
    Ok(())
}

fn read(
    source: RecordSource,
    first_number: u64,
    stages: &Stages,
    chunk_sender: SyncSender<(Chunk, SyncSender<Parsed>)>,
    result_sender: SyncSender<Receiver<Parsed>>,
) -> io::Result<()> {
    let mut began = Instant::now();
    let mut sink = ChunkSink::new(first_number, |chunk: Chunk| {
        stages.read.worked(began, chunk.records.len() as u64, chunk.byte_count() as u64);
        let (sender, receiver) = mpsc::sync_channel(1);
        result_sender.send(receiver).map_err(|_| Stopped)?;
        chunk_sender.send((chunk, sender)).map_err(|_| Stopped)?;
        began = Instant::now();
        Ok(())
    });
    let result = match source {
        RecordSource::Archive(reader, offset) => read_archive(reader, offset, &mut sink),
        RecordSource::Rows(rows, first) => match first.map_or(Ok(()), |first| sink.push_row(&first.row())) {
            Ok(()) => read_rows(rows, &mut sink),
            Err(Stopped) => Ok(()),
        },
    };
    // Fails only if the writer has stopped, which returns its own error.
    let _ = sink.flush();
    result
}

fn read_rows<F>(mut rows: RowReader<Box<dyn Read + Send>>, sink: &mut ChunkSink<F>) -> io::Result<()>
where
    F: FnMut(Chunk) -> Result<(), Stopped>,
{
    while let Some(row) = rows.next_row()? {
        if sink.push_row(&row).is_err() {
            break;
        }
    }
    Ok(())
}

fn parse_chunks(chunks: &Mutex<Receiver<(Chunk, SyncSender<Parsed>)>>, parsing: Parsing<'_>) {
    loop {
        let next = chunks.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
        let Ok((chunk, sender)) = next else { return };
        let began = Instant::now();
        let parsed = parse_chunk(&chunk, parsing);
        parsing.stages.parse.worked(began, chunk.records.len() as u64, chunk.byte_count() as u64);
        let _ = sender.send(parsed);
    }
}

fn parse_chunk(chunk: &Chunk, parsing: Parsing<'_>) -> Parsed {
    let mut parsed = Vec::with_capacity(chunk.records.len());
    for (raw, number) in chunk.records.iter().zip(chunk.first_number..) {
        let bytes = chunk.bytes_of(raw);
        let mut findings = Vec::new();
        let ready = match raw.defect {
            Some(defect) => {
                let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
                let detail = if raw.why.is_empty() { text.into_owned() } else { format!("{}: {text}", raw.why) };
                findings.push(Finding::new(defect, detail));
                None
            }
            None => parsing.parser.parse(bytes, &raw.place, number, &mut findings).map(|record| ReadyRecord {
                index_keys: index_keys(parsing.specs, &record.value),
                key: record.key,
                json: record.json,
            }),
        };
        debug_assert_eq!(ready.is_none(), findings.iter().any(|finding: &Finding| Dirt::is_unusable(finding.dirt)));
        let is_there = !matches!(raw.defect, Some(Dirt::TooLarge | Dirt::LostLink));
        parsed.push(ParsedRecord {
            number,
            position: raw.position,
            next_offset: raw.next_offset,
            place: raw.place.clone(),
            findings,
            raw: (ready.is_none() && is_there).then(|| chunk.raw_of(raw).into()),
            ready,
        });
    }
    parsed
}
