//! Cursors of transactions: a range scan forward or backward, replaced at each turn.

use super::{
    handle::Transaction,
    iter::{Row, TransactionIter},
};
use crate::{
    base::{Result, internal_key},
    db::{engine::key::TREE_ID_LEN, handles::tree::Tree},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Unpositioned: `next` moves to the first row, `prev` to the last.
    Fresh,
    Row,
    BeforeFirst,
    AfterLast,
}

/// Reads the rows of a tree in either direction, with the transaction's own writes: see
/// [`Transaction::cursor`].
///
/// Moves as a [`Cursor`](crate::Cursor) does. It copies each row that it reaches, so a later write
/// of the same key does not change the row. Later writes appear in the rows that follow. All keys
/// that it passes count as read.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let albums = db.tree("albums")?;
/// albums.extend([("1", "Ten"), ("3", "Vitalogy")])?;
/// db.update(|tx| {
///     let mut cursor = tx.cursor(&albums);
///     assert!(cursor.seek("1")?);
///     tx.put(&albums, "2", "Vs.")?;
///     assert!(cursor.next()?);
///     assert_eq!(cursor.row()?, (&b"2"[..], &b"Vs."[..]));
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct TransactionCursor<'t> {
    transaction: &'t Transaction,
    tree: Tree,
    /// The rows after the current one, and their direction.
    rows: Option<(TransactionIter<'t>, bool)>,
    place: Place,
    row: Option<Row>,
}

impl std::fmt::Debug for TransactionCursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionCursor").finish_non_exhaustive()
    }
}

impl Transaction {
    /// Returns a cursor over all pairs, with the transaction's own writes.
    pub fn cursor(&self, tree: &Tree) -> TransactionCursor<'_> {
        TransactionCursor { transaction: self, tree: tree.clone(), rows: None, place: Place::Fresh, row: None }
    }
}

impl TransactionCursor<'_> {
    /// Moves to the first row with a key at or after `key`. Returns false if there is none.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin(true, Some(self.internal(key.as_ref())))
    }

    /// Moves to the last row with a key before `key`. Returns false if there is none.
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin(false, Some(self.internal(key.as_ref())))
    }

    /// Moves to the first row.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.begin(true, None)
    }

    /// Moves to the last row.
    pub fn seek_last(&mut self) -> Result<bool> {
        self.begin(false, None)
    }

    /// Moves to the next row. After the last row it stays there and returns false.
    #[expect(clippy::should_implement_trait, reason = "a row borrows from its cursor, as no iterator's item can")]
    pub fn next(&mut self) -> Result<bool> {
        match (self.place, &self.row) {
            (Place::AfterLast, _) => Ok(false),
            (Place::Row, Some((key, _))) if !self.goes(true) => {
                let after = [key.as_slice(), &[0]].concat();
                self.begin(true, Some(after))
            }
            (Place::Row, _) => self.step(true),
            (Place::Fresh | Place::BeforeFirst, _) => self.seek_first(),
        }
    }

    /// Moves to the previous row. Before the first row it stays there and returns false.
    pub fn prev(&mut self) -> Result<bool> {
        match (self.place, &self.row) {
            (Place::BeforeFirst, _) => Ok(false),
            (Place::Row, Some((key, _))) if !self.goes(false) => {
                let key = key.clone();
                self.begin(false, Some(key))
            }
            (Place::Row, _) => self.step(false),
            (Place::Fresh | Place::AfterLast, _) => self.seek_last(),
        }
    }

    /// Returns true if the cursor is on a row.
    pub fn is_on_row(&self) -> bool {
        self.place == Place::Row
    }

    /// Returns the current key. Panics if there is no row.
    pub fn key(&self) -> &[u8] {
        &self.there().0[TREE_ID_LEN..]
    }

    /// Returns the current value. Panics if there is no row.
    pub fn value(&self) -> Result<&[u8]> {
        Ok(self.row()?.1)
    }

    /// Returns the current key and value. Panics if there is no row. After an error about the value
    /// ([`crate::Error::MergeFailed`]), [`TransactionCursor::key`] still works and
    /// [`TransactionCursor::next`] continues.
    pub fn row(&self) -> Result<(&[u8], &[u8])> {
        match &self.there().1 {
            Ok(value) => Ok((self.key(), value)),
            Err(e) => Err(e.duplicate()),
        }
    }

    fn there(&self) -> &Row {
        let Some(row) = &self.row else { panic!("the cursor stands on no row") };
        row
    }

    fn internal(&self, key: &[u8]) -> Vec<u8> {
        let mut internal = Vec::new();
        internal_key(self.tree.state().id, key, &mut internal);
        internal
    }

    fn goes(&self, is_forward: bool) -> bool {
        matches!(self.rows, Some((_, forward)) if forward == is_forward)
    }

    /// Begins at an internal key, inclusive forward and exclusive backward, or at the end of the
    /// tree.
    fn begin(&mut self, is_forward: bool, from: Option<Vec<u8>>) -> Result<bool> {
        let (transaction, tree) = (self.transaction, self.tree.state());
        let (first, end) = (tree.id.first_key().to_vec(), tree.id.end_key().map(|end| end.to_vec()));
        let (start, end) = match (is_forward, from) {
            (true, Some(from)) => (from, end),
            (false, Some(from)) => (first, Some(from)),
            (_, None) => (first, end),
        };
        let rows = TransactionIter::new(transaction, self.tree.db(), tree, start, end);
        self.rows = Some((rows, is_forward));
        self.step(is_forward)
    }

    fn step(&mut self, is_forward: bool) -> Result<bool> {
        (self.place, self.row) = (Place::Fresh, None);
        let Some((rows, _)) = &mut self.rows else { return Ok(false) };
        let row = rows.step(is_forward).inspect_err(|_| self.rows = None)?;
        self.place = match (&row, is_forward) {
            (Some(_), _) => Place::Row,
            (None, true) => Place::AfterLast,
            (None, false) => Place::BeforeFirst,
        };
        self.row = row;
        Ok(self.row.is_some())
    }
}
