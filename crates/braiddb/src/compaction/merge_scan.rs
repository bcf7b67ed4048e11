//! A merge of raw scans: every version of every key, key ascending, newest first.

use crate::{
    base::{EntryRef, Result},
    table::RunScan,
};

/// Several runs read as one.
#[derive(Debug)]
pub struct MergeScan {
    scans: Vec<RunScan>,
    /// The scans that stand on an entry, the one that comes next first.
    order: Vec<usize>,
    started: bool,
}

impl MergeScan {
    /// A merge of scans that have not been moved yet.
    pub fn new(scans: Vec<RunScan>) -> MergeScan {
        MergeScan { order: Vec::with_capacity(scans.len()), scans, started: false }
    }

    fn is_after(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.scans[a].entry(), self.scans[b].entry());
        a.key.cmp(b.key).then(b.sequence.cmp(&a.sequence)).is_gt()
    }

    fn sink(&mut self, mut at: usize) {
        while at + 1 < self.order.len() && self.is_after(self.order[at], self.order[at + 1]) {
            self.order.swap(at, at + 1);
            at += 1;
        }
    }

    /// Moves to the next entry; false at the end.
    pub fn advance(&mut self) -> Result<bool> {
        if !self.started {
            self.started = true;
            for index in (0..self.scans.len()).rev() {
                if self.scans[index].next()? {
                    self.order.insert(0, index);
                    self.sink(0);
                }
            }
        } else if let Some(&first) = self.order.first() {
            if self.scans[first].next()? {
                self.sink(0);
            } else {
                self.order.remove(0);
            }
        }
        Ok(!self.order.is_empty())
    }

    /// The entry it stands on. Precondition: the last `advance` said true.
    pub fn entry(&self) -> EntryRef<'_> {
        self.scans[self.order[0]].entry()
    }
}
