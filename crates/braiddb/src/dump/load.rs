//! Makes a database from a dump.
//!
//! First an "unfinished" marker, then an empty database whose sequence numbers continue after the
//! dump's, then each tree by one commit. The marker is removed once the whole dump was valid,
//! everything is durable, and the database opened: after a crash the directory does not open. An
//! error removes everything.

use super::{
    check::check_totals,
    create::checked_threads,
    format::{Frame, FrameKind, PAYLOAD_LEN, Source, damaged},
    lanes::{Dealing, TreeLoad},
    reader::FrameReader,
    records::Amount,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{Db, NewDirectory, Operation, Settings},
    version::{Change, Edit, Layout},
};
use std::{fmt, io::Read, path::Path};

/// Limits of a stripe's decompressed bytes.
const STRIPE_BYTES_MIN: u64 = 1 << 20;
const STRIPE_BYTES_MAX: u64 = 64 << 20;

/// Divisor: queued frames take at most a quarter of the memory.
const WAITING_PART: u64 = 4;

/// Progress of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProgress {
    /// Bytes of the dump read so far.
    pub dump_bytes: u64,
    /// Trees begun.
    pub trees: u64,
}

/// Options of a load.
#[derive(Default)]
#[non_exhaustive]
pub struct LoadOptions<'a> {
    /// Threads that decompress, compress and write, at most 64; by default
    /// [`crate::Builder::background_threads`]. The caller's thread does all work if either is 0.
    pub threads: Option<usize>,
    /// Called after each frame.
    pub progress: Option<&'a mut dyn FnMut(LoadProgress)>,
    /// Accepts operands that a merge function rejects for every value. Reads of the record then
    /// fail with [`crate::Error::MergeFailed`] until its key is put or deleted. By default the load
    /// fails with [`crate::Error::InvalidArgument`], which names the first such record.
    pub bad_operands: bool,
}

impl<'a> LoadOptions<'a> {
    /// Returns the default options.
    pub fn new() -> LoadOptions<'a> {
        LoadOptions::default()
    }

    /// Sets the number of threads that decompress, compress and write.
    pub fn threads(mut self, threads: usize) -> LoadOptions<'a> {
        self.threads = Some(threads);
        self
    }

    /// Sets a function that is called after each frame.
    pub fn progress(mut self, report: &'a mut dyn FnMut(LoadProgress)) -> LoadOptions<'a> {
        self.progress = Some(report);
        self
    }

    /// If true, accepts operands that their merge function rejects for every value.
    pub fn bad_operands(mut self, accept: bool) -> LoadOptions<'a> {
        self.bad_operands = accept;
        self
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// The result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// The last commit in the dump.
    pub sequence: SequenceNumber,
    /// Number of trees.
    pub trees: u64,
    /// Number of records: see [`crate::dump::DumpReport::records`].
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of the dump.
    pub dump_bytes: u64,
}

/// See [`crate::Builder::load`].
pub fn load(settings: Settings, dir: &Path, input: &mut dyn Read, options: LoadOptions<'_>) -> Result<LoadReport> {
    checked_threads(options.threads, 0)?;
    let mut frames = FrameReader::begin(input)?;
    let (source, first) = frames.source()?;
    let mut new = NewDirectory::begin(&settings.vfs, &settings.runtime, dir)?;
    new.mark_unfinished(Operation::Load)?;
    new.make_database(&empty_layout(frames.sequence, &source))?;
    new.unlock();
    let settings = Settings {
        is_restoring: true,
        create: false,
        read_only: false,
        log_archive: None,
        log_retention_bytes: None,
        log_retention_age_us: None,
        reader_age_max_ns: u64::MAX,
        ..settings
    };
    let loaded = fill(&settings, dir, &mut frames, &source, first, options).and_then(|report| {
        confirm(&settings, dir)?;
        new.mark_finished()?;
        Ok(report)
    });
    match loaded {
        Ok(_) => new.keep(),
        Err(_) => new.answer_for_all()?,
    }
    loaded.map_err(|e| match e {
        e if e.is_merge_failed() => Error::InvalidArgument(format!(
            "the dump has an operand that can never be applied, and nothing was loaded: {e}; to load such records as they stand, use \
             `LoadOptions::bad_operands` or `braid load --bad-operands`"
        )),
        e => e,
    })
}

fn empty_layout(sequence: SequenceNumber, source: &Source) -> Layout {
    let mut layout = Layout {
        next_file: 1,
        flushed: sequence,
        last_sequence: sequence,
        time_us: source.time_us,
        time_ahead_us: source.ahead_us,
        ..Layout::default()
    };
    let whole = Change::NewPartition { id: 0, start: Vec::new(), end: None };
    layout.apply(&Edit::new(vec![whole])).unwrap_or_else(|rule| unreachable!("an empty layout: {rule}"));
    layout
}

fn dealing(settings: &Settings, threads: usize, bad_operands: bool) -> Dealing {
    let lanes = if settings.background_threads == 0 { 0 } else { threads };
    let each = settings.memory as u64 / WAITING_PART / (lanes.max(1) as u64);
    let stripe_bytes = each.clamp(STRIPE_BYTES_MIN, STRIPE_BYTES_MAX);
    let frames_waiting = usize::try_from(stripe_bytes / PAYLOAD_LEN as u64).unwrap_or(1).max(2);
    Dealing { lanes, stripe_bytes, frames_waiting, bad_operands }
}

fn fill(
    settings: &Settings,
    dir: &Path,
    frames: &mut FrameReader<'_>,
    source: &Source,
    first: Frame,
    mut options: LoadOptions<'_>,
) -> Result<LoadReport> {
    let db = Db::open_with(settings.clone(), dir)?;
    db.load_catalog(&source.catalog)?;
    db.close()?;
    let db = Db::open_with(settings.clone(), dir)?;
    let threads = checked_threads(options.threads, settings.background_threads)?;
    let dealing = dealing(settings, threads, options.bad_operands);
    let (mut frame, mut amount, mut trees) = (first, Amount::default(), 0);
    let mut present: Option<TreeLoad> = None;
    while frame.kind != FrameKind::End {
        if !matches!(frame.kind, FrameKind::Records | FrameKind::Piece) {
            return Err(damaged(frame.offset, "what it tells of the database goes on between its records"));
        }
        if present.as_ref().is_none_or(|tree| !tree.is_of(frame.tree)) {
            finish_tree(present.take(), &mut amount)?;
            check_tree(source, &mut trees, &frame)?;
            present = Some(TreeLoad::new(&db, frame.tree, frames.id, frames.sequence, dealing));
        }
        if let Some(tree) = &mut present {
            tree.take(frame)?;
        }
        if let Some(report) = &mut options.progress {
            report(LoadProgress { dump_bytes: frames.offset(), trees });
        }
        frame = frames.next()?;
    }
    finish_tree(present, &mut amount)?;
    let trees = source.catalog.trees.len() as u64;
    check_totals(frames, frame, trees, amount)?;
    db.flush()?;
    db.release_held_blobs();
    db.close()?;
    let Amount { records, bytes } = amount;
    Ok(LoadReport { sequence: frames.sequence, trees, records, bytes, dump_bytes: frames.offset() })
}

fn finish_tree(tree: Option<TreeLoad>, amount: &mut Amount) -> Result<()> {
    if let Some(tree) = tree {
        amount.add(tree.finish()?.1);
    }
    Ok(())
}

/// Trees come once, in the order of their numbers; `passed` counts them.
pub fn check_tree(source: &Source, passed: &mut u64, frame: &Frame) -> Result<()> {
    let trees = &source.catalog.trees;
    let place = trees.iter().position(|tree| tree.id == frame.tree).map(|place| place as u64 + 1);
    match place {
        Some(place) if place > *passed => {
            *passed = place;
            Ok(())
        }
        Some(_) => Err(damaged(frame.offset, "records of a tree come after those of a later one")),
        None => Err(damaged(frame.offset, "records of a tree that it does not tell of")),
    }
}

fn confirm(settings: &Settings, dir: &Path) -> Result<()> {
    let settings = Settings { read_only: true, background_threads: 0, ..settings.clone() };
    Db::open_with(settings, dir)?.close()
}
