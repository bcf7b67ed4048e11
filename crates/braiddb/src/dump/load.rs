//! Makes a database of a dump.
//!
//! In order: the dump's header and what it tells of the database are read; the directory is begun, with a mark that it is not finished; it becomes
//! an empty database whose sequence numbers go on where those of the dump end; the trees are made, and filled one after the other, each by one
//! commit; when the dump has been read to its end and is whole, all is on the disk and has been opened once, the mark goes. A crash before that
//! leaves a directory that does not open; an error leaves nothing.

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

/// The bytes of a stripe, unpacked: as much as the memory allows within these.
const STRIPE_BYTES_MIN: u64 = 1 << 20;
const STRIPE_BYTES_MAX: u64 = 64 << 20;

/// The part of the memory that frames may take that wait, all lanes together.
const WAITING_PART: u64 = 4;

/// How far a load has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// The bytes of the dump that were read.
    pub dump_bytes: u64,
    /// Trees that were begun.
    pub trees: u64,
}

/// How a dump is loaded.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// So many threads unpack, pack and write, 64 at most; by default as many as merge for the database ([`crate::Builder::background_threads`]).
    /// With 0, and with a builder without threads, the caller's does it all.
    pub threads: Option<usize>,
    /// Is told how far it is, after each frame.
    pub progress: Option<&'a mut dyn FnMut(LoadProgress)>,
    /// Whether to take operands that a merge function can apply to no value, as they stand in the dump: each read of such a record fails
    /// with [`crate::Error::MergeFailed`] until its key is put or deleted. Without it, the load is refused with
    /// [`crate::Error::InvalidArgument`], which names the first such record.
    pub bad_operands: bool,
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// What was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// The commit that the dump was made as of.
    pub sequence: SequenceNumber,
    /// Trees.
    pub trees: u64,
    /// Records: see [`crate::DumpReport::records`].
    pub records: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// The bytes of the dump.
    pub dump_bytes: u64,
}

/// Makes a database of a dump in the directory `dir`. See [`crate::Builder::load`].
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

/// A database without anything in it, that has come as far as that of the dump.
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
    // A stripe's frames are a little shorter or longer than they should be.
    let frames_waiting = usize::try_from(stripe_bytes / PAYLOAD_LEN as u64).unwrap_or(1).max(2);
    Dealing { lanes, stripe_bytes, frames_waiting, bad_operands }
}

/// Puts all that the dump has into the empty database.
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
    // Now its trees are known.
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
        if let Some(tell) = &mut options.progress {
            tell(LoadProgress { dump_bytes: frames.offset(), trees });
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

/// Trees come in the order of their numbers, each once; `passed` is how many were come to.
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

/// Opens the database, without changing anything, to see that it opens.
fn confirm(settings: &Settings, dir: &Path) -> Result<()> {
    let settings = Settings { read_only: true, background_threads: 0, ..settings.clone() };
    Db::open_with(settings, dir)?.close()
}
