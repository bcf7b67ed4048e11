//! Gets that are answered at once: of keys whose place a hash index tells to the byte, in files that are read in place, beside memtables that can be asked.
//!
//! This is [`super::get_with`] for the case that nearly all gets of a warm database are, with as few instructions as can be, none of which waits for
//! the memory that the get before it waits for: so the processor, which looks some hundred instructions ahead, is at work on the next get
//! while this one waits. What the case is not is left to the other way, which asks the same again.

use super::{ReadState, Sought};
use crate::{base::SequenceNumber, memtable::Memtable, table::Moment, view::Quick};

/// [`Quick`] of a key in a state. What is found is a plain value, and its sequence number means nothing.
#[inline(always)]
pub fn get_quickly<'s>(
    state: &'s ReadState,
    sought: Sought<'_>,
    snapshot: SequenceNumber,
    now: impl FnOnce() -> Moment,
) -> Quick<'s> {
    let number = state.version.find_by_head(sought.head(), sought.key());
    // A state of nothing has no partitions.
    let Some(partition) = state.version.partitions.get(number) else { return Quick::Unknown };
    let Some((view, runs)) = partition.only_view() else { return Quick::Unknown };
    let Some(begun) = view.begin_quickly(sought.hash(), snapshot) else { return Quick::Unknown };
    if let Some(known) = ask(&state.active, sought, snapshot) {
        return known;
    }
    for memtable in &state.frozen {
        if let Some(known) = ask(memtable, sought, snapshot) {
            return known;
        }
    }
    begun.finish(runs, sought.parts(), now())
}

/// What a memtable says of a key; `None` if it has nothing to say.
#[inline(always)]
fn ask<'s>(memtable: &'s Memtable, sought: Sought<'_>, snapshot: SequenceNumber) -> Option<Quick<'s>> {
    if memtable.is_empty() {
        return None;
    }
    if memtable.has_range_tombstones() {
        return Some(Quick::Unknown);
    }
    if !memtable.may_contain(sought.hash()) {
        return None;
    }
    memtable.get_hashed(sought.key(), sought.hash(), snapshot).map(Quick::of)
}
