//! Values that expire.
//!
//! An entry stores its expiry time, by the database's clock. From then on reads skip it, and
//! flushes and merges treat it as a tombstone once no reader can see it. A snapshot compares with
//! the time at which it was taken, so its view never changes.

use super::{batch::Batch, snapshot::Snapshot, transaction::handle::Transaction, tree::Tree};
use crate::{
    base::{Content, EntryKind, Error, Result, SequenceNumber},
    codec::{Base, Operands},
    db::{
        engine::{catalog::TreeState, key::KeyBuf, read_hold::Hold, root::Engine, tree_options::micros},
        read::point_read::{self, Resolved},
        record::bytes::Value,
    },
    platform::{SystemTime, UNIX_EPOCH},
    txn::Written,
};
use std::time::Duration;

/// Microseconds since 1970. Earlier times become 0 (expired); unrepresentable ones never expire.
pub fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, micros)
}

pub(in crate::db) fn expiry_at(engine: &Engine, time: SystemTime) -> u64 {
    since_1970(time).saturating_add(engine.ahead_us())
}

/// `None` if out of range.
pub(in crate::db) fn wall_time(engine: &Engine, us: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(us.saturating_sub(engine.ahead_us())))
}

fn expiring(value: &[u8], expires_us: u64) -> Vec<u8> {
    let mut entry = Vec::with_capacity(9 + value.len());
    Content { kind: EntryKind::Value, value, expires_us: Some(expires_us) }.entry(&mut entry);
    entry
}

pub fn check_can_merge(tree: &TreeState) -> Result<()> {
    if tree.options.ttl_us().is_some() {
        let reason =
            "values of the tree expire (TreeOptions::ttl), and operands of merge functions cannot: use fetch_update";
        return Err(Error::InvalidArgument(reason.to_owned()));
    }
    Ok(())
}

pub(in crate::db) fn expiry_after(engine: &Engine, ttl: Duration) -> u64 {
    engine.now().us.saturating_add(micros(ttl))
}

pub fn default_expiry(engine: &Engine, tree: &TreeState) -> Option<u64> {
    tree.options.ttl_us().map(|ttl_us| engine.now().us.saturating_add(ttl_us))
}

#[inline]
pub fn with_default_expiry(engine: &Engine, tree: &TreeState, value: &[u8]) -> Option<Vec<u8>> {
    default_expiry(engine, tree).map(|expires_us| expiring(value, expires_us))
}

pub(in crate::db) fn get_with_expiry(
    engine: &Engine,
    key: &[u8],
    snapshot: Option<&Hold>,
) -> Result<Option<(Value, Option<SystemTime>)>> {
    engine.health.check_open()?;
    let found = point_read::get_unresolved(engine, key, snapshot)?;
    Ok(found.map(|Resolved { value, expires_us, .. }| {
        (Value::new(value.into_vec()), expires_us.and_then(|us| wall_time(engine, us)))
    }))
}

impl Tree {
    /// Sets a value that expires after `ttl`, precise to some milliseconds. Its space is reclaimed.
    ///
    /// The clock never goes back. Merges do not extend the value's life: once it expires, all
    /// operands, earlier ones included, apply to an absent value. For an expiring counter use
    /// [`Tree::fetch_update`] with [`crate::Update::PutWithTtl`]. [`Tree::put`] removes the expiry
    /// time; [`Tree::put_keep_ttl`] keeps it.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use std::time::Duration;
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let sessions = db.tree("sessions")?;
    /// sessions.put_with_ttl(b"7f3a", b"ann", Duration::from_secs(1800))?;
    /// sessions.put_with_ttl(b"91c0", b"bob", Duration::ZERO)?;
    /// assert!(sessions.contains(b"7f3a")?);
    /// assert!(!sessions.contains(b"91c0")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<SequenceNumber> {
        let expires_us = expiry_after(self.db().engine(), ttl);
        self.write(EntryKind::Expiring, key.as_ref(), &expiring(value.as_ref(), expires_us))
    }

    /// Sets a value that expires at `expires`, which may be past.
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> Result<SequenceNumber> {
        self.write(EntryKind::Expiring, key.as_ref(), &expiring(value.as_ref(), expiry_at(self.db().engine(), expires)))
    }

    /// Returns the value of `key` and its expiry time, if any. A merged value has that of the value
    /// beneath.
    pub fn get_with_expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Option<SystemTime>)>> {
        let key = KeyBuf::of(self.state(), key.as_ref())?;
        get_with_expiry(self.db().engine(), &key, None)
    }
}

impl Snapshot {
    /// Returns the value of `key` and its expiry time.
    pub fn get_with_expiry(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<(Value, Option<SystemTime>)>> {
        self.check_tree(tree.state())?;
        let key = KeyBuf::of(tree.state(), key.as_ref())?;
        get_with_expiry(tree.db().engine(), &key, Some(self.hold()))
    }
}

impl Batch {
    /// Sets a value that expires after `ttl` from this call on: see [`Tree::put_with_ttl`].
    pub fn put_with_ttl(
        &mut self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> &mut Batch {
        let expires_us = expiry_after(tree.db().engine(), ttl);
        self.push(EntryKind::Expiring, tree, key.as_ref(), &expiring(value.as_ref(), expires_us));
        self
    }

    /// Sets a value that expires at `expires`.
    pub fn put_until(
        &mut self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> &mut Batch {
        let expires_us = expiry_at(tree.db().engine(), expires);
        self.push(EntryKind::Expiring, tree, key.as_ref(), &expiring(value.as_ref(), expires_us));
        self
    }
}

impl Transaction {
    /// Sets a value that expires after `ttl` from this call on: see [`Tree::put_with_ttl`]. The
    /// transaction's reads find it until the commit, unless `ttl` is zero.
    pub fn put_with_ttl(
        &self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let expires_us = self.seen_here(expiry_after(tree.db().engine(), ttl));
        self.put_expiring(tree, key.as_ref(), value.as_ref(), expires_us)
    }

    /// Sets a value that expires at `expires`.
    pub fn put_until(
        &self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expires: SystemTime,
    ) -> Result<()> {
        let expires_us = self.seen_here(expiry_at(tree.db().engine(), expires));
        self.put_expiring(tree, key.as_ref(), value.as_ref(), expires_us)
    }

    /// Returns the value of `key` and its expiry time.
    pub fn get_with_expiry(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Option<(Value, Option<SystemTime>)>> {
        self.check_tree(tree.db(), tree.state())?;
        let (engine, key) = (self.db().engine(), KeyBuf::of(tree.state(), key.as_ref())?);
        let own = self.writes().borrow().get(&key).cloned();
        let Some(written) = own else {
            self.note_key(&key)?;
            return get_with_expiry(engine, &key, Some(self.hold()));
        };
        self.hold().check()?;
        let expires = self.end_of(&key, &written)?.and_then(|us| wall_time(engine, us));
        Ok(self.resolve(&key, written)?.map(|value| (Value::new(value), expires)))
    }

    /// Runs [`Tree::put_keep_ttl`] in the transaction. Counts as a read of the key.
    pub fn put_keep_ttl(&self, tree: &Tree, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        match self.expiry_of(tree, key.as_ref())? {
            None => self.put(tree, key, value),
            Some(expires_us) => self.put_with_expiry(tree, key.as_ref(), value.as_ref(), expires_us),
        }
    }

    /// Sets a value with the expiry time of the value of `other`, or without one: for entries of an
    /// index. Returns false, and writes nothing, if `other` has no value. Counts as a read of `other`.
    pub fn put_expiring_with(
        &self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        other: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let Some(expires_us) = self.expiry_of(tree, other.as_ref())? else { return Ok(false) };
        self.put_with_expiry(tree, key.as_ref(), value.as_ref(), expires_us)?;
        Ok(true)
    }

    /// Returns the expiry time of a value; `None` without a value.
    fn expiry_of(&self, tree: &Tree, key: &[u8]) -> Result<Option<Option<u64>>> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key)?;
        let writes = self.writes().borrow();
        Ok(match writes.get(&key) {
            None => {
                self.note_key(&key)?;
                let found = point_read::get_unresolved(self.db().engine(), &key, Some(self.hold()))?;
                found.map(|found| found.expires_us)
            }
            Some(written) if *written == Written::Gone || self.is_expired(written) => None,
            Some(written) => Some(self.end_of(&key, written)?),
        })
    }

    /// A value that has expired already has done so at the transaction's begin, whose time its reads
    /// compare with. Others see it later, so it makes no difference to them.
    fn seen_here(&self, expires_us: u64) -> u64 {
        if expires_us > self.db().engine().now().us { expires_us } else { expires_us.min(self.hold().held().taken_us) }
    }

    fn put_with_expiry(&self, tree: &Tree, key: &[u8], value: &[u8], expires_us: Option<u64>) -> Result<()> {
        match expires_us {
            None => self.write(tree.state(), &KeyBuf::of(tree.state(), key)?, Written::Value(value.to_vec())),
            Some(expires_us) => self.put_expiring(tree, key, value, expires_us),
        }
    }

    pub(in crate::db) fn end_of(&self, key: &[u8], written: &Written) -> Result<Option<u64>> {
        match written {
            Written::Placed(kind, value, _) => Ok(Content::of(*kind, value).and_then(|content| content.expires_us)),
            Written::Operands(operands)
                if Operands::decode(operands).is_some_and(|operands| operands.base == Base::Beneath) =>
            {
                self.note_key(key)?;
                let beneath = point_read::get_unresolved(self.db().engine(), key, Some(self.hold()))?;
                Ok(beneath.and_then(|found| found.expires_us))
            }
            _ => Ok(None),
        }
    }

    fn put_expiring(&self, tree: &Tree, key: &[u8], value: &[u8], expires_us: u64) -> Result<()> {
        self.check_tree(tree.db(), tree.state())?;
        let key = KeyBuf::of(tree.state(), key)?;
        self.write(
            tree.state(),
            &key,
            Written::Placed(EntryKind::Expiring, expiring(value, expires_us), value.len() as u64),
        )
    }

    pub(in crate::db) fn is_expired(&self, written: &Written) -> bool {
        let Written::Placed(kind, value, _) = written else { return false };
        let expires_us = Content::of(*kind, value).and_then(|content| content.expires_us);
        expires_us.is_some_and(|expires_us| expires_us <= self.hold().held().taken_us)
    }
}
