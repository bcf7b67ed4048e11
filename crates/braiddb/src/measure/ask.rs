//! The two contestants, and how each question is put to both.
//!
//! Views are read as the database reads them: an epoch is entered for each get and each segment. The plain merge holds one
//! epoch all the while, which costs it nothing.

use super::{
    chain::{Chain, part_of},
    data,
    plain_merge::{self, PlainMerge},
    questions::{Operation, Questions, Visit, head_of},
    shelf::Shelf,
};
use crate::{
    base::{Cursor, EntryRef, MAX_SEQUENCE, Result},
    view::ViewCursor,
};
use crossbeam_epoch::Guard;
use std::sync::Arc;

/// Answers questions.
pub(super) trait Source {
    /// Walks over rows.
    type Rows: Cursor;

    /// Shows the entry of a key, if there is one.
    fn get<R>(&self, key: &[u8], show: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R>;

    /// A cursor over all rows.
    fn rows(&self) -> Self::Rows;
}

/// The sorted views.
pub(super) struct Views<'a>(pub(super) &'a Shelf);

impl Source for Views<'_> {
    type Rows = Chain<ViewCursor>;

    #[inline]
    fn get<R>(&self, key: &[u8], show: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R> {
        let guard = crossbeam_epoch::pin();
        let part = &self.0.parts[part_of(&self.0.starts, key)];
        Ok(show(part.view.get(&part.runs, key, MAX_SEQUENCE, &guard)?))
    }

    fn rows(&self) -> Chain<ViewCursor> {
        let cursors = self
            .0
            .parts
            .iter()
            .map(|part| ViewCursor::new(Arc::clone(&part.view), Arc::clone(&part.runs), MAX_SEQUENCE));
        Chain::new(self.0.starts.clone(), cursors.collect())
    }
}

/// The plain merges.
pub(super) struct Merges<'g>(pub(super) &'g Shelf, pub(super) &'g Guard);

impl<'g> Source for Merges<'g> {
    type Rows = Chain<PlainMerge<'g>>;

    #[inline]
    fn get<R>(&self, key: &[u8], show: impl FnOnce(Option<EntryRef<'_>>) -> R) -> Result<R> {
        let part = &self.0.parts[part_of(&self.0.starts, key)];
        Ok(show(plain_merge::get(&part.plain, key, self.1)?))
    }

    fn rows(&self) -> Chain<PlainMerge<'g>> {
        let cursors = self.0.parts.iter().map(|part| PlainMerge::new(&part.plain, self.1));
        Chain::new(self.0.starts.clone(), cursors.collect())
    }
}

/// Puts all questions; says how many operations that were: rows, for scans.
pub(super) fn ask(source: &impl Source, questions: &Questions, visit: &mut impl Visit) -> Result<u64> {
    match questions.operation {
        Operation::GetHit | Operation::GetMiss => {
            for (number, key) in questions.keys.iter().enumerate() {
                source.get(key, |answer| visit.visit(number, 0, answer))?;
            }
            Ok(questions.keys.len() as u64)
        }
        Operation::GetChained => {
            let mut found = 0;
            for number in 0..questions.chain_len as usize {
                let key = data::key(questions.chained(found, number));
                found = source.get(&key, |answer| {
                    visit.visit(number, 0, answer);
                    head_of(answer)
                })?;
            }
            Ok(questions.chain_len)
        }
        Operation::SeekHit | Operation::SeekMiss | Operation::SeekFifty => seek(&mut source.rows(), questions, visit),
        Operation::Scan => scan(&mut source.rows(), Cursor::seek_first, Cursor::next, visit),
        Operation::ScanBack => scan(&mut source.rows(), Cursor::seek_last, Cursor::prev, visit),
    }
}

fn seek(rows: &mut impl Cursor, questions: &Questions, visit: &mut impl Visit) -> Result<u64> {
    let len = questions.operation.seek_len();
    for (number, key) in questions.keys.iter().enumerate() {
        rows.seek(key)?;
        for step in 0..len {
            if step > 0 && rows.valid() {
                rows.next()?;
            }
            visit.visit(number, step, rows.valid().then(|| rows.entry()));
        }
    }
    Ok(questions.keys.len() as u64)
}

fn scan<C: Cursor>(
    rows: &mut C,
    first: impl Fn(&mut C) -> Result<()>,
    step: impl Fn(&mut C) -> Result<()>,
    visit: &mut impl Visit,
) -> Result<u64> {
    let mut count = 0;
    first(rows)?;
    while rows.valid() {
        visit.visit(0, count, Some(rows.entry()));
        step(rows)?;
        count += 1;
    }
    visit.visit(0, count, None);
    Ok(count as u64)
}
