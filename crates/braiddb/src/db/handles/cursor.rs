//! Cursors: borrowed rows in either direction at one snapshot.
//! A position is a key plus a number of steps, since a snapshot never changes. After a damaged view
//! or in a superseded read state, the cursor reopens on the latest state and replays its position.

use super::database::Db;
use crate::{
    base::{Content, Cursor as _, EntryKind, EntryRef, ReaderKind, Result, TreeId},
    db::{
        engine::{
            catalog::TreeState,
            key::{KeyBuf, TREE_ID_LEN},
            read_hold::Hold,
            root::Engine,
        },
        read::point_read::has_expired,
    },
    read::{PooledScan, ReadState, RowsAhead, StateScan},
    table::blob::BlobValue,
};
use std::{cell::OnceCell, fmt, ops::ControlFlow, sync::Arc};

mod replay;
mod value;

/// Steps between checks for a newer read state; also the maximum steps of a replay.
const STEPS_PER_LOOK: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Unpositioned: `next` moves to the first row, `prev` to the last.
    Fresh,
    Row,
    BeforeFirst,
    AfterLast,
}

#[derive(Debug)]
struct Origin {
    is_forward: bool,
    key: KeyBuf,
    /// The largest tree id has no end key: start at the last row of all.
    is_end: bool,
    steps: i64,
}

/// Reads the rows of a tree in either direction at one snapshot. Rows are borrowed, not copied.
///
/// On a new cursor [`next`](Cursor::next) moves to the first row and [`prev`](Cursor::prev) to the
/// last. A cursor pins old versions, as a snapshot does, so drop idle ones or
/// [`refresh`](Cursor::refresh) them.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let albums = db.tree("albums")?;
/// albums.put(b"1", b"Ten")?;
/// albums.put(b"2", b"Vs.")?;
/// let mut cursor = albums.cursor();
/// assert!(cursor.seek(b"15")?);
/// assert_eq!(cursor.row()?, (&b"2"[..], &b"Vs."[..]));
/// assert!(cursor.prev()?);
/// assert_eq!(cursor.key(), b"1");
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    db: Db,
    tree: Arc<TreeState>,
    hold: Hold,
    scan: PooledScan,
    place: Place,
    origin: Origin,
    /// Value of the current row, if read from a blob or merged.
    blob: OnceCell<BlobValue>,
    /// The tree was dropped before the cursor was created or refreshed. Later drops have no effect.
    is_gone: bool,
}

fn new_scan(engine: &Engine, tree: TreeId, hold: &Hold) -> Box<StateScan> {
    // INVARIANT S1: its state is the present one, so it has all that the hold needs.
    if let Some(scan) = engine.cell.resting.take(hold.sequence(), tree) {
        return scan;
    }
    let age = engine.cell.resting.changes();
    StateScan::new(engine.cell.state.load_full(), age, hold.sequence(), tree)
}

impl Drop for Cursor {
    /// Returns the scan to the pool.
    fn drop(&mut self) {
        if let Some(scan) = self.scan.take() {
            self.db.engine().cell.resting.leave(scan);
        }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("snapshot", &self.hold.sequence()).finish_non_exhaustive()
    }
}

impl Cursor {
    /// The cursor fails if the tree was dropped.
    pub(in crate::db) fn over(db: &Db, tree: &Arc<TreeState>, hold: Option<Hold>) -> Cursor {
        let engine = hold.as_ref().map_or(db.engine(), Hold::engine);
        let is_gone = tree.check_in(engine.log.incarnation).is_err();
        let mut cursor = Cursor::new(db, tree, hold);
        cursor.is_gone = is_gone;
        cursor
    }

    pub(in crate::db) fn new(db: &Db, tree: &Arc<TreeState>, hold: Option<Hold>) -> Cursor {
        let engine = db.engine();
        let hold = hold.unwrap_or_else(|| Hold::now(engine, ReaderKind::Cursor));
        Cursor::with(db.clone(), Arc::clone(tree), hold)
    }

    #[inline]
    pub(in crate::db) fn with(db: Db, tree: Arc<TreeState>, hold: Hold) -> Cursor {
        // After the hold: the state retains all versions that the hold needs. Before the first
        // read, which checks whether the hold expired.
        let scan = PooledScan::new(new_scan(db.engine(), tree.id, &hold));
        let origin = Origin { is_forward: true, key: KeyBuf::new(tree.id, b""), is_end: false, steps: 0 };
        Cursor { db, tree, hold, scan, place: Place::Fresh, origin, blob: OnceCell::new(), is_gone: false }
    }

    /// Drops the cursor, and returns the iterator's buffers to the pool with the scan.
    pub(in crate::db) fn leave_scan(mut self, ahead: RowsAhead) {
        self.scan.ahead = ahead;
    }

    pub(in crate::db) fn take_ahead(&mut self) -> RowsAhead {
        std::mem::take(&mut self.scan.ahead)
    }

    fn engine(&self) -> &Arc<Engine> {
        self.db.engine()
    }

    fn tree_id(&self) -> TreeId {
        self.tree.id
    }

    /// Moves to the first row with a key at or after `key`. Returns false if there is none.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin(true, key.as_ref())
    }

    /// Moves to the last row with a key before `key`. Returns false if there is none.
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin(false, key.as_ref())
    }

    /// Moves to the first row.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.begin(true, b"")
    }

    /// Moves to the last row.
    pub fn seek_last(&mut self) -> Result<bool> {
        let end = self.tree_id().end_key();
        self.origin.key.set(&end.unwrap_or_default());
        self.origin.is_end = end.is_none();
        self.seek_origin(false)
    }

    /// Moves to the next row. After the last row it stays there and returns false.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a row borrows from its cursor, as no iterator's item can")]
    pub fn next(&mut self) -> Result<bool> {
        if self.scan.cursor.step_ahead(true) {
            return self.stepped_ahead(1);
        }
        match self.place {
            Place::Row => self.step(true),
            Place::AfterLast => Ok(false),
            Place::Fresh | Place::BeforeFirst => self.seek_first(),
        }
    }

    /// Moves to the previous row. Before the first row it stays there and returns false.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        if self.scan.cursor.step_ahead(false) {
            return self.stepped_ahead(-1);
        }
        match self.place {
            Place::Row => self.step(false),
            Place::BeforeFirst => Ok(false),
            Place::Fresh | Place::AfterLast => self.seek_last(),
        }
    }

    /// Calls `visit` with the current and all later rows until it breaks, and returns its last
    /// result. The cursor stays on the row that broke; otherwise it is after the last. A new
    /// cursor, or one before the first row, starts at the first row.
    ///
    /// Equivalent to [`Cursor::row`] and [`Cursor::next`] in turn, but faster. An error may follow
    /// visited rows; if it concerns one value ([`crate::Error::MergeFailed`]), [`Cursor::next`]
    /// continues after it. If `visit` panics, the cursor is on that row or on one visited shortly
    /// before.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// # let db = braiddb::Db::builder().open_in_memory()?;
    /// # let albums = db.tree("albums")?;
    /// use std::ops::ControlFlow;
    ///
    /// albums.put(b"1", b"Ten")?;
    /// albums.put(b"2", b"Vs.")?;
    /// let (mut cursor, mut bytes) = (albums.cursor(), 0);
    /// let flow = cursor.try_for_each(|key, value| {
    ///     bytes += value.len();
    ///     if key < &b"2"[..] { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert_eq!((flow, bytes, cursor.key()), (ControlFlow::Break(()), 6, &b"2"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn try_for_each<B>(&mut self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>) -> Result<ControlFlow<B>> {
        self.visit(true, visit)
    }

    /// Runs [`Cursor::try_for_each`] backward, by default from the last row.
    #[inline]
    pub fn try_for_each_back<B>(
        &mut self,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        self.visit(false, visit)
    }

    #[inline]
    fn visit<B>(&mut self, forward: bool, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>) -> Result<ControlFlow<B>> {
        Ok(self.visit_rows::<false, B>(forward, visit)?.unwrap_or(ControlFlow::Continue(())))
    }

    /// Stops at a value that is not in its row, and returns `None`.
    #[inline]
    pub(in crate::db) fn visit_plain<B>(
        &mut self,
        forward: bool,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>> {
        self.visit_rows::<true, B>(forward, visit)
    }

    #[inline(always)]
    fn visit_rows<const PLAIN: bool, B>(
        &mut self,
        forward: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>> {
        let mut is_there = self.is_on_row() || self.step_to_row(forward)?;
        while is_there {
            let of_tree = |key: &[u8], value: &[u8]| visit(&key[TREE_ID_LEN..], value);
            let flow = match self.scan.cursor.visit_batch(forward, of_tree) {
                Some((steps, flow)) => {
                    self.origin.steps += if forward { i64::from(steps) } else { -i64::from(steps) };
                    flow
                }
                None if PLAIN && !self.is_plain() => return Ok(None),
                None => {
                    let (key, value) = self.row()?;
                    visit(key, value)
                }
            };
            if flow.is_break() {
                return Ok(Some(flow));
            }
            is_there = self.step_to_row(forward)?;
        }
        Ok(Some(ControlFlow::Continue(())))
    }

    /// The value is in the row: no blob, and nothing to merge.
    fn is_plain(&self) -> bool {
        if self.scan.cursor.is_ahead() {
            return true;
        }
        let entry = self.scan.cursor.entry_there();
        let kind = Content::of(entry.kind, entry.value).map(|content| content.kind);
        entry.kind == EntryKind::Value || kind == Some(EntryKind::Value)
    }

    #[inline(never)]
    fn step_to_row(&mut self, forward: bool) -> Result<bool> {
        if forward { self.next() } else { self.prev() }
    }

    /// Returns true if the cursor is on a row.
    #[inline]
    pub fn is_on_row(&self) -> bool {
        self.place == Place::Row
    }

    /// Returns the current key. Panics if there is no row.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if let Some(key) = self.scan.cursor.key_in_batch() {
            return &key[TREE_ID_LEN..];
        }
        self.key_there()
    }

    #[inline(never)]
    fn key_there(&self) -> &[u8] {
        if let Some((key, _)) = self.scan.cursor.row_ahead() {
            return &key[TREE_ID_LEN..];
        }
        assert!(self.is_on_row(), "the cursor stands on no row");
        &self.scan.cursor.entry().key[TREE_ID_LEN..]
    }

    /// Returns the current value, reading a large one now. Panics if there is no row.
    #[inline]
    pub fn value(&self) -> Result<&[u8]> {
        Ok(self.row()?.1)
    }

    /// Returns the current key and value. Panics if there is no row. After an error about the value
    /// ([`crate::Error::MergeFailed`]), [`Cursor::key`] still works and [`Cursor::next`] continues.
    #[inline]
    pub fn row(&self) -> Result<(&[u8], &[u8])> {
        if let Some((key, value)) = self.scan.cursor.row_in_batch()
            && let Some(user_key) = key.get(TREE_ID_LEN..)
        {
            return Ok((user_key, value));
        }
        self.row_there()
    }

    /// Returns the snapshot's sequence number.
    pub fn snapshot_sequence(&self) -> crate::base::SequenceNumber {
        self.hold.sequence()
    }

    /// Moves to the latest snapshot and resets the position.
    pub fn refresh(&mut self) {
        let engine = Arc::clone(self.engine());
        self.place = Place::Fresh;
        self.blob.take();
        self.is_gone = self.tree.check().is_err();
        // Renew the hold even without commits: readers have a maximum age.
        if self.hold.sequence() != engine.readers.snapshots.visible()
            || self.hold.held().taken_ns != engine.coarse_now_ns()
        {
            self.hold = Hold::now(&engine, ReaderKind::Cursor);
        }
        let state = engine.cell.state.load();
        if !Arc::ptr_eq(&state, &self.scan.state) {
            self.scan.move_to(arc_swap::Guard::into_inner(state));
        }
        self.scan.reset(self.hold.sequence());
    }

    pub(in crate::db) fn rows_after_with(&self, prefix: &[u8]) -> u32 {
        self.scan.cursor.rows_after(|key| key[TREE_ID_LEN..].starts_with(prefix))
    }

    #[inline]
    pub(in crate::db) fn step_ahead(&mut self) -> bool {
        let is_there = self.scan.cursor.step_ahead(true);
        self.origin.steps += i64::from(is_there);
        is_there
    }

    /// Returns true if all later rows are known to differ in the first `prefix_len` user key bytes.
    pub(in crate::db) fn is_last_with(&mut self, prefix_len: usize) -> bool {
        self.is_on_row() && self.scan.cursor.is_last_with(TREE_ID_LEN + prefix_len)
    }

    pub(in crate::db) fn source(&self) -> (&Db, &Arc<TreeState>, &Hold) {
        (&self.db, &self.tree, &self.hold)
    }

    pub(in crate::db) fn internal_key(&self) -> &[u8] {
        self.scan.cursor.entry().key
    }

    pub(in crate::db) fn begin_at(&mut self, is_forward: bool, internal: &[u8]) -> Result<bool> {
        self.origin.key.set(internal);
        self.origin.is_end = false;
        self.seek_origin(is_forward)
    }

    #[inline]
    fn begin(&mut self, is_forward: bool, key: &[u8]) -> Result<bool> {
        self.origin.key.set_in(self.tree_id(), key);
        self.origin.is_end = false;
        self.seek_origin(is_forward)
    }

    #[inline]
    fn seek_origin(&mut self, is_forward: bool) -> Result<bool> {
        self.check()?;
        self.origin.is_forward = is_forward;
        self.origin.steps = 0;
        let moved = self.replay();
        self.arrive(is_forward, moved)
    }

    fn check(&mut self) -> Result<()> {
        self.blob.take();
        let is_there = if self.is_gone { self.tree.check_in(self.hold.engine().log.incarnation) } else { Ok(()) };
        is_there.inspect_err(|_| self.place = Place::Fresh)?;
        self.check_open()?;
        self.check_hold()
    }

    /// Releases the state if the database is closed or superseded.
    #[inline]
    fn check_open(&mut self) -> Result<()> {
        self.engine().health.check_open().inspect_err(|_| self.release())
    }

    /// Releases the state if the hold has expired. Call after loading the state.
    #[inline]
    fn check_hold(&mut self) -> Result<()> {
        self.hold.check().inspect_err(|_| self.release())
    }

    #[cold]
    fn release(&mut self) {
        self.place = Place::Fresh;
        self.scan.move_to(Arc::new(ReadState::empty()));
        self.scan.reset(self.hold.sequence());
    }

    #[inline]
    #[expect(clippy::unnecessary_wraps, reason = "it is what a step returns")]
    fn stepped_ahead(&mut self, by: i64) -> Result<bool> {
        self.origin.steps += by;
        Ok(true)
    }

    fn step(&mut self, is_forward: bool) -> Result<bool> {
        self.blob.take();
        self.check_open()?;
        if self.origin.steps.unsigned_abs() >= STEPS_PER_LOOK {
            self.follow_state()?;
        } else {
            self.check_hold()?;
        }
        self.origin.steps += if is_forward { 1 } else { -1 };
        let moved = if is_forward { self.scan.cursor.next() } else { self.scan.cursor.prev() };
        let passed = moved.and_then(|()| self.pass_expired(is_forward));
        self.arrive(is_forward, passed)
    }

    #[inline]
    fn arrive(&mut self, is_forward: bool, moved: Result<()>) -> Result<bool> {
        if let Err(e) = moved {
            self.heal(e)?;
        }
        // Only rows of the tree are decoded ahead.
        let is_row = self.scan.cursor.is_ahead()
            || self.scan.cursor.valid() && self.scan.cursor.entry_there().key.starts_with(&self.tree_id().first_key());
        self.place = match (is_row, is_forward) {
            (true, _) => Place::Row,
            (false, true) => Place::AfterLast,
            (false, false) => Place::BeforeFirst,
        };
        Ok(is_row)
    }

    #[inline]
    fn pass_expired(&mut self, is_forward: bool) -> Result<()> {
        if self.scan.cursor.is_ahead()
            || !self.scan.cursor.valid()
            || self.scan.cursor.entry_there().kind != EntryKind::Expiring
        {
            return Ok(());
        }
        self.pass_all_expired(is_forward)
    }

    #[cold]
    fn pass_all_expired(&mut self, is_forward: bool) -> Result<()> {
        let (tree, now_us) = (self.tree_id().first_key(), self.hold.held().taken_us);
        let is_passed = |entry: EntryRef<'_>| entry.key.starts_with(&tree) && has_expired(&entry, now_us);
        while self.scan.cursor.valid() && is_passed(self.scan.cursor.entry()) {
            if is_forward { self.scan.cursor.next()? } else { self.scan.cursor.prev()? }
        }
        Ok(())
    }

    fn replay(&mut self) -> Result<()> {
        // Pin once for the whole seek: nested pins are free.
        let _guard = crossbeam_epoch::pin();
        let Origin { is_forward, key, is_end, steps } = &self.origin;
        let (is_forward, steps) = (*is_forward, *steps);
        match (is_forward, is_end) {
            (true, _) => self.scan.cursor.seek_rows(key)?,
            (false, false) => self.scan.cursor.seek_before(key)?,
            (false, true) => self.scan.cursor.seek_last()?,
        }
        self.pass_expired(is_forward)?;
        if steps == 0 { Ok(()) } else { self.replay_steps() }
    }

    #[cfg(test)]
    pub(in crate::db) fn is_in_batch(&self) -> bool {
        self.scan.cursor.key_in_batch().is_some()
    }
}
