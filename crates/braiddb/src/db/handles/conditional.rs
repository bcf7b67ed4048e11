//! Atomic read-modify-write of one key.
//!
//! Each call is a transaction without a snapshot: the commit checks that the key is unchanged since
//! the read, and a conflict repeats both.

use super::{batch::commit, expiry, tree::Tree};
use crate::{
    base::{Content, EntryKind, Result, SequenceNumber},
    commit::RawBatch,
    db::{
        engine::{key::KeyBuf, read_hold::Hold, root::Engine},
        read::point_read,
        record::{bytes::Value, version::Version},
        write::{conflict_window::ConflictWindowGuard, pipeline::CommitCondition},
    },
    platform::SystemTime,
    read::LookupKey,
    txn::{Check, ReadSet},
};
use std::{borrow::Cow, slice, sync::Arc, time::Duration};

/// New state of a key, for [`Tree::fetch_update`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// Leaves the key unchanged.
    Keep,
    /// Sets this value, with the tree's default expiry ([`crate::TreeOptions::ttl`]).
    Put(Vec<u8>),
    /// Sets this value and keeps the previous expiry time, or that there is none. For an absent
    /// key, acts as [`Update::Put`].
    PutKeepTtl(Vec<u8>),
    /// Sets this value with a time to live: see [`Tree::put_with_ttl`].
    PutWithTtl(Vec<u8>, Duration),
    /// Deletes the key.
    Delete,
}

impl Update {
    /// Makes an [`Update::Put`] from any bytes.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::Update;
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let counters = db.tree("counters")?;
    /// let next = |value: Option<&[u8]>| {
    ///     let number = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes);
    ///     Update::put((number + 1).to_be_bytes())
    /// };
    /// counters.fetch_update("visits", next)?;
    /// assert_eq!(counters.fetch_update("visits", next)?.unwrap(), 1_u64.to_be_bytes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(value: impl Into<Vec<u8>>) -> Update {
        Update::Put(value.into())
    }

    /// Makes an [`Update::PutKeepTtl`] from any bytes.
    pub fn put_keep_ttl(value: impl Into<Vec<u8>>) -> Update {
        Update::PutKeepTtl(value.into())
    }

    /// Makes an [`Update::PutWithTtl`] from any bytes.
    pub fn put_with_ttl(value: impl Into<Vec<u8>>, ttl: Duration) -> Update {
        Update::PutWithTtl(value.into(), ttl)
    }
}

impl Tree {
    /// Returns the value of `key` and its version.
    pub fn get_versioned(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Version)>> {
        let key = KeyBuf::of(self.state(), key.as_ref())?;
        get_versioned(self.db().engine(), &key, None)
    }

    /// Sets the value of `key` if its version is still `expected`. Returns the new version, or
    /// `None` if the version differs or is gone. Expiry is as for [`Tree::put`].
    pub fn put_if_version(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expected: Version,
    ) -> Result<Option<Version>> {
        let update = Update::Put(value.as_ref().to_vec());
        self.write_if_version(key.as_ref(), expected, &update)
    }

    /// Deletes `key` if its version is still `expected`. Returns the commit as a version, or
    /// `None`.
    pub fn delete_if_version(&self, key: impl AsRef<[u8]>, expected: Version) -> Result<Option<Version>> {
        self.write_if_version(key.as_ref(), expected, &Update::Delete)
    }

    fn write_if_version(&self, key: &[u8], expected: Version, update: &Update) -> Result<Option<Version>> {
        let versions = &self.db().engine().commits.versions;
        self.read_modify_write(key, |found| match found {
            Some((_, sequence)) if versions.of(sequence) == expected => update.clone(),
            _ => Update::Keep,
        })
    }

    /// Sets the value of an absent `key`. Returns its version, or `None` if it exists.
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Version>> {
        let value = value.as_ref();
        self.read_modify_write(key.as_ref(), |found| match found {
            None => Update::Put(value.to_vec()),
            Some(_) => Update::Keep,
        })
    }

    /// Changes the value of `key` from `expected` to `new`. Returns the new version, or `None` if
    /// the value differs or there is none: see [`Tree::put_if_absent`] and [`Tree::compare_exchange`].
    pub fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<Option<Version>> {
        self.compare_exchange(key, Some(expected.as_ref()), Some(new.as_ref()))
    }

    /// Deletes `key` if its value is `expected`. Returns the commit as a version, or `None` if the
    /// value differs or there is none.
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) -> Result<Option<Version>> {
        self.compare_exchange(key, Some(expected.as_ref()), None)
    }

    /// Changes `key` from `expected` to `new`, where `None` means absent. Returns the new version,
    /// or `None` if the value differs. Expiry is as for [`Tree::put`]; [`Update::PutKeepTtl`] keeps
    /// it.
    ///
    /// Takes slices, since a plain `None` would not determine a generic type. Without `None`,
    /// [`Tree::compare_and_set`], [`Tree::compare_and_delete`] and [`Tree::put_if_absent`] take
    /// anything with `AsRef<[u8]>`.
    pub fn compare_exchange(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Option<Version>> {
        self.read_modify_write(key.as_ref(), |found| match (found.map(|(value, _)| value) == expected, new) {
            (true, Some(new)) => Update::Put(new.to_vec()),
            (true, None) => Update::Delete,
            (false, _) => Update::Keep,
        })
    }

    /// Atomically changes a value by `update`, which runs again after each conflict. Returns the
    /// previous value. [`Tree::fetch_update_with_expiry`] also passes the expiry time.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::Update;
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let counters = db.tree("counters")?;
    /// for _ in 0..3 {
    ///     counters.fetch_update(b"visits", |value| Update::Put(vec![value.map_or(0, |v| v[0]) + 1]))?;
    /// }
    /// assert_eq!(counters.get(b"visits")?.as_deref(), Some(&[3][..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<&[u8]>) -> Update,
    ) -> Result<Option<Value>> {
        let mut before = None;
        self.read_modify_write(key.as_ref(), |found| {
            let value = found.map(|(value, _)| value);
            before = value.map(Value::of);
            update(value)
        })?;
        Ok(before)
    }

    /// Runs [`Tree::fetch_update`] and also passes the expiry time by the wall clock; `None` if the
    /// value never expires. A merged value has the expiry time of the value beneath.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::Update;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let sessions = db.tree("sessions")?;
    /// sessions.put_with_ttl(b"7f3a", b"ann", Duration::from_secs(60))?;
    /// // Prolongs a session that would end within two minutes.
    /// sessions.fetch_update_with_expiry(b"7f3a", |found| match found {
    ///     Some((name, Some(expires))) if expires < SystemTime::now() + Duration::from_secs(120) => {
    ///         Update::PutWithTtl(name.to_vec(), Duration::from_secs(3600))
    ///     }
    ///     _ => Update::Keep,
    /// })?;
    /// let (_, expires) = sessions.get_with_expiry(b"7f3a")?.unwrap();
    /// assert!(expires.unwrap() > SystemTime::now() + Duration::from_secs(120));
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_update_with_expiry(
        &self,
        key: impl AsRef<[u8]>,
        mut update: impl FnMut(Option<(&[u8], Option<SystemTime>)>) -> Update,
    ) -> Result<Option<(Value, Option<SystemTime>)>> {
        let internal = KeyBuf::of(self.state(), key.as_ref())?;
        let engine = self.db().engine();
        let mut before = None;
        self.update_from(&internal, || {
            before = expiry::get_with_expiry(engine, &internal, None)?;
            Ok(update(before.as_ref().map(|(value, expires)| (&**value, *expires))))
        })?;
        Ok(before)
    }

    /// Sets the value of `key` and keeps the previous expiry time, or that there is none. For an
    /// absent key, acts as [`Tree::put`]. Atomic; reads the key.
    pub fn put_keep_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let internal = KeyBuf::of(self.state(), key.as_ref())?;
        let version = self.update_from(&internal, || Ok(Update::PutKeepTtl(value.as_ref().to_vec())))?;
        Ok(version.map_or_else(|| self.db().engine().readers.snapshots.visible(), Version::sequence))
    }

    fn read_modify_write(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<(&[u8], SequenceNumber)>) -> Update,
    ) -> Result<Option<Version>> {
        let internal = KeyBuf::of(self.state(), key)?;
        let engine = self.db().engine();
        self.update_from(&internal, || {
            let mut update = None;
            point_read::get_entry(engine, LookupKey::of(&internal), None, |value, sequence| {
                update = Some(decide(Some((&value, sequence))))
            })?;
            Ok(update.unwrap_or_else(|| decide(None)))
        })
    }

    /// Repeats `decide`, which reads the key, after each conflict.
    fn update_from(&self, internal: &KeyBuf, mut decide: impl FnMut() -> Result<Update>) -> Result<Option<Version>> {
        let engine = self.db().engine();
        engine.health.check_writable()?;
        let _window_guard = ConflictWindowGuard::new(engine);
        let mut retries = 0;
        loop {
            // Before the read: the commit checks the key from this number on.
            let visible = engine.readers.snapshots.visible();
            let mut batch = RawBatch::default();
            let mut put = |value: &[u8], expires_us: Option<u64>| {
                let mut room = Vec::new();
                let (kind, entry) = Content { kind: EntryKind::Value, value, expires_us }.entry(&mut room);
                batch.push(kind, &[internal], entry);
            };
            match decide()? {
                Update::Keep => return Ok(None),
                Update::Put(value) => put(&value, expiry::default_expiry(engine, self.state())),
                Update::PutKeepTtl(value) => {
                    // A later write makes the commit conflict.
                    let end = point_read::get_unresolved(engine, internal, None)?.map(|found| found.expires_us);
                    put(&value, end.unwrap_or_else(|| expiry::default_expiry(engine, self.state())));
                }
                Update::PutWithTtl(value, ttl) => put(&value, Some(expiry::expiry_after(engine, ttl))),
                Update::Delete => batch.push(EntryKind::Tombstone, &[internal], b""),
            }
            let mut reads = ReadSet::default();
            reads.add_key(internal);
            let condition = CommitCondition::Unchanged(Box::new(Check::new(reads, visible, None)));
            let durability = engine.settings.durability;
            match commit(self.db(), batch, slice::from_ref(self.state()), durability, condition) {
                Err(e) if e.is_conflict() => self.db().pause(retries, e)?,
                committed => return Ok(Some(engine.commits.versions.of(committed?))),
            }
            retries += 1;
        }
    }
}

pub fn get_versioned(engine: &Arc<Engine>, key: &[u8], snapshot: Option<&Hold>) -> Result<Option<(Value, Version)>> {
    let own = |value: Cow<'_, [u8]>, sequence| (Value::of_cow(value), engine.commits.versions.of(sequence));
    point_read::get_entry(engine, LookupKey::of(key), snapshot, own)
}
