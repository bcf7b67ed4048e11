//! Merge functions.

use super::{batch::Batch, database::Db, expiry::check_can_merge, tree::Tree};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber},
    codec::{Base, Operand, encode_operands},
    commit::RawBatch,
    db::{
        engine::{catalog::catalog_key, root::Engine, settings::Durability},
        write::{conflict_window, pipeline, update_scope::meant},
    },
};
use std::sync::Arc;

/// Maximum bytes of a merge function's name.
const MAX_NAME_LEN: usize = 256;

/// A merge function of a database, for [`Tree::merge`]. Cheap to clone.
#[derive(Clone)]
pub struct MergeFunctionHandle {
    engine: Arc<Engine>,
    name: Arc<str>,
    number: u64,
}

impl std::fmt::Debug for MergeFunctionHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergeFunctionHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

impl MergeFunctionHandle {
    /// Returns the function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Fails if the function belongs to another database or can never apply the operand.
    pub(in crate::db) fn operand(&self, db: &Db, operand: &[u8]) -> Result<Vec<u8>> {
        if !Arc::ptr_eq(db.engine(), &self.engine) {
            let reason = format!("the merge function {:?} is another database's", self.name);
            return Err(Error::InvalidArgument(reason));
        }
        self.engine.functions.check(self.number, operand)?;
        Ok(self.encode(operand))
    }

    pub(in crate::db) fn encode(&self, operand: &[u8]) -> Vec<u8> {
        let operand = Operand { function: self.number, bytes: operand };
        encode_operands(Base::Beneath, 0, std::iter::once(operand))
    }
}

impl Db {
    /// Returns a merge function of the application ([`crate::Builder::merge_function`]) or a
    /// built-in:
    ///
    /// | name | effect | absent value counts as | operand |
    /// |---|---|---|---|
    /// | `add` | adds little-endian 64-bit two's complement integers, wrapping | 0 | 8 bytes |
    /// | `max`, `min` | keeps the greater, lesser bytes | less, greater than all | any bytes |
    /// | `append` | appends bytes | empty | any bytes |
    /// | `union` | unites sets | the empty set | set of [`crate::merge::encode_set`] |
    /// | `json_merge_patch` | applies a JSON Merge Patch, RFC 7396 (feature `json`) | null | JSON |
    ///
    /// A merge does not read the existing value. If the function cannot change that value, each
    /// read of the key fails with [`Error::MergeFailed`] until a put or delete. Other names fail
    /// with `NotFound`.
    pub fn merge_function(&self, name: &str) -> Result<MergeFunctionHandle> {
        let engine = self.engine();
        engine.health.check_open()?;
        let handle = |number| MergeFunctionHandle { engine: Arc::clone(engine), name: name.into(), number };
        let not_there = || {
            Error::NotFound(format!(
                "there is no merge function {name:?}: open the database with `Builder::merge_function`"
            ))
        };
        if let Some((number, can_be_called)) = engine.functions.number(name) {
            return if can_be_called { Ok(handle(number)) } else { Err(not_there()) };
        }
        let own = engine.settings.merge_functions.iter().find(|(own, _)| own == name).ok_or_else(not_there)?;
        if name.is_empty() || name.len() > MAX_NAME_LEN {
            return Err(Error::InvalidArgument(format!("a merge function's name has 1 to {MAX_NAME_LEN} bytes")));
        }
        // The first use assigns a number.
        let _inside = engine.health.enter()?;
        // Wait before locking the catalog: see `Db::open_or_create`.
        drop(conflict_window::await_no_exclusive(engine)?);
        let _change = engine.catalog.next_id.lock();
        if let Some((number, _)) = engine.functions.number(name) {
            return Ok(handle(number));
        }
        let number = engine.functions.next_number();
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&catalog_key(b'f', name.as_bytes())], &number.to_le_bytes());
        // A later durable commit makes this one durable: the log has no holes.
        meant(|| pipeline::commit(engine, batch.prepare()?, engine.settings.durability.of_catalog()))?;
        engine.functions.add(number, name, Some(Arc::clone(&own.1)));
        Ok(handle(number))
    }
}

impl Tree {
    /// Applies a merge function to `key`, atomically and without a read. Refuses an operand that
    /// applies to no value ([`crate::MergeFunction::check_operand`]); other mismatches show at the
    /// next read. Operands do not expire: see [`Tree::put_with_ttl`].
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let pages = db.tree("pages")?;
    /// let add = db.merge_function("add")?;
    /// pages.merge(b"index", &add, 1_i64.to_le_bytes())?;
    /// pages.merge(b"index", &add, 41_i64.to_le_bytes())?;
    /// assert_eq!(pages.get(b"index")?.as_deref(), Some(&42_i64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(
        &self,
        key: impl AsRef<[u8]>,
        function: &MergeFunctionHandle,
        operand: impl AsRef<[u8]>,
    ) -> Result<SequenceNumber> {
        check_can_merge(self.state())?;
        let operand = function.operand(self.db(), operand.as_ref())?;
        self.write(EntryKind::Merge, key.as_ref(), &operand)
    }

    /// Applies a merge function with the given durability: see [`Tree::merge`].
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        function: &MergeFunctionHandle,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SequenceNumber> {
        check_can_merge(self.state())?;
        let operand = function.operand(self.db(), operand.as_ref())?;
        let mut batch = self.db().batch();
        batch.push(EntryKind::Merge, self, key.as_ref(), &operand);
        batch.commit_with(durability)
    }
}

impl Batch {
    /// Applies a merge function after earlier writes of this batch: see [`Tree::merge`]. An invalid
    /// operand, or a function of another database, makes the commit fail.
    pub fn merge(
        &mut self,
        tree: &Tree,
        key: impl AsRef<[u8]>,
        function: &MergeFunctionHandle,
        operand: impl AsRef<[u8]>,
    ) -> &mut Batch {
        match check_can_merge(tree.state()).and_then(|()| function.operand(tree.db(), operand.as_ref())) {
            Ok(operand) => self.push(EntryKind::Merge, tree, key.as_ref(), &operand),
            Err(Error::InvalidArgument(reason)) => self.fail(reason),
            Err(e) => self.fail(e.to_string()),
        }
        self
    }
}
