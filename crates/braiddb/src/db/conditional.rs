//! Reading and writing one key at once.
//!
//! Each is a transaction on one key, without a snapshot: what was read is checked when what was made of it is committed, and
//! if others have written the key meanwhile, it is read again.

use super::{
    batch::commit, bytes::Value, core::Core, key::KeyBuf, record_version::Version, snapshot::Hold,
    transacting::Membership, tree::Tree, write::Terms,
};
use crate::{
    base::{EntryKind, Result, SequenceNumber},
    commit::RawBatch,
    read::Sought,
    txn::{Check, ReadSet},
};
use std::{borrow::Cow, slice, sync::Arc, time::Duration};

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// It stays as it is.
    Keep,
    /// It gets this value, which expires if the tree's values do ([`crate::TreeOptions::ttl`]), and not otherwise.
    Put(Vec<u8>),
    /// It gets this value, which expires after so long: see [`Tree::put_with_ttl`].
    PutWithTtl(Vec<u8>, Duration),
    /// It is taken away.
    Delete,
}

impl Tree {
    /// The value of `key` and its version, if there is one.
    pub fn get_versioned(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Version)>> {
        let key = KeyBuf::of(self.state(), key.as_ref())?;
        self.db().core().get_versioned(&key, None)
    }

    /// Gives `key` a value if its version is still `expected`. The new version; `None` if nothing was done, since it has another,
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
        let incarnation = self.db().core().incarnation;
        self.read_modify_write(key, |found| match found {
            Some((_, sequence)) if Version::new(incarnation, sequence) == expected => update.clone(),
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

    /// Gives `key` the value `new`, or none, if it has the value `expected`, or none. The new version (of a key that was taken
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

    /// Reads a key, and writes what `decide` makes of it; again, as long as others are in the way. The version written.
    fn read_modify_write(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<(&[u8], SequenceNumber)>) -> Update,
    ) -> Result<Option<Version>> {
        let internal = KeyBuf::of(self.state(), key)?;
        let core = self.db().core();
        core.check_writable()?;
        let incarnation = core.incarnation;
        let _membership = Membership::new(core);
        let mut retries = 0;
        loop {
            // Before the read: it is checked from here on.
            let visible = core.snapshots.visible();
            let mut update = None;
            core.get_entry(Sought::of(&internal), None, |value, sequence| {
                update = Some(decide(Some((&value, sequence))))
            })?;
            let mut batch = RawBatch::default();
            match update.unwrap_or_else(|| decide(None)) {
                Update::Keep => return Ok(None),
                Update::Put(value) => match core.with_default_expiry(self.state(), &value) {
                    None => batch.push(EntryKind::Value, &[&internal], &value),
                    Some(expiring) => batch.push(EntryKind::Expiring, &[&internal], &expiring),
                },
                Update::PutWithTtl(value, ttl) => {
                    batch.push(EntryKind::Expiring, &[&internal], &core.expiring_after(&value, ttl));
                }
                Update::Delete => batch.push(EntryKind::Tombstone, &[&internal], b""),
            }
            let mut reads = ReadSet::default();
            reads.add_key(&internal);
            let terms = Terms::Unchanged(Box::new(Check::new(reads, visible, None)));
            let durability = core.settings.durability;
            match commit(self.db(), batch, slice::from_ref(self.state()), durability, terms) {
                Err(e) if e.is_conflict() => self.db().pause(retries, e)?,
                committed => return Ok(Some(Version::new(incarnation, committed?))),
            }
            retries += 1;
        }
    }
}

impl Core {
    /// The value of an internal key and its version, at a snapshot, or now.
    pub fn get_versioned(self: &Arc<Self>, key: &[u8], snapshot: Option<&Hold>) -> Result<Option<(Value, Version)>> {
        let incarnation = self.incarnation;
        let own =
            |value: Cow<'_, [u8]>, sequence| (Value::new(value.into_owned()), Version::new(incarnation, sequence));
        self.get_entry(Sought::of(key), snapshot, own)
    }
}
