//! How a scan changes from its cursors to strands of rows decoded ahead, and back.
//!
//! While the scan walks picks, its cursors stand anywhere. Each strand knows its own place, so when there is something that
//! must be looked at by itself (a blob, an older snapshot, the next partition, damage), every cursor is put on its
//! strand's next row, and the scan goes on as a merge of cursors.

use super::{Batch, Item, Merge, PartitionSource, STRANDS_MAX, Source, Strand, Strands};
use crate::{
    base::{Beyond, Cursor, Result, SequenceNumber},
    memtable::{EntryBatch, MemtableCursor},
    view::RowBatch,
};

/// A source of a scan that merges nothing itself.
enum Leaf<'a> {
    Memtable(&'a mut MemtableCursor),
    Partition(&'a mut PartitionSource),
}

/// Which keys are to be in batches.
struct Limits<'a> {
    /// What they begin with.
    prefix: &'a [u8],
    /// Where the open partition begins and ends: those of memtables must not run ahead of it.
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
    /// Whether a strand is of its kind.
    fn suits(&self, strand: &Strand) -> bool {
        matches!((self, &strand.batch), (Leaf::Memtable(_), Batch::Entries(_)) | (Leaf::Partition(_), Batch::Rows(_)))
    }

    fn new_strand(&self, index: usize) -> Strand {
        let batch = match self {
            Leaf::Memtable(_) => Batch::Entries(EntryBatch::default()),
            Leaf::Partition(_) => Batch::Rows(RowBatch::to_merge()),
        };
        Strand::new(batch, index as u8)
    }

    fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        match self {
            Leaf::Memtable(cursor) => cursor.sequences(),
            Leaf::Partition(source) => source.sequences(),
        }
    }

    /// Decodes rows from where the cursor stands.
    fn begin(&mut self, strand: &mut Strand, limits: &Limits<'_>) {
        match (self, &mut strand.batch) {
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

    /// Decodes the rows that come after those of the strand.
    fn go_on(&mut self, strand: &mut Strand, limits: &Limits<'_>) {
        match (self, &mut strand.batch) {
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

    /// Puts the cursor on the row that the strand comes to next.
    fn leave(&mut self, strand: &mut Strand, is_forward: bool) -> Result<()> {
        let lane = strand.first().map(Item::lane);
        let beyond = strand.batch.beyond();
        let next = match (lane, beyond) {
            (Some(lane), _) | (None, Beyond::Row(lane) | Beyond::Outside(lane)) => Some(lane),
            (None, Beyond::More | Beyond::End) => None,
        };
        match (self, &mut strand.batch) {
            (Leaf::Memtable(cursor), _) => match next {
                Some(lane) => cursor.go_to(lane),
                None if beyond == Beyond::End => cursor.go_past(),
                None => cursor.go_on(is_forward),
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

/// Runs `with` on each source and its strand, memtables first, until it returns false; false too if some can be read by a
/// cursor alone.
fn each(
    merge: &mut Merge<Source>,
    strands: &mut Vec<Strand>,
    prefix: &[u8],
    mut with: impl FnMut(&mut Leaf<'_>, &mut Strand, &Limits<'_>) -> bool,
) -> bool {
    let (sources, is_forward) = merge.sources();
    let Some((Source::Partitions(chain, _), memtables)) = sources.split_last_mut() else { return false };
    if !chain.is_plain() {
        return false;
    }
    let mut count = 0;
    let mut run = |leaf: &mut Leaf<'_>, limits: &Limits<'_>| {
        if count == STRANDS_MAX {
            return false;
        }
        let strand = strand_for(leaf, strands, count);
        count += 1;
        with(leaf, strand, limits)
    };
    let (start, end) = chain.bounds();
    for source in memtables {
        let Source::Memtable(cursor, _) = source else { return false };
        if !run(&mut Leaf::Memtable(cursor), &Limits { prefix, start, end, is_forward }) {
            return false;
        }
    }
    let limits = Limits { prefix, start: b"", end: None, is_forward };
    if !chain.sources().iter_mut().all(|source| run(&mut Leaf::Partition(source), &limits)) {
        return false;
    }
    strands.truncate(count);
    true
}

/// The strand of a source, made if there is none of its kind.
fn strand_for<'a>(leaf: &Leaf<'_>, strands: &'a mut Vec<Strand>, index: usize) -> &'a mut Strand {
    match strands.get(index) {
        Some(strand) if leaf.suits(strand) => {}
        Some(_) => strands[index] = leaf.new_strand(index),
        None => strands.push(leaf.new_strand(index)),
    }
    &mut strands[index]
}

/// Has all sources decode rows ahead from where they stand, and stands on the row that the merge stands on. Returns false if
/// that cannot be; nothing has changed then. Precondition: the merge is valid, and goes that way.
pub fn begin(merge: &mut Merge<Source>, strands: &mut Strands, prefix: &[u8]) -> bool {
    // Else rows that come first would be taken for some past all that are wanted.
    if !merge.key().starts_with(prefix) {
        return false;
    }
    let are_there = each(merge, &mut strands.strands, prefix, |leaf, strand, _| {
        strand.set_sequences(leaf.sequences());
        true
    });
    if !are_there {
        return false;
    }
    let heads = strands.begin(merge.is_forward());
    let has_begun = each(merge, &mut strands.strands, prefix, |leaf, strand, limits| {
        leaf.begin(strand, limits);
        strand.begin(heads);
        !strand.is_used_up()
    });
    if has_begun {
        strands.merge();
    }
    if !strands.is_on_row() {
        strands.release();
    }
    strands.is_on_row()
}

/// Goes on past the last pick. Returns false if there are no more: [`leave`] is to be called then.
pub fn go_on(merge: &mut Merge<Source>, strands: &mut Strands, prefix: &[u8]) -> bool {
    strands.leave();
    while !strands.is_on_row() {
        if !strands.may_go_on() {
            return false;
        }
        let heads = strands.heads();
        let is_filled = each(merge, &mut strands.strands, prefix, |leaf, strand, limits| {
            if strand.is_used_up() {
                leaf.go_on(strand, limits);
                strand.begin(heads);
            }
            !strand.is_used_up()
        });
        if !is_filled {
            return false;
        }
        strands.merge();
    }
    true
}

/// Has the merge go on where the strands are: on the next row, which may be a tombstone of a memtable.
pub fn leave(merge: &mut Merge<Source>, strands: &mut Strands) -> Result<()> {
    let mut left = Ok(());
    let is_forward = merge.is_forward();
    each(merge, &mut strands.strands, b"", |leaf, strand, _| {
        left = std::mem::replace(&mut left, Ok(())).and_then(|()| leaf.leave(strand, is_forward));
        left.is_ok()
    });
    strands.release();
    if let (Ok(()), Some(Source::Partitions(chain, _))) = (&left, merge.sources().0.last_mut()) {
        left = chain.restore(is_forward);
    }
    match &left {
        Ok(()) => merge.restore(),
        Err(_) => merge.invalidate(),
    }
    left
}
