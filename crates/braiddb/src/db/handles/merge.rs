//! Merge functions as users name and apply them.

use super::{batch::Batch, database::Db, expiry::check_can_merge, tree::Tree};
use crate::{
    base::{EntryKind, Error, Result, SequenceNumber},
    codec::{Base, Operand, encode_operands},
    commit::RawBatch,
    db::{
        engine::{catalog::catalog_key, root::Engine},
        write::update_scope::meant,
    },
};
use std::sync::Arc;

/// The longest name of a merge function, in bytes.
const MAX_NAME_LEN: usize = 256;

/// A merge function of a database, to be used with [`Tree::merge`] and its like. Cheap to clone.
#[derive(Clone)]
pub struct MergeFunctionHandle {
    engine: Arc<Engine>,
    name: Arc<str>,
    number: u64,
}

impl std::fmt::Debug for MergeFunctionHandle {
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MergeFunctionHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

impl MergeFunctionHandle {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of an entry with one operand. Fails if the function is another database's, or can never apply the operand.
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
    /// The merge function of this name: one of the application's own ([`crate::Builder::merge_function`]), or one that each
    /// database has:
    ///
    /// | name | what it does to a value | no value counts as | an operand must be |
    /// |---|---|---|---|
    /// | `add` | adds: 64-bit numbers, little-endian, two's complement, around the ends | 0 | 8 bytes |
    /// | `max`, `min` | keeps the greater or the less, in the order of bytes | less or greater than all | any bytes |
    /// | `append` | appends bytes | empty | any bytes |
    /// | `union` | unites sets | the empty set | of [`crate::encode_set`] |
    /// | `json_merge_patch` | applies a JSON Merge Patch, RFC 7396 (feature `json`) | null | JSON |
    ///
    /// Operands are checked where a merge is asked for. The value that an operand will meet is not read there: if it is none
    /// that the function can change, each read of the key fails with [`Error::MergeFailed`] until the key is put or deleted.
    ///
    /// `NotFound` for other names.
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
        // It gets its number with its first use.
        let _inside = engine.health.enter()?;
        // Before the catalog is locked: those that need it wait one by one otherwise.
        drop(engine.await_no_exclusive()?);
        let _change = engine.catalog.next_id.lock();
        if let Some((number, _)) = engine.functions.number(name) {
            return Ok(handle(number));
        }
        let number = engine.functions.next_number();
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&catalog_key(b'f', name.as_bytes())], &number.to_le_bytes());
        // A later durable commit makes this one durable too: the log has no holes.
        meant(|| engine.commit(batch.prepare()?, engine.settings.durability.of_catalog()))?;
        engine.functions.add(number, name, Some(Arc::clone(&own.1)));
        Ok(handle(number))
    }
}

impl Tree {
    /// Has a merge function change the value of `key` by `operand`: atomic, and without a read. An operand that the function can
    /// apply to no value is refused ([`crate::MergeFunction::check_operand`]). Whether it can be applied to the value that is there, the next read
    /// shows. Operands do not expire, whatever is beneath them: see [`Tree::put_with_ttl`].
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
}

impl Batch {
    /// Has a merge function change the value of `key` by `operand`: see [`Tree::merge`]. What the batch does to the key before
    /// counts. A function of another database, or an operand that it cannot take, makes the batch fail.
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
