//! Reads rows of a tree, forwards or backwards, for scans and cursors.

use crate::{
    boundary::{Failure, Outcome},
    place::{AnyTree, Place, TransactionCell},
    range::{KeyBounds, Range},
    tree::braid_tree,
};
use braiddb::{Cursor, Key, Transaction, Tree, Value, views::MultiCursor};
use std::{
    borrow::Cow,
    ops::{Bound, ControlFlow},
    sync::Arc,
    vec,
};

/// A move to another row.
#[derive(Clone, Debug)]
pub(crate) enum Move<'a> {
    First,
    Last,
    Next,
    Prev,
    /// To the first row with a key at or after this one.
    Seek(Cow<'a, [u8]>),
    /// To the last row with a key before this one.
    SeekBefore(Cow<'a, [u8]>),
}

impl<'a> Move<'a> {
    /// To the first row within bounds, in this direction.
    pub(crate) fn into_bounds((start, end): KeyBounds<'a>, is_forward: bool) -> Move<'a> {
        // The least key after another one.
        let after = |key: &[u8]| Cow::Owned([key, &[0]].concat());
        match (is_forward, start, end) {
            (true, Bound::Unbounded, _) => Move::First,
            (true, Bound::Included(key), _) => Move::Seek(key.into()),
            (true, Bound::Excluded(key), _) => Move::Seek(after(key)),
            (false, _, Bound::Unbounded) => Move::Last,
            (false, _, Bound::Excluded(key)) => Move::SeekBefore(key.into()),
            (false, _, Bound::Included(key)) => Move::SeekBefore(after(key)),
        }
    }

    pub(crate) fn step(is_forward: bool) -> Move<'a> {
        if is_forward { Move::Next } else { Move::Prev }
    }
}

macro_rules! go {
    ($cursor:expr, $to:expr) => {
        match $to {
            Move::First => $cursor.seek_first()?,
            Move::Last => $cursor.seek_last()?,
            Move::Next => $cursor.next()?,
            Move::Prev => $cursor.prev()?,
            Move::Seek(key) => $cursor.seek(key)?,
            Move::SeekBefore(key) => $cursor.seek_before(key)?,
        }
    };
}

type Pair = (Vec<u8>, Vec<u8>);

/// A position among rows.
pub(crate) enum Rows {
    Plain(Box<Cursor>),
    Multi(Box<MultiCursor>),
    Transaction(Box<InTransaction>),
    /// Forwards only.
    List(vec::IntoIter<Pair>, Option<Pair>),
}

impl Rows {
    pub(crate) fn of_tree(of: &braid_tree) -> Rows {
        match (&of.tree, &of.place) {
            (AnyTree::Plain(tree), Place::Latest) => Rows::Plain(Box::new(tree.cursor())),
            (AnyTree::Plain(tree), Place::Snapshot(snapshot)) => Rows::Plain(Box::new(snapshot.cursor(tree))),
            (AnyTree::Multi(tree), Place::Latest) => Rows::Multi(Box::new(tree.cursor())),
            (AnyTree::Multi(tree), Place::Snapshot(snapshot)) => {
                Rows::Multi(Box::new(snapshot.multi_tree(tree).cursor()))
            }
            (tree, Place::Transaction(cell)) => {
                Rows::Transaction(Box::new(InTransaction { cell: Arc::clone(cell), tree: tree.clone(), at: At::Fresh }))
            }
        }
    }

    /// Returns whether there is a row. The rows of a transaction are those of the range; elsewhere
    /// the caller checks the key.
    pub(crate) fn go(&mut self, to: Move<'_>, range: &Range) -> Outcome<bool> {
        Ok(match self {
            Rows::Plain(cursor) => go!(cursor, to),
            Rows::Multi(cursor) => go!(cursor, to),
            Rows::Transaction(rows) => rows.go(to, range)?,
            Rows::List(rest, current) => {
                *current = rest.next();
                current.is_some()
            }
        })
    }

    /// Returns the key of the current row, also if its value cannot be read.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Rows::Plain(cursor) => cursor.is_on_row().then(|| cursor.key()),
            Rows::Multi(cursor) => cursor.is_on_pair().then(|| cursor.key()),
            Rows::Transaction(rows) => rows.row().map(|(key, _)| &**key),
            Rows::List(_, current) => current.as_ref().map(|(key, _)| key.as_slice()),
        }
    }

    pub(crate) fn row(&self) -> Outcome<Option<(&[u8], &[u8])>> {
        Ok(match self {
            Rows::Plain(cursor) if cursor.is_on_row() => Some(cursor.row()?),
            Rows::Plain(_) => None,
            Rows::Multi(cursor) => cursor.is_on_pair().then(|| cursor.pair()),
            Rows::Transaction(rows) => match rows.row() {
                Some((key, value)) => Some((&**key, &**value.as_ref().map_err(Clone::clone)?)),
                None => None,
            },
            Rows::List(_, current) => current.as_ref().map(|(key, value)| (key.as_slice(), value.as_slice())),
        })
    }

    /// Passes the current and the later rows to `visit` until it breaks, and stays on that row.
    pub(crate) fn visit<B>(
        &mut self,
        range: &Range,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Outcome<ControlFlow<B>> {
        match self {
            // Copies from the blocks, without a call for each row.
            Rows::Plain(cursor) if range.is_forward => return Ok(cursor.try_for_each(visit)?),
            Rows::Plain(cursor) => return Ok(cursor.try_for_each_back(visit)?),
            Rows::Transaction(rows) => return rows.visit(range, visit),
            Rows::Multi(_) | Rows::List(..) => {}
        }
        while let Some((key, value)) = self.row()? {
            let flow = visit(key, value);
            if flow.is_break() {
                return Ok(flow);
            }
            self.go(Move::step(range.is_forward), range)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Rows of a transaction. Each row that is passed counts as read, so none is read ahead. An
/// iterator would borrow the transaction, so each call seeks its position.
pub(crate) struct InTransaction {
    cell: Arc<TransactionCell>,
    tree: AnyTree,
    at: At,
}

#[derive(Debug)]
enum At {
    Fresh,
    Row(Key, Outcome<Value>),
    BeforeFirst,
    AfterLast,
}

impl At {
    fn end(is_forward: bool) -> At {
        if is_forward { At::AfterLast } else { At::BeforeFirst }
    }
}

impl InTransaction {
    fn row(&self) -> Option<(&Key, &Outcome<Value>)> {
        match &self.at {
            At::Row(key, value) => Some((key, value)),
            _ => None,
        }
    }

    /// After a failure the position is the earlier one.
    fn go(&mut self, to: Move<'_>, range: &Range) -> Outcome<bool> {
        let (start, end) = range.bounds();
        let is_forward = matches!(to, Move::First | Move::Next | Move::Seek(_));
        let mut after = None;
        let bounds = match &to {
            Move::Seek(key) => (Bound::Included(&**key), end),
            Move::SeekBefore(key) => (start, Bound::Excluded(&**key)),
            Move::First | Move::Last => (start, end),
            Move::Next | Move::Prev => {
                match &self.at {
                    At::AfterLast if is_forward => return Ok(false),
                    At::BeforeFirst if !is_forward => return Ok(false),
                    At::Row(key, value) => after = Some((key, value.as_deref().unwrap_or_default())),
                    _ => {}
                }
                (start, end)
            }
        };
        let mut at = At::end(is_forward);
        _ = self.read(after, bounds, is_forward, |key, value| {
            at = At::Row(key, value);
            ControlFlow::Break(())
        })?;
        self.at = at;
        Ok(self.row().is_some())
    }

    fn visit<B>(
        &mut self,
        range: &Range,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Outcome<ControlFlow<B>> {
        let At::Row(key, value) = &self.at else { return Ok(ControlFlow::Continue(())) };
        let value = value.as_ref().map_err(Clone::clone)?;
        let mut outcome = Ok(visit(key, value));
        if matches!(outcome, Ok(ControlFlow::Break(_))) {
            return outcome;
        }
        let mut last = None;
        let read = self.read(Some((key, &**value)), range.bounds(), range.is_forward, |key, value| {
            outcome = value.as_ref().map_err(Clone::clone).map(|value| visit(&key, value));
            last = Some(At::Row(key, value));
            if matches!(outcome, Ok(ControlFlow::Continue(()))) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if let Some(last) = last {
            self.at = last;
        }
        if read?.is_continue() {
            self.at = At::end(range.is_forward);
        }
        outcome
    }

    /// Passes rows to `visit` until it breaks: those after a row, or all of the bounds.
    fn read(
        &self,
        after: Option<(&Key, &[u8])>,
        bounds: KeyBounds<'_>,
        is_forward: bool,
        mut visit: impl FnMut(Key, Outcome<Value>) -> ControlFlow<()>,
    ) -> Outcome<ControlFlow<()>> {
        let (mut start, mut end) = bounds;
        if let Some((key, _)) = after {
            *(if is_forward { &mut start } else { &mut end }) = Bound::Excluded(key);
        }
        self.cell.with(|open| {
            let tree = match &self.tree {
                AnyTree::Plain(tree) => return read_rows(open, tree, (start, end), is_forward, visit),
                AnyTree::Multi(tree) => open.multi_tree(tree),
            };
            // First the other values of the key.
            if let Some((key, value)) = after {
                let rest = if is_forward {
                    (Bound::Excluded(value), Bound::Unbounded)
                } else {
                    (Bound::Unbounded, Bound::Excluded(value))
                };
                let mut values = tree.values_range(key, rest);
                while let Some(value) = step(&mut values, is_forward)? {
                    if visit(key.clone(), Ok(value)).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            let mut pairs = tree.range((start, end));
            while let Some((key, value)) = step(&mut pairs, is_forward)? {
                if visit(key, Ok(value)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

fn step<T>(
    rows: &mut impl DoubleEndedIterator<Item = braiddb::Result<T>>,
    is_forward: bool,
) -> braiddb::Result<Option<T>> {
    if is_forward { rows.next().transpose() } else { rows.next_back().transpose() }
}

/// `visit` breaks at a row whose value cannot be read.
fn read_rows(
    open: &Transaction,
    tree: &Tree,
    bounds: KeyBounds<'_>,
    is_forward: bool,
    mut visit: impl FnMut(Key, Outcome<Value>) -> ControlFlow<()>,
) -> Outcome<ControlFlow<()>> {
    let (mut start, mut end) = bounds;
    let mut rows = open.range(tree, (start, end));
    let mut last = None;
    let error = loop {
        match step(&mut rows, is_forward) {
            Ok(None) => return Ok(ControlFlow::Continue(())),
            Ok(Some((key, value))) => {
                last = Some(key.clone());
                if visit(key, Ok(value)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Err(error) => break error,
        }
    };
    let failure = Failure::from(error);
    if failure.is_of_value() {
        // The iterator does not return the failed row's key.
        if let Some(key) = &last {
            *(if is_forward { &mut start } else { &mut end }) = Bound::Excluded(key);
        }
        let mut cursor = open.cursor(tree);
        if go!(cursor, Move::into_bounds((start, end), is_forward)) && cursor.row().is_err() {
            return Ok(visit(cursor.key().into(), Err(failure)));
        }
    }
    Err(failure)
}
