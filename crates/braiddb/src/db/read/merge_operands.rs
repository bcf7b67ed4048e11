//! Merge functions in use: operands are written without a look at the value, and the value is made of them when it is read.

use super::point_read::Unresolved;
use crate::{
    base::{EntryKind, EntryRef, Error, Result, SequenceNumber},
    codec::{Base, MergeFunctions, Operand, Operands, encode_operands},
    commit::{Operation, RawBatch},
    db::{
        engine::{catalog::catalog_key, core::Core, key::TREE_ID_LEN},
        handles::{batch::Batch, database::Db, expiry::check_can_merge, tree::Tree},
        write::update_scope::meant,
    },
    memtable::{Memtable, MemtableWriter},
    read::{self, ReadState},
};
use std::sync::Arc;

/// The longest name of a merge function, in bytes.
const MAX_NAME_LEN: usize = 256;

/// A merge function of a database, to be used with [`Tree::merge`] and its like. Cheap to clone.
#[derive(Clone)]
pub struct MergeFunctionHandle {
    core: Arc<Core>,
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
        if !Arc::ptr_eq(db.core(), &self.core) {
            let reason = format!("the merge function {:?} is another database's", self.name);
            return Err(Error::InvalidArgument(reason));
        }
        self.core.functions.check(self.number, operand)?;
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
        let core = self.core();
        core.check_open()?;
        let handle = |number| MergeFunctionHandle { core: Arc::clone(core), name: name.into(), number };
        let not_there = || {
            Error::NotFound(format!(
                "there is no merge function {name:?}: open the database with `Builder::merge_function`"
            ))
        };
        if let Some((number, can_be_called)) = core.functions.number(name) {
            return if can_be_called { Ok(handle(number)) } else { Err(not_there()) };
        }
        let own = core.settings.merge_functions.iter().find(|(own, _)| own == name).ok_or_else(not_there)?;
        if name.is_empty() || name.len() > MAX_NAME_LEN {
            return Err(Error::InvalidArgument(format!("a merge function's name has 1 to {MAX_NAME_LEN} bytes")));
        }
        // It gets its number with its first use.
        let _inside = core.enter()?;
        // Before the catalog is locked: those that need it wait one by one otherwise.
        drop(core.await_no_exclusive()?);
        let _change = core.catalog.next_id.lock();
        if let Some((number, _)) = core.functions.number(name) {
            return Ok(handle(number));
        }
        let number = core.functions.next_number();
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&catalog_key(b'f', name.as_bytes())], &number.to_le_bytes());
        // A later durable commit makes this one durable too: the log has no holes.
        meant(|| core.commit(batch.prepare()?, core.settings.durability.of_catalog()))?;
        core.functions.add(number, name, Some(Arc::clone(&own.1)));
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

/// Inserts operands. Those of functions that are quick are applied at once, where the memtable knows what is beneath: so a
/// record that is counted in again and again has one of them, and not as many as there are counts.
#[cold]
pub fn insert_operands(
    memtable: &Memtable,
    writer: &mut MemtableWriter<'_>,
    functions: &MergeFunctions,
    operation: &Operation<'_>,
    sequence: SequenceNumber,
) {
    let Operation { kind, key, value } = *operation;
    match applied(memtable, functions, operation, sequence) {
        Some((kind, value)) => writer.insert(key, sequence, kind, &value),
        None => writer.insert(key, sequence, kind, value),
    }
}

/// What can be inserted in the place of operands.
fn applied(
    memtable: &Memtable,
    functions: &MergeFunctions,
    operation: &Operation<'_>,
    sequence: SequenceNumber,
) -> Option<(EntryKind, Vec<u8>)> {
    let operands = Operands::decode(operation.value).filter(|operands| functions.are_eager(operands))?;
    let user_key = operation.key.get(TREE_ID_LEN..)?;
    let value_on = |base: Option<&[u8]>| Some((EntryKind::Value, functions.apply(user_key, base, &operands).ok()?));
    match operands.base {
        Base::Absent => return value_on(None),
        Base::Value(value) => return value_on(Some(value)),
        Base::Beneath => {}
    }
    let deleted = memtable.newest_covering(operation.key, sequence);
    let Some(newest) = memtable.get(operation.key, sequence).filter(|entry| entry.sequence >= deleted) else {
        return if deleted > 0 { value_on(None) } else { None };
    };
    match newest.kind {
        EntryKind::Value => value_on(Some(newest.value)),
        EntryKind::Tombstone => value_on(None),
        EntryKind::Merge => {
            let older = Operands::decode(newest.value)?;
            let lowest = newest.sequence.saturating_sub(older.reach);
            let piled = functions.condense(user_key, operands.on_top_of(&older, sequence - lowest));
            Some((EntryKind::Merge, piled))
        }
        _ => None,
    }
}

impl Core {
    /// The value that operands make of the value beneath them at a snapshot, and when the value beneath expires. `entry` was
    /// found in `state`, and everything else is looked up there.
    #[cold]
    pub fn merged(&self, state: &ReadState, entry: &FoundOperands, now_us: u64) -> Result<(Vec<u8>, Option<u64>)> {
        let FoundOperands { key, sequence, operands } = entry;
        let user_key = key.get(TREE_ID_LEN..).unwrap_or_default();
        let mut expires_us = None;
        let mut lists = vec![(*sequence, operands.clone())];
        let base = loop {
            let Some((sequence, operands)) = lists.last() else { break None };
            let operands = decode(self, user_key, operands)?;
            match operands.base {
                Base::Absent => break None,
                Base::Value(value) => break Some(value.to_vec()),
                Base::Beneath => {}
            }
            let Some(beneath) = sequence.checked_sub(operands.reach.saturating_add(1)) else { break None };
            let (sequence, found) = {
                let guard = crossbeam_epoch::pin();
                match read::get(state, key, beneath, &guard)? {
                    None => break None,
                    Some(EntryRef { kind: EntryKind::Merge, sequence, value, .. }) => (sequence, Err(value.to_vec())),
                    Some(entry) => (entry.sequence, Ok(Unresolved::of(&entry))),
                }
            };
            match found {
                Err(operands) => lists.push((sequence, operands)),
                Ok(value) => match self.resolve_with_end(state, value, now_us)? {
                    None => break None,
                    Some((value, end)) => {
                        expires_us = end;
                        break Some(value.into_vec());
                    }
                },
            }
        };
        let mut value = base;
        for (_, operands) in lists.iter().rev() {
            let operands = decode(self, user_key, operands)?;
            let applied = self.functions.apply(user_key, value.as_deref(), &operands);
            value = Some(applied.map_err(|e| self.with_tree(e, key))?);
        }
        Ok((value.unwrap_or_default(), expires_us))
    }
}

/// All operands of a key, as one list, and what is beneath them.
#[derive(Debug)]
pub struct Pile {
    /// The value of an entry that stands for all of them.
    pub operands: Vec<u8>,
    /// The entry that they change, and its commit.
    pub beneath: Option<(SequenceNumber, Unresolved)>,
}

impl Pile {
    /// The same list where nothing is beneath it.
    pub fn on_nothing(&self) -> Result<Vec<u8>> {
        let misunderstood = || Error::InvalidArgument("operands that cannot be understood".to_owned());
        let operands = Operands::decode(&self.operands).ok_or_else(misunderstood)?;
        Ok(if operands.base == Base::Beneath { operands.on(Base::Absent) } else { self.operands.clone() })
    }
}

/// The operands that are piled up on a key, without a look at what they make of it. `entry` was found in `state`, and so is all else.
#[cold]
pub fn pile_up(core: &Core, state: &ReadState, entry: &FoundOperands) -> Result<Pile> {
    let user_key = entry.key.get(TREE_ID_LEN..).unwrap_or_default();
    let mut lists = vec![(entry.sequence, entry.operands.clone())];
    let mut beneath = None;
    while let Some((sequence, operands)) = lists.last() {
        let operands = decode(core, user_key, operands)?;
        let Some(below) =
            sequence.checked_sub(operands.reach.saturating_add(1)).filter(|_| operands.base == Base::Beneath)
        else {
            break;
        };
        let guard = crossbeam_epoch::pin();
        match read::get(state, &entry.key, below, &guard)? {
            None => break,
            Some(EntryRef { kind: EntryKind::Merge, sequence, value, .. }) => lists.push((sequence, value.to_vec())),
            Some(entry) => {
                beneath = Some((entry.sequence, Unresolved::of(&entry)));
                break;
            }
        }
    }
    let Some((sequence, mut piled)) = lists.pop() else { unreachable!("there is one at least") };
    let lowest = sequence - decode(core, user_key, &piled)?.reach.min(sequence);
    for (sequence, newer) in lists.iter().rev() {
        piled = decode(core, user_key, newer)?.on_top_of(&decode(core, user_key, &piled)?, sequence - lowest);
    }
    Ok(Pile { operands: piled, beneath })
}

/// Operands that were found for a key.
#[derive(Clone, Debug)]
pub struct FoundOperands {
    /// The internal key.
    pub key: Vec<u8>,
    /// The commit that they stand for, and the value of their entry.
    pub sequence: SequenceNumber,
    pub operands: Vec<u8>,
}

impl FoundOperands {
    /// Those of an entry.
    pub fn of(entry: &EntryRef<'_>) -> FoundOperands {
        FoundOperands { key: entry.key.to_vec(), sequence: entry.sequence, operands: entry.value.to_vec() }
    }
}

fn decode<'a>(core: &Core, user_key: &[u8], operands: &'a [u8]) -> Result<Operands<'a>> {
    Operands::decode(operands).ok_or_else(|| {
        let key = user_key.escape_ascii();
        Error::corruption(&core.dir, 0, format!("the operands merged into the key \"{key}\" cannot be understood"))
    })
}
