//! Iterators of multi-trees: pairs, and the values of one key.

use super::tree::{TERMINATOR, no_pair, split, unescape};
use crate::{
    base::Result,
    db::{
        handles::iter::Iter,
        record::bytes::{Key, Value},
    },
};

/// Entries of a tree, which encode pairs.
type Entry = Result<(Key, Value)>;

/// Pairs of a multi-tree by key and value, from both ends. [`MultiCursor`](super::cursor::MultiCursor)
/// is faster: it copies nothing.
pub struct MultiIter<I = Iter>(pub(in crate::db) I);

/// Values of one key of a multi-tree, in order, from both ends.
pub struct MultiValues<I = Iter> {
    pairs: I,
    /// Bytes before each value: all pairs have the same key.
    front_len: usize,
}

impl<I> std::fmt::Debug for MultiIter<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiIter").finish_non_exhaustive()
    }
}

impl<I> std::fmt::Debug for MultiValues<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiValues").finish_non_exhaustive()
    }
}

pub(in crate::db) fn split_pair(pair: Entry) -> Entry {
    let bytes = pair?.0;
    let Some((at, is_escaped)) = split(&bytes) else { return Err(no_pair(&bytes)) };
    let (mut key, value) = (bytes.slice(..at - TERMINATOR.len()), bytes.slice(at..));
    if is_escaped {
        let mut unescaped = Vec::with_capacity(key.len());
        unescape(&key, &mut unescaped);
        key = Key::new(unescaped);
    }
    Ok((key, value.into()))
}

impl<I: Iterator<Item = Entry>> Iterator for MultiIter<I> {
    type Item = Entry;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(split_pair)
    }
}

impl<I: DoubleEndedIterator<Item = Entry>> DoubleEndedIterator for MultiIter<I> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(split_pair)
    }
}

impl<I: std::iter::FusedIterator<Item = Entry>> std::iter::FusedIterator for MultiIter<I> {}

impl<I> MultiValues<I> {
    /// All entries of `pairs` begin with the same `front_len` bytes.
    pub(in crate::db) fn new(pairs: I, front_len: usize) -> MultiValues<I> {
        MultiValues { pairs, front_len }
    }

    fn value(&self, pair: Entry) -> Result<Value> {
        let bytes = pair?.0;
        if bytes.len() < self.front_len { Err(no_pair(&bytes)) } else { Ok(bytes.slice(self.front_len..).into()) }
    }
}

impl<I: Iterator<Item = Entry>> Iterator for MultiValues<I> {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pairs.next().map(|pair| self.value(pair))
    }
}

impl<I: DoubleEndedIterator<Item = Entry>> DoubleEndedIterator for MultiValues<I> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.pairs.next_back().map(|pair| self.value(pair))
    }
}

impl<I: std::iter::FusedIterator<Item = Entry>> std::iter::FusedIterator for MultiValues<I> {}
