//! Switches a scan between its cursors and batches of rows decoded ahead.
//!
//! While the scan walks merged batches, its cursors are not in step. A blob, an older snapshot, the
//! next partition or damage needs the cursors: each moves to its batch's next row, and the scan
//! continues as a merge.

use super::{BATCHES_MAX, Batch, BatchMerger, Item, Merge, PartitionSource, ScanBatch, Source};
use crate::{
    base::{Beyond, Cursor, Result, SequenceNumber},
    memtable::{EntryBatch, MemtableCursor},
    view::RowBatch,
};

enum Leaf<'a> {
    Memtable(&'a mut MemtableCursor),
    Partition(&'a mut PartitionSource),
}

struct Limits<'a> {
    prefix: &'a [u8],
    /// Bounds of the open partition: memtable batches must not run ahead of it.
    start: &'a [u8],
    end: Option<&'a [u8]>,
    is_forward: bool,
}

impl Limits<'_> {
    fn allow(&self, key: &[u8]) -> bool {
        let is_within = if self.is_forward { self.end.is_none_or(|end| key < end) } else { key >= self.start };
        is_within && key.starts_with(self.prefix)
    }
}

impl Leaf<'_> {
    fn suits(&self, scan_batch: &ScanBatch) -> bool {
        matches!(
            (self, &scan_batch.batch),
            (Leaf::Memtable(_), Batch::Entries(_)) | (Leaf::Partition(_), Batch::Rows(_))
        )
    }

    fn new_batch(&self, index: usize) -> ScanBatch {
        let batch = match self {
            Leaf::Memtable(_) => Batch::Entries(EntryBatch::default()),
            Leaf::Partition(_) => Batch::Rows(RowBatch::to_merge()),
        };
        ScanBatch::new(batch, index as u8)
    }

    fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        match self {
            Leaf::Memtable(cursor) => cursor.sequences(),
            Leaf::Partition(source) => source.sequences(),
        }
    }

    fn begin(&mut self, scan_batch: &mut ScanBatch, limits: &Limits<'_>) {
        match (self, &mut scan_batch.batch) {
            (Leaf::Memtable(cursor), Batch::Entries(batch)) if cursor.valid() => {
                cursor.fill(limits.is_forward, batch);
                batch.keep(limits.is_forward, |key| limits.allow(key));
            }
            (Leaf::Partition(source), Batch::Rows(batch)) if source.valid() => {
                batch.release();
                source.fill(limits.is_forward, batch);
                batch.keep_prefix(limits.prefix);
            }
            (_, Batch::Entries(batch)) => batch.end(),
            (_, Batch::Rows(batch)) => batch.end(),
        }
    }

    fn advance(&mut self, scan_batch: &mut ScanBatch, limits: &Limits<'_>) {
        match (self, &mut scan_batch.batch) {
            (Leaf::Memtable(cursor), Batch::Entries(batch)) => {
                cursor.fill_next(limits.is_forward, batch);
                batch.keep(limits.is_forward, |key| limits.allow(key));
            }
            (Leaf::Partition(source), Batch::Rows(batch)) => {
                batch.pass(0);
                source.fill(limits.is_forward, batch);
                batch.keep_prefix(limits.prefix);
            }
            _ => unreachable!("a strand is of its source's kind"),
        }
    }

    fn leave(&mut self, scan_batch: &mut ScanBatch, is_forward: bool) -> Result<()> {
        let lane = scan_batch.first().map(Item::lane);
        let beyond = scan_batch.batch.beyond();
        let next = match (lane, beyond) {
            (Some(lane), _) | (None, Beyond::Row(lane) | Beyond::Outside(lane)) => Some(lane),
            (None, Beyond::More | Beyond::End) => None,
        };
        match (self, &mut scan_batch.batch) {
            (Leaf::Memtable(cursor), _) => match next {
                Some(lane) => cursor.go_to(lane),
                None if beyond == Beyond::End => cursor.go_past(),
                None => cursor.advance(is_forward),
            },
            (Leaf::Partition(source), Batch::Rows(batch)) => match next {
                Some(lane) => source.go_to(batch.place(lane))?,
                None if beyond == Beyond::End => source.go_past(),
                None => {
                    batch.pass(0);
                    if let Some(last) = batch.from() {
                        source.go_to(last)?;
                        if is_forward { source.next()? } else { source.prev()? }
                    }
                }
            },
            (Leaf::Partition(_), Batch::Entries(_)) => unreachable!("a strand is of its source's kind"),
        }
        Ok(())
    }
}

/// Calls `with` for each source and its batch, memtables first, until it returns false. False too
/// if a source needs its cursor.
fn each(
    merge: &mut Merge<Source>,
    scan_batches: &mut Vec<ScanBatch>,
    prefix: &[u8],
    mut with: impl FnMut(&mut Leaf<'_>, &mut ScanBatch, &Limits<'_>) -> bool,
) -> bool {
    let (sources, is_forward) = merge.sources();
    let Some((Source::Partitions(concat, _), memtables)) = sources.split_last_mut() else { return false };
    if !concat.is_plain() {
        return false;
    }
    let mut count = 0;
    let mut run = |leaf: &mut Leaf<'_>, limits: &Limits<'_>| {
        if count == BATCHES_MAX {
            return false;
        }
        let scan_batch = batch_for(leaf, scan_batches, count);
        count += 1;
        with(leaf, scan_batch, limits)
    };
    let (start, end) = concat.bounds();
    for source in memtables {
        let Source::Memtable(cursor, _) = source else { return false };
        if !run(&mut Leaf::Memtable(cursor), &Limits { prefix, start, end, is_forward }) {
            return false;
        }
    }
    let limits = Limits { prefix, start: b"", end: None, is_forward };
    if !concat.sources().iter_mut().all(|source| run(&mut Leaf::Partition(source), &limits)) {
        return false;
    }
    scan_batches.truncate(count);
    true
}

fn batch_for<'a>(leaf: &Leaf<'_>, scan_batches: &'a mut Vec<ScanBatch>, index: usize) -> &'a mut ScanBatch {
    match scan_batches.get(index) {
        Some(scan_batch) if leaf.suits(scan_batch) => {}
        Some(_) => scan_batches[index] = leaf.new_batch(index),
        None => scan_batches.push(leaf.new_batch(index)),
    }
    &mut scan_batches[index]
}

/// Decodes rows of all sources and moves to the merge's current row. On false nothing has changed.
/// Precondition: the merge is valid in this direction.
pub fn begin(merge: &mut Merge<Source>, scan_batches: &mut BatchMerger, prefix: &[u8]) -> bool {
    if !merge.key().starts_with(prefix) {
        return false;
    }
    let are_there = each(merge, &mut scan_batches.scan_batches, prefix, |leaf, scan_batch, _| {
        scan_batch.set_sequences(leaf.sequences());
        true
    });
    if !are_there {
        return false;
    }
    let heads = scan_batches.begin(merge.is_forward());
    let has_begun = each(merge, &mut scan_batches.scan_batches, prefix, |leaf, scan_batch, limits| {
        leaf.begin(scan_batch, limits);
        scan_batch.begin(heads);
        !scan_batch.is_used_up()
    });
    if has_begun {
        scan_batches.merge();
    }
    if !scan_batches.is_on_row() {
        scan_batches.release();
    }
    scan_batches.is_on_row()
}

/// Moves past the last merged row. On false there are no more, and [`leave`] must be called.
pub fn advance(merge: &mut Merge<Source>, scan_batches: &mut BatchMerger, prefix: &[u8]) -> bool {
    scan_batches.leave();
    while !scan_batches.is_on_row() {
        if !scan_batches.may_continue() {
            return false;
        }
        let heads = scan_batches.heads();
        let is_filled = each(merge, &mut scan_batches.scan_batches, prefix, |leaf, scan_batch, limits| {
            if scan_batch.is_used_up() {
                leaf.advance(scan_batch, limits);
                scan_batch.begin(heads);
            }
            !scan_batch.is_used_up()
        });
        if !is_filled {
            return false;
        }
        scan_batches.merge();
    }
    true
}

pub fn leave(merge: &mut Merge<Source>, scan_batches: &mut BatchMerger) -> Result<()> {
    let mut left = Ok(());
    let is_forward = merge.is_forward();
    each(merge, &mut scan_batches.scan_batches, b"", |leaf, scan_batch, _| {
        left = std::mem::replace(&mut left, Ok(())).and_then(|()| leaf.leave(scan_batch, is_forward));
        left.is_ok()
    });
    scan_batches.release();
    if let (Ok(()), Some(Source::Partitions(concat, _))) = (&left, merge.sources().0.last_mut()) {
        left = concat.restore(is_forward);
    }
    match &left {
        Ok(()) => merge.restore(),
        Err(_) => merge.invalidate(),
    }
    left
}
