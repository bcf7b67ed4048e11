//! Cursors: rows borrowed where they stand, in either direction, from wherever one likes.
//!
//! A cursor reads at one snapshot, which it holds, so its rows are a fixed sequence. Should a read find a damaged view,
//! which is then set aside, or should its state have been superseded for long, the cursor begins anew on the present
//! state, at a key that it keeps, and goes as many rows on as it had gone from there.

use super::database::Db;
use crate::{
    base::{Content, Cursor as _, EntryKind, EntryRef, Error, ReaderKind, Result, TreeId},
    db::{
        engine::{
            catalog::TreeState,
            key::{KeyBuf, TREE_ID_LEN},
            read_hold::Hold,
            root::Engine,
        },
        read::point_read::{Unresolved, has_expired},
    },
    platform::SystemTime,
    read::{ReadState, ScanCursor},
    table::blob::BlobValue,
};
use std::{cell::OnceCell, fmt, ops::ControlFlow, sync::Arc};

/// Steps after which a cursor keeps another key to begin anew from, and looks whether its state was superseded.
const STEPS_PER_LOOK: u64 = 1024;
/// How often one read tries again after a damaged view was set aside.
const HEAL_TRIES: usize = 64;

/// Where a cursor stands among the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first row, and after the last.
    Fresh,
    Row,
    BeforeFirst,
    AfterLast,
}

/// What a cursor's rows are counted from.
#[derive(Debug)]
struct Origin {
    /// The first row at or after `key`; else the last row before it.
    is_forward: bool,
    key: KeyBuf,
    /// No key is past the last tree: then the origin is the last row of all.
    is_end: bool,
    /// Rows gone forward from there, or backward if less than zero.
    steps: i64,
}

/// Reads the rows of a tree in order, from any key, forward and backward, as of one moment. Rows are borrowed, not copied.
///
/// A new cursor stands nowhere: [`next`](Cursor::next) takes it to the first row, [`prev`](Cursor::prev) to the last. What
/// it has read stays in memory as far as the rows it stands on go. It keeps old versions from being removed as a snapshot
/// does, so do not leave it lying about; [`refresh`](Cursor::refresh) takes it to the present.
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
    state: Arc<ReadState>,
    scan: ScanCursor,
    place: Place,
    origin: Origin,
    /// The value of the present row, if it stands in a blob or is made of operands, and was asked for.
    blob: OnceCell<BlobValue>,
    /// Whether the tree was dropped before this was made or refreshed. One dropped later is read as it was.
    is_gone: bool,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("snapshot", &self.hold.sequence()).finish_non_exhaustive()
    }
}

impl Cursor {
    /// A cursor over a tree as its users have it: not if it was dropped.
    pub(in crate::db) fn over(db: &Db, tree: &Arc<TreeState>, hold: Option<Hold>) -> Cursor {
        let engine = hold.as_ref().map_or(db.engine(), Hold::engine);
        let is_gone = tree.check_in(engine.log.incarnation).is_err();
        Cursor { is_gone, ..Cursor::new(db, tree, hold) }
    }

    /// A cursor over a tree that is known to have been there.
    pub(in crate::db) fn new(db: &Db, tree: &Arc<TreeState>, hold: Option<Hold>) -> Cursor {
        let engine = db.engine();
        let hold = hold.unwrap_or_else(|| Hold::now(engine, ReaderKind::Cursor));
        // After the hold: whatever the state has left out was not needed at its number. Before the first read, which asks whether
        // that has expired.
        let state = engine.cell.state.load_full();
        let scan = ScanCursor::new(&state, hold.sequence(), tree.id);
        let origin = Origin { is_forward: true, key: KeyBuf::new(tree.id, b""), is_end: false, steps: 0 };
        Cursor {
            db: db.clone(),
            tree: Arc::clone(tree),
            hold,
            state,
            scan,
            place: Place::Fresh,
            origin,
            blob: OnceCell::new(),
            is_gone: false,
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        self.db.engine()
    }

    fn tree_id(&self) -> TreeId {
        self.tree.id
    }

    /// Moves to the first row whose key is `key` or greater; whether there is one.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin(true, key.as_ref())
    }

    /// Moves to the last row whose key is less than `key`; whether there is one.
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.begin(false, key.as_ref())
    }

    /// Moves to the first row; whether there is one.
    pub fn seek_first(&mut self) -> Result<bool> {
        self.begin(true, b"")
    }

    /// Moves to the last row; whether there is one.
    pub fn seek_last(&mut self) -> Result<bool> {
        let end = self.tree_id().end_key();
        self.origin.key.set(&end.unwrap_or_default());
        self.origin.is_end = end.is_none();
        self.seek_origin(false)
    }

    /// Moves to the next row; whether there is one. After the last row it stays there.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a row borrows from its cursor, as no iterator's item can")]
    pub fn next(&mut self) -> Result<bool> {
        if self.scan.step_ahead(true) {
            return self.stepped_ahead(1);
        }
        match self.place {
            Place::Row => self.step(true),
            Place::AfterLast => Ok(false),
            Place::Fresh | Place::BeforeFirst => self.seek_first(),
        }
    }

    /// Moves to the row before; whether there is one. Before the first row it stays there.
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        if self.scan.step_ahead(false) {
            return self.stepped_ahead(-1);
        }
        match self.place {
            Place::Row => self.step(false),
            Place::BeforeFirst => Ok(false),
            Place::Fresh | Place::AfterLast => self.seek_last(),
        }
    }

    /// Shows `visit` the row it stands on and all that come after it, in order, until that breaks: the cursor stands on the row it broke at
    /// then, and otherwise after the last. A new cursor, and one before the first row, begins with the first. Yields what `visit` said last.
    ///
    /// It is [`Cursor::row`] and [`Cursor::next`] in turns, with less to do between two rows, and fails as they do, perhaps after rows were shown. Where the
    /// value of one record is the reason ([`Error::MergeFailed`]), the cursor stands on that record: [`Cursor::next`] goes on behind it. If `visit` panics, the cursor stands on that row or on one shown shortly before.
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
    ///     if key < b"2" { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert_eq!((flow, bytes, cursor.key()), (ControlFlow::Break(()), 6, &b"2"[..]));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn try_for_each<B>(&mut self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>) -> Result<ControlFlow<B>> {
        self.visit(true, visit)
    }

    /// [`Cursor::try_for_each`] going backward: with [`Cursor::prev`] instead of [`Cursor::next`]. A new cursor, and one after the last row, begins
    /// with the last.
    #[inline]
    pub fn try_for_each_back<B>(
        &mut self,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        self.visit(false, visit)
    }

    #[inline]
    fn visit<B>(
        &mut self,
        forward: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        let mut is_there = self.is_on_row() || self.step_to_row(forward)?;
        while is_there {
            let of_tree = |key: &[u8], value: &[u8]| visit(&key[TREE_ID_LEN..], value);
            let flow = match self.scan.visit_batch(forward, of_tree) {
                Some((steps, flow)) => {
                    self.origin.steps += if forward { i64::from(steps) } else { -i64::from(steps) };
                    flow
                }
                None => {
                    let (key, value) = self.row()?;
                    visit(key, value)
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
            is_there = self.step_to_row(forward)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// [`Cursor::next`] or [`Cursor::prev`].
    #[inline(never)]
    fn step_to_row(&mut self, forward: bool) -> Result<bool> {
        if forward { self.next() } else { self.prev() }
    }

    /// Whether it stands on a row.
    #[inline]
    pub fn is_on_row(&self) -> bool {
        self.place == Place::Row
    }

    /// The key of the row it stands on. Panics if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if let Some(key) = self.scan.key_in_batch() {
            return &key[TREE_ID_LEN..];
        }
        self.key_there()
    }

    /// [`Cursor::key`] where it was not decoded ahead, or of a source that takes turns with others.
    #[inline(never)]
    fn key_there(&self) -> &[u8] {
        if let Some((key, _)) = self.scan.row_ahead() {
            return &key[TREE_ID_LEN..];
        }
        assert!(self.is_on_row(), "the cursor stands on no row");
        &self.scan.entry().key[TREE_ID_LEN..]
    }

    /// The value of the row it stands on, read now if it is a large one. Panics if there is no row.
    #[inline]
    pub fn value(&self) -> Result<&[u8]> {
        Ok(self.row()?.1)
    }

    /// Key and value of the row it stands on. Panics if there is none. If the value cannot be had, for example since a merge function fails
    /// on it ([`Error::MergeFailed`]), [`Cursor::key`] names the record and [`Cursor::next`] goes on behind it.
    #[inline]
    pub fn row(&self) -> Result<(&[u8], &[u8])> {
        if let Some((key, value)) = self.scan.row_in_batch()
            && let Some(user_key) = key.get(TREE_ID_LEN..)
        {
            return Ok((user_key, value));
        }
        self.row_there()
    }

    /// [`Cursor::row`] where it was not decoded ahead, or is of a source that takes turns with others.
    #[inline(never)]
    fn row_there(&self) -> Result<(&[u8], &[u8])> {
        if let Some((key, value)) = self.scan.row_ahead() {
            return Ok((&key[TREE_ID_LEN..], value));
        }
        assert!(self.is_on_row(), "the cursor stands on no row");
        let entry = self.scan.entry_there();
        let mut value = entry.value;
        if entry.kind != EntryKind::Value {
            if let Some(Content { kind: EntryKind::Value, value, .. }) = Content::of(entry.kind, entry.value) {
                return Ok((&entry.key[TREE_ID_LEN..], value));
            }
            value = match self.blob.get() {
                Some(value) => value,
                None => {
                    let value = self.read_blob()?;
                    self.blob.get_or_init(|| value)
                }
            };
        }
        Ok((&entry.key[TREE_ID_LEN..], value))
    }

    /// When the value of the row it stands on expires, by the wall clock as it is now; `None` if it does not. For all that copies
    /// records: to put the value with [`crate::Tree::put_until`] keeps the time. A value that merge functions make of one that
    /// expires changes when that one does: the time is that moment. Panics if there is no row.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use std::time::{Duration, SystemTime};
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let sessions = db.tree("sessions")?;
    /// sessions.put_until(b"7f3a", b"ann", SystemTime::now() + Duration::from_secs(60))?;
    /// let (copy, mut cursor) = (db.tree("copy")?, sessions.cursor());
    /// while cursor.next()? {
    ///     let (key, value) = cursor.row()?;
    ///     match cursor.expires()? {
    ///         Some(time) => copy.put_until(key, value, time)?,
    ///         None => copy.put(key, value)?,
    ///     };
    /// }
    /// assert!(copy.get_with_expiry(b"7f3a")?.unwrap().1.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn expires(&self) -> Result<Option<SystemTime>> {
        Ok(self.expires_us()?.and_then(|us| self.engine().wall_time(us)))
    }

    /// [`Cursor::expires`] by the database's time.
    pub(in crate::db) fn expires_us(&self) -> Result<Option<u64>> {
        assert!(self.is_on_row(), "the cursor stands on no row");
        // Rows that were decoded ahead have no end.
        if self.scan.is_ahead() {
            return Ok(None);
        }
        let entry = self.scan.entry_there();
        match entry.kind {
            EntryKind::Expiring => Ok(Content::of(entry.kind, entry.value).and_then(|content| content.expires_us)),
            EntryKind::Merge => {
                let found = self.engine().get_unresolved(entry.key, Some(&self.hold))?;
                Ok(found.and_then(|found| found.expires_us))
            }
            _ => Ok(None),
        }
    }

    /// Whether the row it stands on is made of operands of merge functions.
    pub(in crate::db) fn is_merged(&self) -> bool {
        self.is_on_row() && !self.scan.is_ahead() && self.scan.entry_there().kind == EntryKind::Merge
    }

    /// The commit whose rows it shows.
    pub fn snapshot_sequence(&self) -> crate::base::SequenceNumber {
        self.hold.sequence()
    }

    /// Takes it to the present: it shows all that was committed before, and stands nowhere.
    pub fn refresh(&mut self) {
        let engine = Arc::clone(self.engine());
        self.place = Place::Fresh;
        self.blob.take();
        self.is_gone = self.tree.check().is_err();
        // Where nothing was committed, the hold is made new all the same: it is not to grow old.
        if self.hold.sequence() != engine.readers.snapshots.visible()
            || self.hold.held().taken_ns != engine.coarse_now_ns()
        {
            self.hold = Hold::now(&engine, ReaderKind::Cursor);
        }
        let state = engine.cell.state.load();
        if !Arc::ptr_eq(&state, &self.state) {
            self.state = arc_swap::Guard::into_inner(state);
        }
        self.scan.reset(&self.state, self.hold.sequence());
    }

    /// How many rows after this one have been decoded ahead and have user keys that begin so.
    pub(in crate::db) fn rows_after_with(&self, prefix: &[u8]) -> u32 {
        self.scan.rows_after(|key| key[TREE_ID_LEN..].starts_with(prefix))
    }

    /// Moves to the next row if that was decoded ahead.
    #[inline]
    pub(in crate::db) fn step_ahead(&mut self) -> bool {
        let is_there = self.scan.step_ahead(true);
        self.origin.steps += i64::from(is_there);
        is_there
    }

    /// Whether it stands on a row, and all after that are known to have user keys that differ within so many bytes.
    pub(in crate::db) fn is_last_with(&mut self, prefix_len: usize) -> bool {
        self.is_on_row() && self.scan.is_last_with(TREE_ID_LEN + prefix_len)
    }

    /// What it reads, and what it holds.
    pub(in crate::db) fn source(&self) -> (&Db, &Arc<TreeState>, &Hold) {
        (&self.db, &self.tree, &self.hold)
    }

    /// The internal key of the row it stands on.
    pub(in crate::db) fn internal_key(&self) -> &[u8] {
        self.scan.entry().key
    }

    /// Seeks by an internal key, within this tree or at its end.
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

    /// Fails if the database is closed, or superseded, and lets go of its state then.
    #[inline]
    fn check_open(&mut self) -> Result<()> {
        self.engine().health.check_open().inspect_err(|_| self.let_go())
    }

    /// Fails if the hold has expired; to be called after the state was loaded that is read from, and lets go of it then.
    #[inline]
    fn check_hold(&mut self) -> Result<()> {
        self.hold.check().inspect_err(|_| self.let_go())
    }

    #[cold]
    fn let_go(&mut self) {
        self.place = Place::Fresh;
        self.state = Arc::new(ReadState::empty());
        self.scan.reset(&self.state, self.hold.sequence());
    }

    /// After a step onto a row that was decoded ahead, in the direction of `by`.
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
            self.look()?;
        } else {
            self.check_hold()?;
        }
        self.origin.steps += if is_forward { 1 } else { -1 };
        let moved = if is_forward { self.scan.next() } else { self.scan.prev() };
        let passed = moved.and_then(|()| self.pass_expired(is_forward));
        self.arrive(is_forward, passed)
    }

    /// Keeps the present key, and goes over to the present state if that is another one.
    #[cold]
    fn look(&mut self) -> Result<()> {
        self.origin.key.set(self.scan.entry().key);
        (self.origin.is_forward, self.origin.is_end, self.origin.steps) = (true, false, 0);
        let state = self.engine().present_state().inspect_err(|_| self.let_go())?;
        let state = (!Arc::ptr_eq(&state, &self.state)).then(|| Arc::clone(&state));
        self.check_hold()?;
        let Some(state) = state else { return Ok(()) };
        self.state = state;
        self.scan.reset(&self.state, self.hold.sequence());
        let moved = self.replay();
        self.arrive(true, moved).map(|_| ())
    }

    /// After a move: heals what it met, and says whether there is a row of the tree.
    #[inline]
    fn arrive(&mut self, is_forward: bool, moved: Result<()>) -> Result<bool> {
        if let Err(e) = moved {
            self.heal(e)?;
        }
        // Only rows of the tree are decoded ahead.
        let is_row = self.scan.is_ahead()
            || self.scan.valid() && self.scan.entry_there().key.starts_with(&self.tree_id().first_key());
        self.place = match (is_row, is_forward) {
            (true, _) => Place::Row,
            (false, true) => Place::AfterLast,
            (false, false) => Place::BeforeFirst,
        };
        Ok(is_row)
    }

    /// Goes on as long as it stands on a row of the tree that has expired: such rows do not count.
    #[inline]
    fn pass_expired(&mut self, is_forward: bool) -> Result<()> {
        // What was decoded ahead has no end.
        if self.scan.is_ahead() || !self.scan.valid() || self.scan.entry_there().kind != EntryKind::Expiring {
            return Ok(());
        }
        self.pass_all_expired(is_forward)
    }

    #[cold]
    fn pass_all_expired(&mut self, is_forward: bool) -> Result<()> {
        let (tree, now_us) = (self.tree_id().first_key(), self.hold.held().taken_us);
        let is_passed = |entry: EntryRef<'_>| entry.key.starts_with(&tree) && has_expired(&entry, now_us);
        while self.scan.valid() && is_passed(self.scan.entry()) {
            if is_forward { self.scan.next()? } else { self.scan.prev()? }
        }
        Ok(())
    }

    /// Moves to the origin, and from there as many rows as the cursor had gone.
    fn replay(&mut self) -> Result<()> {
        // One guard for all that a seek touches: the ones made within cost nothing then.
        let _guard = crossbeam_epoch::pin();
        let Origin { is_forward, key, is_end, steps } = &self.origin;
        let (is_forward, steps) = (*is_forward, *steps);
        match (is_forward, is_end) {
            (true, _) => self.scan.seek_rows(key)?,
            (false, false) => self.scan.seek_before(key)?,
            (false, true) => self.scan.seek_last()?,
        }
        self.pass_expired(is_forward)?;
        if steps == 0 { Ok(()) } else { self.replay_steps() }
    }

    #[cold]
    fn replay_steps(&mut self) -> Result<()> {
        let steps = self.origin.steps;
        for _ in 0..steps.unsigned_abs() {
            if steps > 0 {
                self.scan.next()?
            } else {
                self.scan.prev()?
            }
            self.pass_expired(steps > 0)?;
        }
        Ok(())
    }

    /// Whether the row it stands on was decoded ahead with others of one source.
    #[cfg(test)]
    pub(in crate::db) fn is_in_batch(&self) -> bool {
        self.scan.key_in_batch().is_some()
    }

    /// What a damaged view makes it do.
    #[cfg(test)]
    pub(in crate::db) fn begin_anew(&mut self) -> Result<()> {
        self.state = self.engine().cell.state.load_full();
        self.scan = ScanCursor::new(&self.state, self.hold.sequence(), self.tree.id);
        let moved = self.replay();
        self.arrive(true, moved).map(|_| ())
    }

    #[cold]
    fn heal(&mut self, mut error: Error) -> Result<()> {
        self.place = Place::Fresh;
        for _ in 0..HEAL_TRIES {
            self.engine().heal(error)?;
            self.state = Arc::clone(&*self.engine().present_state()?);
            self.check_hold()?;
            self.scan = ScanCursor::new(&self.state, self.hold.sequence(), self.tree.id);
            match self.replay() {
                Ok(()) => return Ok(()),
                Err(e) => error = e,
            }
        }
        Err(error)
    }

    #[cold]
    fn read_blob(&self) -> Result<BlobValue> {
        let engine = self.engine();
        let entry = self.scan.entry();
        let now_us = self.hold.held().taken_us;
        let e = match engine.resolve(&self.state, Unresolved::of(&entry), now_us) {
            Ok(Some(value)) => return Ok(value),
            // Rows that have expired are passed over.
            Ok(None) => Error::corruption(&engine.dir, 0, "a row was shown that has expired"),
            Err(e) => e,
        };
        // Whoever opened the database since it was closed may have removed what was to be read.
        engine.health.check_open()?;
        if entry.kind != EntryKind::Merge {
            return Err(e);
        }
        // What is beneath operands is looked up, and a damaged view set aside on the way.
        match engine.get_unresolved(entry.key, Some(&self.hold))? {
            Some(resolved) => Ok(resolved.value),
            None => Err(e),
        }
    }
}
