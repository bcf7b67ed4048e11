//! Merge of run scans: all versions of all keys, key ascending, newest first.

use crate::{
    base::{EntryRef, MergeOrder, Result},
    table::RunScan,
};
use std::cmp::Ordering;

#[derive(Debug)]
pub struct MergeScan {
    scans: Vec<RunScan>,
    order: MergeOrder,
    started: bool,
}

impl MergeScan {
    /// The scans have not been advanced yet.
    pub fn new(scans: Vec<RunScan>) -> MergeScan {
        MergeScan { order: MergeOrder::default(), scans, started: false }
    }

    pub fn advance(&mut self) -> Result<bool> {
        let MergeScan { scans, order, started } = self;
        if !*started {
            *started = true;
            for index in 0..scans.len() {
                if scans[index].next()? {
                    order.add(index, scans[index].entry().key, |a, b| compare(&scans[a], &scans[b]));
                }
            }
        } else if let Some(first) = order.first() {
            if scans[first].next()? {
                order.move_first(scans[first].entry().key, |a, b| compare(&scans[a], &scans[b]));
            } else {
                order.remove_first();
            }
        }
        Ok(order.first().is_some())
    }

    /// True if scan `index`, numbered as in `new`, is at an entry below `end`.
    pub fn is_left(&self, index: usize, end: Option<&[u8]>) -> bool {
        let key = self.scans.get(index).and_then(RunScan::key);
        key.is_some_and(|key| end.is_none_or(|end| key < end))
    }

    /// Panics unless the last `advance` returned true.
    pub fn entry(&self) -> EntryRef<'_> {
        self.scans[self.order.first().expect("the scan stands on an entry")].entry()
    }
}

fn compare(a: &RunScan, b: &RunScan) -> Ordering {
    let (a, b) = (a.entry(), b.entry());
    a.key.cmp(b.key).then(b.sequence.cmp(&a.sequence))
}
