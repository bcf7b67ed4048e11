//! What lookups of several keys will need and the cache has not: read at once, rather than one after another.

use super::View;
use crate::{
    platform::{ReadRequest, Vfs},
    table::Run,
};
use std::{ptr, sync::Arc};

/// Something that would have to be read from its file.
#[derive(Clone, Copy, Debug)]
pub enum CacheMiss<'a> {
    /// A page of a view.
    Page(&'a View, u32),
    /// A block of a run.
    Block(&'a Arc<Run>, u16),
}

impl CacheMiss<'_> {
    /// What tells it from others.
    fn identity(&self) -> (usize, u32) {
        match *self {
            CacheMiss::Page(view, page) => (ptr::from_ref(view).addr(), page),
            CacheMiss::Block(run, block) => (Arc::as_ptr(run).addr(), u32::from(block)),
        }
    }

    fn request(&self) -> Option<ReadRequest> {
        match *self {
            CacheMiss::Page(view, page) => Some(view.page_request(page)),
            CacheMiss::Block(run, block) => run.request(block),
        }
    }

    fn take_in(&self, read: &ReadRequest) {
        match *self {
            CacheMiss::Page(view, page) => view.take_in_page(page, read),
            CacheMiss::Block(run, block) => run.take_in(block, read),
        }
    }
}

/// Reads all of these into the cache, as many at once as the system will, each once. What cannot be read, or is damaged, is left to be found so by
/// whoever needs it. No guard may be held: others could not reclaim meanwhile.
#[cold]
pub fn read_misses(vfs: &dyn Vfs, misses: &mut Vec<CacheMiss<'_>>) {
    misses.sort_unstable_by_key(CacheMiss::identity);
    misses.dedup_by_key(|misses| misses.identity());
    let (wanted, mut requests): (Vec<_>, Vec<_>) =
        misses.drain(..).filter_map(|misses| Some((misses, misses.request()?))).unzip();
    if requests.len() > 1 || matches!(wanted[..], [CacheMiss::Page(..)]) {
        vfs.read_many(&mut requests);
        wanted.iter().zip(&requests).for_each(|(misses, read)| misses.take_in(read));
    }
}
