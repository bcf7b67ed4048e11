//! Streams of transactions: blobs written before the commit.

use super::handle::Transaction;
use crate::{
    base::{Content, EntryKind, Result},
    db::{
        engine::key::KeyBuf,
        handles::{
            expiry,
            streams::{
                reader::{self, StreamReader},
                writer::PendingStream,
            },
            tree::Tree,
        },
        write::{
            pending_blobs::PendingBlobs,
            piece_writer::{Base, Placed},
        },
    },
    table::blob::Pieces,
    txn::Written,
};
use std::{io::Read, ops::Range, sync::Arc};

impl Transaction {
    /// Sets the value of `key` to the contents of `reader`: see [`Tree::put_stream`]. Writes blobs
    /// now and frees them without a commit.
    pub fn put_stream(&self, tree: &Tree, key: impl AsRef<[u8]>, reader: impl Read) -> Result<()> {
        self.check_tree(tree.db(), tree.state())?;
        let mut writer = tree.stream_writer(&key)?;
        writer.read_from(reader)?;
        let (placed, pending) = writer.into_pieces().finish()?;
        let placed = placed.expiring(expiry::default_expiry(self.db().engine(), tree.state()));
        self.write_placed(tree, &KeyBuf::of(tree.state(), key.as_ref())?, placed, pending)
    }

    /// Sets the stream's key to its value, which was written before the transaction began.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let films = db.tree("films")?;
    /// let film = films.write_stream(b"1", &b"The Void"[..])?; // may take long
    /// let tx = db.begin()?;
    /// assert!(!tx.contains(&films, b"1")?);
    /// tx.put_pending_stream(film)?;
    /// tx.commit()?; // fails if the film was added meanwhile
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_pending_stream(&self, stream: PendingStream) -> Result<()> {
        let (tree, key, placed, pending) = stream.into_parts();
        self.check_tree(tree.db(), tree.state())?;
        let pending = Arc::into_inner(pending).expect("a pending stream is the only owner of its blobs");
        self.write_placed(&tree, &KeyBuf::of(tree.state(), &key)?, placed, pending)
    }

    /// Appends the contents of `reader`: see [`Tree::append_stream`]. Counts as a read of the key.
    pub fn append_stream(&self, tree: &Tree, key: impl AsRef<[u8]>, reader: impl Read) -> Result<()> {
        self.check_tree(tree.db(), tree.state())?;
        let mut writer = tree.stream_writer(&key)?;
        writer.read_from(reader)?;
        let (tail, mut pending) = writer.into_pieces().into_tail()?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        let own = self.writes().borrow().get(&key).cloned();
        let (base, expires_us) = match own {
            None => {
                self.note_key(&key)?;
                let found = reader::find_and_pin(self.db().engine(), &key, Some(self.hold()), &mut pending)?;
                found.map_or((None, None), |(base, expires_us)| (Some(base), expires_us))
            }
            // This transaction pins the files of its own write.
            Some(Written::Placed(kind, value, _)) => {
                let placed = self.placed(kind, &value)?;
                placed.map_or((None, None), |(base, expires_us)| (Some(base), expires_us))
            }
            Some(written) => {
                let expires_us = self.end_of(&key, &written)?;
                (self.resolve(&key, written)?.map(Base::Value), expires_us)
            }
        };
        let expires_us =
            if base.is_none() { expiry::default_expiry(self.db().engine(), tree.state()) } else { expires_us };
        let placed = tail.onto(base, &mut pending)?.expiring(expires_us);
        self.write_placed(tree, &key, placed, pending)
    }

    pub(super) fn write_placed(&self, tree: &Tree, key: &KeyBuf, placed: Placed, pending: PendingBlobs) -> Result<()> {
        self.make_room(key.len() + placed.value.len())?;
        self.touch(tree.state());
        let written = match placed.kind {
            EntryKind::Value => Written::Value(placed.value),
            kind => Written::Placed(kind, placed.value, placed.len),
        };
        self.writes().borrow_mut().set(key, written);
        self.streams.borrow_mut().absorb(pending);
        Ok(())
    }

    /// Decodes an own write; `None` if it has expired.
    fn placed(&self, kind: EntryKind, value: &[u8]) -> Result<Option<(Base, Option<u64>)>> {
        let blobs = &self.db().engine().storage.blobs;
        let content = Content::of(kind, value).ok_or_else(|| blobs.misunderstood())?;
        if content.expires_us.is_some_and(|expires_us| expires_us <= self.hold().held().taken_us) {
            return Ok(None);
        }
        let base = match content.kind {
            EntryKind::Value => Base::Value(content.value.to_vec()),
            _ => Base::Pieces(Pieces::of(&content).ok_or_else(|| blobs.misunderstood())?),
        };
        Ok(Some((base, content.expires_us)))
    }

    pub(in crate::db) fn read_placed(&self, kind: EntryKind, value: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.placed(kind, value)? {
            None => Ok(None),
            Some((Base::Value(value), _)) => Ok(Some(value)),
            Some((Base::Pieces(pieces), _)) => self.db().engine().storage.blobs.read_pieces(&pieces).map(Some),
        }
    }

    pub(in crate::db) fn take_into_memory(&self, key: &KeyBuf) -> Result<()> {
        let own = self.writes().borrow().get(key).cloned();
        if let Some(written @ Written::Placed(_, _, len)) = own {
            self.make_room(usize::try_from(len).unwrap_or(usize::MAX / 2))?;
            if let Some(value) = self.resolve(key, written)? {
                self.writes().borrow_mut().set(key, Written::Value(value));
            }
        }
        Ok(())
    }

    /// Opens a value for reading in parts.
    pub fn stream(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<StreamReader>> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        let own = self.writes().borrow().get(&key).cloned();
        match own {
            None => {
                self.note_key(&key)?;
                StreamReader::open(self.db(), key, self.hold().clone())
            }
            Some(Written::Placed(kind, value, _)) => {
                self.hold().check()?;
                let pieces = match self.placed(kind, &value)? {
                    None => return Ok(None),
                    Some((Base::Value(value), _)) => return Ok(Some(StreamReader::whole(self.db(), value))),
                    Some((Base::Pieces(pieces), _)) => pieces,
                };
                let mut pending = PendingBlobs::new(self.db().engine());
                let are_known = pending.pin(&pieces);
                assert!(are_known, "the files of a transaction's streams stay as long as it does");
                Ok(Some(StreamReader::own(self.db(), pieces, pending)))
            }
            Some(written) => {
                self.hold().check()?;
                let value = self.resolve(&key, written)?;
                Ok(value.map(|value| StreamReader::whole(self.db(), value)))
            }
        }
    }

    /// Reads a byte range, clipped to the value's length.
    pub fn read_range(&self, tree: &Tree, key: impl AsRef<[u8]>, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.stream(tree, key)?.map(|mut stream| stream.read_range(range)).transpose()
    }
}
