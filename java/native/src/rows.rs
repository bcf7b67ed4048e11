//! Rows of a range, in a state: read forwards or backwards, some at a time.

use crate::{
    boundary::Outcome,
    place::{Place, TransactionCell},
    scan::{Bounds, Range},
    tree::AnyTree,
};
use braiddb::{Cursor, Key, MultiTree, Result, Transaction, Tree, Value, views::MultiIter};
use std::{
    ops::{Bound, ControlFlow},
    sync::Arc,
};

/// Result of a visit to a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Visit {
    More,
    WasLast,
    /// The row is visited again.
    DidNotFit,
}

type Row = (Key, Value);
type Iter = Box<dyn DoubleEndedIterator<Item = Result<Row>> + Send>;

/// Rows of a scan.
pub enum Rows {
    Plain {
        cursor: Box<Cursor>,
        range: Range,
        keys_only: bool,
        is_begun: bool,
        is_kept: bool,
        is_ended: bool,
    },
    /// Pairs of a latest or a snapshot's tree of many values per key.
    Pairs {
        iter: Iter,
        is_reverse: bool,
        kept: Option<Row>,
    },
    /// Each call reads on after the last returned row: an iterator would borrow the transaction.
    InTransaction {
        cell: Arc<TransactionCell>,
        tree: AnyTree,
        range: Range,
        of: Option<Vec<u8>>,
        last: Option<Row>,
    },
}

impl Rows {
    pub fn new(tree: &AnyTree, place: Option<&Place>, range: Range, keys_only: bool) -> Outcome<Rows> {
        let is_reverse = range.is_reverse;
        let pairs = |iter: MultiIter<braiddb::Iter>| Rows::Pairs { iter: Box::new(iter), is_reverse, kept: None };
        Ok(match (tree, place) {
            (AnyTree::Plain(tree), None) => Rows::plain(tree.cursor(), range, keys_only),
            (AnyTree::Plain(tree), Some(Place::Snapshot(cell))) => {
                Rows::plain(cell.with(|open| Ok(open.cursor(tree)))?, range, keys_only)
            }
            (AnyTree::Multi(tree), None) => pairs(tree.range(range.bounds())),
            (AnyTree::Multi(tree), Some(Place::Snapshot(cell))) => {
                pairs(cell.with(|open| Ok(open.multi_tree(tree).range(range.bounds())))?)
            }
            (tree, Some(Place::Transaction(cell))) => {
                Rows::InTransaction { cell: Arc::clone(cell), tree: tree.clone(), range, of: None, last: None }
            }
        })
    }

    fn plain(cursor: Cursor, range: Range, keys_only: bool) -> Rows {
        Rows::Plain { cursor: Box::new(cursor), range, keys_only, is_begun: false, is_kept: false, is_ended: false }
    }

    /// Returns the values of one key.
    pub fn values(tree: &MultiTree, place: Option<&Place>, key: Vec<u8>, is_reverse: bool) -> Outcome<Rows> {
        let pairs = |iter: Iter| Rows::Pairs { iter, is_reverse, kept: None };
        let of = Key::from(key.as_slice());
        let keyed = move |value: Result<Value>| Ok((of.clone(), value?));
        Ok(match place {
            None => pairs(Box::new(tree.values(&key).map(keyed))),
            Some(Place::Snapshot(cell)) => {
                let values = cell.with(|open| Ok(open.multi_tree(tree).values(&key)))?;
                pairs(Box::new(values.map(keyed)))
            }
            Some(Place::Transaction(cell)) => Rows::InTransaction {
                cell: Arc::clone(cell),
                tree: AnyTree::Multi(tree.clone()),
                range: Range { start: Bound::Unbounded, end: Bound::Unbounded, is_reverse },
                of: Some(key),
                last: None,
            },
        })
    }

    /// Passes rows until `visit` stops. Returns true if there are no more.
    pub fn visit(&mut self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Outcome<bool> {
        match self {
            Rows::Plain { cursor, range, keys_only, is_begun, is_kept, is_ended } => {
                if *is_ended || !step(cursor, range, is_begun, is_kept)? {
                    *is_ended = true;
                    return Ok(true);
                }
                let stopped =
                    if *keys_only { visit_keys(cursor, range, visit)? } else { visit_rows(cursor, range, visit)? };
                *is_kept = stopped == Some(Visit::DidNotFit);
                *is_ended = stopped.is_none();
                Ok(*is_ended)
            }
            Rows::Pairs { iter, is_reverse, kept } => {
                while let Some((key, value)) = match kept.take() {
                    Some(row) => Some(row),
                    None if *is_reverse => iter.next_back().transpose()?,
                    None => iter.next().transpose()?,
                } {
                    match visit(&key, &value) {
                        Visit::More => {}
                        Visit::WasLast => return Ok(false),
                        Visit::DidNotFit => {
                            *kept = Some((key, value));
                            return Ok(false);
                        }
                    }
                }
                Ok(true)
            }
            Rows::InTransaction { cell, tree, range, of, last } => cell.with(|open| match &*tree {
                AnyTree::Plain(tree) => visit_plain(open, tree, range, last, visit),
                AnyTree::Multi(tree) => visit_pairs(open, tree, range, of.as_deref(), last, visit),
            }),
        }
    }

    pub fn is_in_transaction(&self) -> bool {
        matches!(self, Rows::InTransaction { .. })
    }

    /// Continues after a returned row, or at the start, so that later writes of a transaction are
    /// read. Other rows never change.
    pub fn seek_after(&mut self, row: Option<(&[u8], &[u8])>) {
        if let Rows::InTransaction { last, .. } = self {
            *last = row.map(|(key, value)| (key.into(), value.into()));
        }
    }
}

/// Moves to the next row to visit. Returns false after the last one.
fn step(cursor: &mut Cursor, range: &Range, is_begun: &mut bool, is_kept: &mut bool) -> Result<bool> {
    if std::mem::take(is_kept) {
        return Ok(true);
    }
    // The least key after another one.
    let after = |key: &[u8]| [key, &[0]].concat();
    let is_there = match (std::mem::replace(is_begun, true), range.is_reverse, &range.start, &range.end) {
        (true, false, ..) => cursor.next()?,
        (true, true, ..) => cursor.prev()?,
        (false, false, Bound::Unbounded, _) => cursor.seek_first()?,
        (false, false, Bound::Included(key), _) => cursor.seek(key)?,
        (false, false, Bound::Excluded(key), _) => cursor.seek(after(key))?,
        (false, true, _, Bound::Unbounded) => cursor.seek_last()?,
        (false, true, _, Bound::Excluded(key)) => cursor.seek_before(key)?,
        (false, true, _, Bound::Included(key)) => cursor.seek_before(after(key))?,
    };
    Ok(is_there && !range.is_past(cursor.key()))
}

/// Visits the row of the cursor and the next ones. Returns None at the end of the range.
fn visit_rows(
    cursor: &mut Cursor,
    range: &Range,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Result<Option<Visit>> {
    let each = |key: &[u8], value: &[u8]| {
        if range.is_past(key) {
            return ControlFlow::Break(None);
        }
        match visit(key, value) {
            Visit::More => ControlFlow::Continue(()),
            stopped => ControlFlow::Break(Some(stopped)),
        }
    };
    // Copies from the blocks, without a step for each row.
    let flow = if range.is_reverse { cursor.try_for_each_back(each)? } else { cursor.try_for_each(each)? };
    match flow {
        ControlFlow::Break(stopped) => Ok(stopped),
        ControlFlow::Continue(()) => Ok(None),
    }
}

/// As [`visit_rows`], without a read of the values, which may be in other files.
fn visit_keys(
    cursor: &mut Cursor,
    range: &Range,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Result<Option<Visit>> {
    loop {
        match visit(cursor.key(), &[]) {
            Visit::More => {}
            stopped => return Ok(Some(stopped)),
        }
        if !step(cursor, range, &mut true, &mut false)? {
            return Ok(None);
        }
    }
}

fn next<T>(rows: &mut impl DoubleEndedIterator<Item = Result<T>>, is_reverse: bool) -> Result<Option<T>> {
    if is_reverse { rows.next_back().transpose() } else { rows.next().transpose() }
}

/// Visits rows and keeps the last returned one. Returns true if `visit` wants more.
fn pass_all(
    rows: &mut impl DoubleEndedIterator<Item = Result<Row>>,
    is_reverse: bool,
    last: &mut Option<Row>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Result<bool> {
    while let Some((key, value)) = next(rows, is_reverse)? {
        let visited = visit(&key, &value);
        if visited != Visit::DidNotFit {
            *last = Some((key, value));
        }
        if visited != Visit::More {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the bounds behind a key or a value.
fn behind<'a>((start, end): Bounds<'a>, last: &'a [u8], is_reverse: bool) -> Bounds<'a> {
    if is_reverse { (start, Bound::Excluded(last)) } else { (Bound::Excluded(last), end) }
}

fn visit_plain(
    open: &Transaction,
    tree: &Tree,
    range: &Range,
    last: &mut Option<Row>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Outcome<bool> {
    let after = last.clone();
    let bounds = match &after {
        Some((key, _)) => behind(range.bounds(), key, range.is_reverse),
        None => range.bounds(),
    };
    Ok(pass_all(&mut open.range(tree, bounds), range.is_reverse, last, visit)?)
}

fn visit_pairs(
    open: &Transaction,
    tree: &MultiTree,
    range: &Range,
    of: Option<&[u8]>,
    last: &mut Option<Row>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Outcome<bool> {
    let (tree, is_reverse) = (open.multi_tree(tree), range.is_reverse);
    let after = last.clone();
    let all = (Bound::Unbounded, Bound::Unbounded);
    // First the other values of the key.
    let key = of.or(after.as_ref().map(|(key, _)| &**key));
    if let Some(key) = key {
        let bounds = match &after {
            Some((_, value)) => behind(all, value, is_reverse),
            None => all,
        };
        let of_key = Key::from(key);
        let mut values = tree.values_range(key, bounds).map(|value| Ok((of_key.clone(), value?)));
        let wants_more = pass_all(&mut values, is_reverse, last, visit)?;
        if !wants_more || of.is_some() {
            return Ok(wants_more);
        }
    }
    let bounds = match &after {
        Some((key, _)) => behind(range.bounds(), key, is_reverse),
        None => range.bounds(),
    };
    Ok(pass_all(&mut tree.range(bounds), is_reverse, last, visit)?)
}
