//! The memtable: recent writes, in order, in memory. (A sketch of the interface.)

use crate::base::*;
use std::sync::Arc;

#[derive(Debug)]
pub struct Memtable {}
#[derive(Clone, Debug, Default)]
pub struct MemtableOptions {}
impl MemtableOptions {
    pub fn for_capacity(_bytes: usize) -> Self {
        Self {}
    }
}
#[derive(Debug)]
pub struct MemtableWriter<'a>(&'a Memtable);
impl MemtableWriter<'_> {
    pub fn insert(&mut self, _key: &[u8], _sequence: u64, _kind: EntryKind, _value: &[u8]) {
        todo!()
    }
    pub fn insert_range_tombstone(&mut self, _t: RangeTombstone) {
        todo!()
    }
}
impl Memtable {
    pub fn new(_options: MemtableOptions) -> Self {
        Self {}
    }
    pub fn writer(&self) -> MemtableWriter<'_> {
        MemtableWriter(self)
    }
    pub fn range_tombstones(&self) -> Option<Arc<RangeTombstoneSet>> {
        todo!()
    }
    pub fn get_hashed(&self, _key: &[u8], _hash: u64, _snapshot: u64) -> Option<EntryRef<'_>> {
        todo!()
    }
    pub fn scan(self: &Arc<Self>) -> MemtableScan {
        todo!()
    }
    pub fn scan_from(self: &Arc<Self>, _k: &[u8]) -> MemtableScan {
        todo!()
    }
    pub fn bytes(&self) -> usize {
        todo!()
    }
    pub fn raw_bytes(&self) -> usize {
        todo!()
    }
    pub fn entry_count(&self) -> usize {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    pub fn min_sequence(&self) -> u64 {
        todo!()
    }
    pub fn max_sequence(&self) -> u64 {
        todo!()
    }
}
#[derive(Debug)]
pub struct MemtableScan {}
impl MemtableScan {
    pub fn advance(&mut self) -> bool {
        todo!()
    }
    pub fn entry(&self) -> EntryRef<'_> {
        todo!()
    }
}
#[derive(Debug)]
pub struct MemtableCursor {}
impl MemtableCursor {
    pub fn new(_m: Arc<Memtable>, _s: u64) -> Self {
        todo!()
    }
}
impl Cursor for MemtableCursor {
    fn seek(&mut self, _: &[u8]) -> Result<()> {
        todo!()
    }
    fn seek_before(&mut self, _: &[u8]) -> Result<()> {
        todo!()
    }
    fn seek_first(&mut self) -> Result<()> {
        todo!()
    }
    fn seek_last(&mut self) -> Result<()> {
        todo!()
    }
    fn next(&mut self) -> Result<()> {
        todo!()
    }
    fn prev(&mut self) -> Result<()> {
        todo!()
    }
    fn valid(&self) -> bool {
        todo!()
    }
    fn entry(&self) -> EntryRef<'_> {
        todo!()
    }
}
