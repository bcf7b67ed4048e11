//! Reading and writing one key at once.
//!
//! Each is a transaction on one key, without a snapshot: what was read is checked when what was made of it is committed, and
//! if others have written the key meanwhile, it is read again.

use super::{batch::commit, tree::Tree};
use crate::{
    base::{Content, EntryKind, Result, SequenceNumber},
    commit::RawBatch,
    db::{
        engine::{key::KeyBuf, read_hold::Hold, root::Engine},
        record::{bytes::Value, version::Version},
        write::{conflict_window::ConflictWindowGuard, pipeline::CommitCondition},
    },
    platform::SystemTime,
    read::LookupKey,
    txn::{Check, ReadSet},
};
use std::{borrow::Cow, slice, sync::Arc, time::Duration};

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// It stays as it is.
    Keep,
    /// It gets this value, which expires if the tree's values do ([`crate::TreeOptions::ttl`]), and not otherwise: when the value before
    /// it would have expired does not matter.
    Put(Vec<u8>),
    /// It gets this value, which expires when the value before it would have, or never if that would not; where there is none, as with
    /// [`Update::Put`].
    PutKeepTtl(Vec<u8>),
    /// It gets this value, which expires after so long: see [`Tree::put_with_ttl`].
    PutWithTtl(Vec<u8>, Duration),
    /// It is taken away.
    Delete,
}

impl Tree {
    /// The value of `key` and its version, if there is one.
    pub fn get_versioned(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Version)>> {
        let key = KeyBuf::of(self.state(), key.as_ref())?;
        self.db().engine().get_versioned(&key, None)
    }

    /// Gives `key` a value if its version is still `expected`; as with [`Tree::put`], when the old one expires does not matter. The new version; `None` if nothing was done, since it has another,
    /// or is not there any more.
    pub fn put_if_version(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expected: Version,
    ) -> Result<Option<Version>> {
        let update = Update::Put(value.as_ref().to_vec());
        self.write_if_version(key.as_ref(), expected, &update)
    }

    /// Takes `key` away if its version is still `expected`. The commit, as a version; `None` if nothing was done.
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

    /// Gives `key` a value if it has none. Its version; `None` if nothing was done.
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Version>> {
        let value = value.as_ref();
        self.read_modify_write(key.as_ref(), |found| match found {
            None => Update::Put(value.to_vec()),
            Some(_) => Update::Keep,
        })
    }

    /// Gives `key` the value `new`, or none, if it has the value `expected`, or none. When the old value expires does not matter, as with
    /// [`Tree::put`]; [`Tree::fetch_update`] with [`Update::PutKeepTtl`] keeps it. The new version (of a key that was taken
    /// away, the commit's); `None` if nothing was done.
    pub fn compare_and_set(
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

    /// Has `update` say what becomes of the value of `key`, if any, with nobody in between. It may be called more than once: again
    /// whenever others have written the key meanwhile. Returns the value that it was called with last.
    ///
    /// A value of [`Update::Put`] has the tree's time to live or none, whatever the value before it had; [`Update::PutKeepTtl`] keeps
    /// the time at which that expires. [`Tree::fetch_update_with_expiry`] shows it.
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
            before = value.map(|value| Value::new(value.to_vec()));
            update(value)
        })?;
        Ok(before)
    }

    /// [`Tree::fetch_update`], where `update` is shown as well when the value expires, by the wall clock as it is then; `None` if it does
    /// not. Of a value that merge functions make of one that expires: when that one does.
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
            before = engine.get_with_expiry(&internal, None)?;
            Ok(update(before.as_ref().map(|(value, expires)| (&**value, *expires))))
        })?;
        Ok(before)
    }

    /// Gives `key` a value that expires when the one before it would have, or never if that would not. Where there is none it is as
    /// [`Tree::put`]. Atomic; reads the key.
    pub fn put_keep_ttl(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SequenceNumber> {
        let internal = KeyBuf::of(self.state(), key.as_ref())?;
        let version = self.update_from(&internal, || Ok(Update::PutKeepTtl(value.as_ref().to_vec())))?;
        Ok(version.map_or_else(|| self.db().engine().readers.snapshots.visible(), Version::sequence))
    }

    /// Reads a key, and writes what `decide` makes of it; again, as long as others are in the way. The version written.
    fn read_modify_write(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<(&[u8], SequenceNumber)>) -> Update,
    ) -> Result<Option<Version>> {
        let internal = KeyBuf::of(self.state(), key)?;
        let engine = self.db().engine();
        self.update_from(&internal, || {
            let mut update = None;
            engine.get_entry(LookupKey::of(&internal), None, |value, sequence| {
                update = Some(decide(Some((&value, sequence))))
            })?;
            Ok(update.unwrap_or_else(|| decide(None)))
        })
    }

    /// Writes what `decide` makes of a key, which it reads; again, as long as others are in the way. The version written.
    fn update_from(&self, internal: &KeyBuf, mut decide: impl FnMut() -> Result<Update>) -> Result<Option<Version>> {
        let engine = self.db().engine();
        engine.health.check_writable()?;
        let _window_guard = ConflictWindowGuard::new(engine);
        let mut retries = 0;
        loop {
            // Before the read: it is checked from here on.
            let visible = engine.readers.snapshots.visible();
            let mut batch = RawBatch::default();
            let mut put = |value: &[u8], expires_us: Option<u64>| {
                let mut room = Vec::new();
                let (kind, entry) = Content { kind: EntryKind::Value, value, expires_us }.entry(&mut room);
                batch.push(kind, &[internal], entry);
            };
            match decide()? {
                Update::Keep => return Ok(None),
                Update::Put(value) => put(&value, engine.default_expiry(self.state())),
                Update::PutKeepTtl(value) => {
                    // If the key was written since `decide` read it, the commit is refused.
                    let end = engine.get_unresolved(internal, None)?.map(|found| found.expires_us);
                    put(&value, end.unwrap_or_else(|| engine.default_expiry(self.state())));
                }
                Update::PutWithTtl(value, ttl) => put(&value, Some(engine.expiry_after(ttl))),
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

impl Engine {
    /// The value of an internal key and its version, at a snapshot, or now.
    pub fn get_versioned(self: &Arc<Self>, key: &[u8], snapshot: Option<&Hold>) -> Result<Option<(Value, Version)>> {
        let own = |value: Cow<'_, [u8]>, sequence| (Value::new(value.into_owned()), self.commits.versions.of(sequence));
        self.get_entry(LookupKey::of(key), snapshot, own)
    }
}
