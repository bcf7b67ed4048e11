//! Reads pages and blocks that lookups of several keys miss in the cache, in one batch.

use super::View;
use crate::{
    platform::{ReadRequest, Vfs},
    table::Run,
};
use std::{ptr, sync::Arc};

#[derive(Clone, Copy, Debug)]
pub enum CacheMiss<'a> {
    Page(&'a View, u32),
    Block(&'a Arc<Run>, u16),
}

impl CacheMiss<'_> {
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

/// Reads each miss once into the cache, in parallel if the system supports it. Failed reads and
/// damage are left to the lookup itself. The caller must hold no guard of the epoch collector: it
/// would block reclamation.
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
