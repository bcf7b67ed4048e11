//! Trees: reads and writes of single keys, and of many keys in one call.

use crate::{
    boundary::{Failure, Outcome, array, braid_slice, bytes, free, handle, run, set, slot, text},
    code::braid_code::*,
    db::braid_db,
    options::{self, braid_options, new_handle},
    place::{AnyTree, Place, not_in_transaction, of_snapshot},
    range::{braid_range, range_of},
    value::braid_value,
};
use braiddb::{Db, SequenceNumber, Value, merge::MergeFunctionHandle};
use std::{
    collections::HashMap,
    ffi::{c_char, c_void},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A tree: of the newest state (`braid_tree_open`), of a snapshot, or of a transaction. All calls
/// work for each, unless they say otherwise. It may be used by several threads.
pub struct braid_tree {
    pub(crate) tree: AnyTree,
    pub(crate) place: Place,
    db: Db,
    functions: Mutex<HashMap<String, MergeFunctionHandle>>,
}

impl braid_tree {
    pub(crate) fn at(&self, place: Place) -> braid_tree {
        braid_tree { tree: self.tree.clone(), place, db: self.db.clone(), functions: Mutex::default() }
    }

    pub(crate) unsafe fn merge_function(&self, name: *const c_char) -> Outcome<MergeFunctionHandle> {
        // SAFETY: the header's rules.
        let name = unsafe { text(name, "function") }?;
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get(name) {
            return Ok(known.clone());
        }
        let function = self.db.merge_function(name)?;
        functions.insert(name.to_owned(), function.clone());
        Ok(function)
    }

    fn get(&self, key: &[u8]) -> Outcome<Option<Value>> {
        let tree = self.tree.plain()?;
        match &self.place {
            Place::Latest => Ok(tree.get(key)?),
            Place::Snapshot(snapshot) => Ok(snapshot.get(tree, key)?),
            Place::Transaction(cell) => cell.with(|transaction| Ok(transaction.get(tree, key)?)),
        }
    }

    fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Outcome<Option<R>> {
        let tree = self.tree.plain()?;
        match &self.place {
            Place::Latest => Ok(tree.get_with(key, read)?),
            Place::Snapshot(snapshot) => Ok(snapshot.get_with(tree, key, read)?),
            Place::Transaction(cell) => cell.with(|transaction| Ok(transaction.get_with(tree, key, read)?)),
        }
    }

    fn get_many_with(&self, keys: &[&[u8]], mut read: impl FnMut(usize, Option<&[u8]>)) -> Outcome<()> {
        let tree = self.tree.plain()?;
        match &self.place {
            Place::Latest => Ok(tree.multi_get_with(keys, read)?),
            Place::Snapshot(snapshot) => Ok(snapshot.multi_get_with(tree, keys, read)?),
            Place::Transaction(cell) => cell.with(|transaction| {
                for (index, value) in transaction.multi_get(tree, keys)?.iter().enumerate() {
                    read(index, value.as_deref());
                }
                Ok(())
            }),
        }
    }

    fn put(&self, key: &[u8], value: &[u8], ttl: Option<Duration>) -> Outcome<Option<SequenceNumber>> {
        let tree = match &self.tree {
            AnyTree::Plain(tree) => tree,
            AnyTree::Multi(_) if ttl.is_some() => return Err(Failure::argument("pairs do not expire")),
            AnyTree::Multi(tree) => {
                return match &self.place {
                    Place::Latest => Ok(Some(tree.add(key, value)?)),
                    Place::Snapshot(_) => Err(of_snapshot()),
                    Place::Transaction(cell) => {
                        cell.with(|transaction| Ok(transaction.multi_tree(tree).add(key, value)?))?;
                        Ok(None)
                    }
                };
            }
        };
        match &self.place {
            Place::Latest => Ok(Some(match ttl {
                None => tree.put(key, value)?,
                Some(ttl) => tree.put_with_ttl(key, value, ttl)?,
            })),
            Place::Snapshot(_) => Err(of_snapshot()),
            Place::Transaction(cell) => {
                cell.with(|transaction| {
                    match ttl {
                        None => transaction.put(tree, key, value)?,
                        Some(ttl) => transaction.put_with_ttl(tree, key, value, ttl)?,
                    }
                    Ok(())
                })?;
                Ok(None)
            }
        }
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        match (&self.tree, &self.place) {
            (_, Place::Snapshot(_)) => return Err(of_snapshot()),
            (AnyTree::Plain(tree), Place::Latest) => drop(tree.delete(key)?),
            (AnyTree::Multi(tree), Place::Latest) => drop(tree.delete(key)?),
            (AnyTree::Plain(tree), Place::Transaction(cell)) => {
                cell.with(|transaction| Ok(transaction.delete(tree, key)?))?;
            }
            (AnyTree::Multi(tree), Place::Transaction(cell)) => {
                cell.with(|transaction| Ok(transaction.multi_tree(tree).delete(key)?))?;
            }
        }
        Ok(())
    }

    /// A conditional write is a commit of its own.
    pub(crate) fn latest(&self, what: &str) -> Outcome<&braiddb::Tree> {
        match &self.place {
            Place::Latest => self.tree.plain(),
            Place::Snapshot(_) => Err(of_snapshot()),
            Place::Transaction(_) => Err(not_in_transaction(what)),
        }
    }
}

fn ttl_of(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

/// Opens a tree, and creates it if it is absent. `options` may be NULL; an existing
/// tree must have these options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_tree_open(
    db: *const braid_db,
    name: *const c_char,
    options: *const braid_options,
    tree: *mut *mut braid_tree,
) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(tree, "tree", || {
            let name = text(name, "name")?;
            let (tree_options, multi) = options::tree(options)?;
            let db = handle(db, "db")?.open()?;
            let tree = if multi {
                if tree_options != Default::default() {
                    return Err(Failure::argument("a tree of many values per key takes no option but \"multi\""));
                }
                AnyTree::Multi(db.multi_tree(name)?)
            } else if tree_options != Default::default() {
                AnyTree::Plain(db.tree_with(name, tree_options)?)
            } else {
                AnyTree::Plain(db.tree(name)?)
            };
            Ok(braid_tree { tree, place: Place::Latest, db: db.clone(), functions: Mutex::default() })
        })
    }
}

/// Returns the tree's present name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_tree_name(tree: *const braid_tree, name: *mut *mut braid_value) -> i32 {
    // SAFETY: the header's rules.
    unsafe { new_handle(name, "name", || Ok(handle(tree, "tree")?.tree.name().into_bytes().into())) }
}

/// Frees a handle of a tree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_tree_free(tree: *mut braid_tree) {
    // SAFETY: the header's rules.
    unsafe { free(tree) };
}

/// Returns the value of `key`: `BRAID_NOT_FOUND` and NULL if it is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_get(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut braid_value,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        slot(value, "value")?;
        match handle(tree, "tree")?.get(bytes(key, key_len)?)? {
            None => Ok(BRAID_NOT_FOUND),
            Some(found) => {
                crate::boundary::give(value, found.into());
                Ok(BRAID_OK)
            }
        }
    })
}

/// Copies the value of `key` to `buffer`. `value_len` takes its length, also if it does not fit: then
/// nothing is copied, and the result is `BRAID_BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_get_into(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    capacity: usize,
    value_len: *mut usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        set(value_len, 0);
        let copied = handle(tree, "tree")?.get_with(bytes(key, key_len)?, |value| {
            set(value_len, value.len());
            let fits = value.len() <= capacity && (!buffer.is_null() || value.is_empty());
            if fits && !value.is_empty() {
                buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len());
            }
            if fits { Ok(()) } else { Err(value.len()) }
        })?;
        match copied {
            None => Ok(BRAID_NOT_FOUND),
            Some(Ok(())) => Ok(BRAID_OK),
            Some(Err(len)) => {
                let message = format!("the value has {len} bytes, and the buffer {capacity}");
                Err(Failure { code: BRAID_BUFFER_TOO_SMALL, message })
            }
        }
    })
}

/// Reads `count` keys at once, of one state of the tree, and copies their values to `buffer`.
/// `values` takes their places in it; `data` is NULL for an absent key. `needed`, which may be NULL,
/// takes the bytes of all values. If they do not fit, the result is `BRAID_BUFFER_TOO_SMALL`, and
/// `values` has those that did; the others have `data` NULL and their length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_get_many(
    tree: *const braid_tree,
    keys: *const braid_slice,
    count: usize,
    buffer: *mut c_void,
    capacity: usize,
    values: *mut braid_slice,
    needed: *mut usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        set(needed, 0);
        let keys = array(keys, count, "keys")?;
        let keys = keys.iter().map(|key| bytes(key.data, key.len)).collect::<Outcome<Vec<_>>>()?;
        if count == 0 {
            return Ok(BRAID_OK);
        }
        if values.is_null() || (buffer.is_null() && capacity > 0) {
            return Err(Failure::argument("`values` or `buffer` is NULL"));
        }
        let (mut used, mut total) = (0_usize, 0_usize);
        let empty = braid_slice::of(&[]);
        let values = std::slice::from_raw_parts_mut(values, count);
        values.fill(braid_slice::NULL);
        handle(tree, "tree")?.get_many_with(&keys, |index, value| {
            let Some(value) = value else { return };
            total += value.len();
            values[index] = if value.is_empty() {
                empty
            } else if capacity - used >= value.len() {
                let at = buffer.cast::<u8>().add(used);
                at.copy_from_nonoverlapping(value.as_ptr(), value.len());
                used += value.len();
                braid_slice { data: at.cast_const().cast(), len: value.len() }
            } else {
                braid_slice { data: std::ptr::null(), len: value.len() }
            };
        })?;
        set(needed, total);
        if total <= capacity {
            return Ok(BRAID_OK);
        }
        let message = format!("the values have {total} bytes, and the buffer {capacity}");
        Err(Failure { code: BRAID_BUFFER_TOO_SMALL, message })
    })
}

/// `BRAID_OK` if the tree has `key`, else `BRAID_NOT_FOUND`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_contains(tree: *const braid_tree, key: *const c_void, key_len: usize) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (tree, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let is_there = match (&tree.tree, &tree.place) {
            (AnyTree::Plain(plain), Place::Latest) => plain.contains(key)?,
            (AnyTree::Plain(plain), Place::Snapshot(snapshot)) => snapshot.contains(plain, key)?,
            (AnyTree::Plain(plain), Place::Transaction(cell)) => cell.with(|open| Ok(open.contains(plain, key)?))?,
            (AnyTree::Multi(multi), Place::Latest) => multi.contains(key)?,
            (AnyTree::Multi(multi), Place::Snapshot(snapshot)) => snapshot.multi_tree(multi).contains(key)?,
            (AnyTree::Multi(multi), Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.multi_tree(multi).contains(key)?))?
            }
        };
        Ok(if is_there { BRAID_OK } else { BRAID_NOT_FOUND })
    })
}

/// Sets the value of `key`, or adds the pair to a tree of many values per key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_put(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        handle(tree, "tree")?.put(bytes(key, key_len)?, bytes(value, value_len)?, None)?;
        Ok(BRAID_OK)
    })
}

/// Sets the value of `key`; with `ttl_ms` above 0 it expires after that time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_put_ttl(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    ttl_ms: u64,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        handle(tree, "tree")?.put(bytes(key, key_len)?, bytes(value, value_len)?, ttl_of(ttl_ms))?;
        Ok(BRAID_OK)
    })
}

/// Returns the value of `key`, and when it expires, in milliseconds since 1970; 0 if never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_get_expiry(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut braid_value,
    expires_ms: *mut u64,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        slot(value, "value")?;
        set(expires_ms, 0);
        let (tree, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let plain = tree.tree.plain()?;
        let found = match &tree.place {
            Place::Latest => plain.get_with_expiry(key)?,
            Place::Snapshot(snapshot) => snapshot.get_with_expiry(plain, key)?,
            Place::Transaction(cell) => cell.with(|open| Ok(open.get_with_expiry(plain, key)?))?,
        };
        let Some((found, expires)) = found else { return Ok(BRAID_NOT_FOUND) };
        set(expires_ms, expires.map_or(0, unix_ms));
        crate::boundary::give(value, found.into());
        Ok(BRAID_OK)
    })
}

pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Deletes `key`, which may be absent, with all its values in a tree of many values per key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_delete(tree: *const braid_tree, key: *const c_void, key_len: usize) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        handle(tree, "tree")?.delete(bytes(key, key_len)?)?;
        Ok(BRAID_OK)
    })
}

/// Deletes the keys of a range, NULL for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_delete_range(tree: *const braid_tree, range: *const braid_range) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (tree, range) = (handle(tree, "tree")?, range_of(range)?);
        let range = range.bounds();
        match (&tree.tree, &tree.place) {
            (_, Place::Snapshot(_)) => return Err(of_snapshot()),
            (AnyTree::Plain(plain), Place::Latest) => drop(plain.delete_range(range)?),
            (AnyTree::Multi(multi), Place::Latest) => drop(multi.delete_range(range)?),
            (AnyTree::Plain(plain), Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.delete_range(plain, range)?))?;
            }
            (AnyTree::Multi(multi), Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.multi_tree(multi).delete_range(range)?))?;
            }
        }
        Ok(BRAID_OK)
    })
}

/// Counts the keys of a range, or the pairs in a tree of many values per key, exactly. NULL is all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_count(tree: *const braid_tree, range: *const braid_range, count: *mut u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (tree, range) = (handle(tree, "tree")?, range_of(range)?);
        let counted = match (&tree.tree, &tree.place) {
            (AnyTree::Plain(plain), Place::Latest) => plain.count(range.bounds())?,
            (AnyTree::Plain(plain), Place::Snapshot(snapshot)) => snapshot.tree(plain).count(range.bounds())?,
            (AnyTree::Plain(plain), Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.tree(plain).count(range.bounds())?))?
            }
            (AnyTree::Multi(multi), Place::Latest) => multi.count(range.bounds())?,
            (AnyTree::Multi(multi), Place::Snapshot(snapshot)) => snapshot.multi_tree(multi).count(range.bounds())?,
            (AnyTree::Multi(multi), Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.multi_tree(multi).count(range.bounds())?))?
            }
        };
        set(count, counted);
        Ok(BRAID_OK)
    })
}

/// Removes the first row, or the last one with `last`, and returns it: `BRAID_NOT_FOUND` if the tree
/// is empty. Of a tree of many values per key, a pair. Not for trees of snapshots and transactions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_pop(
    tree: *const braid_tree,
    last: bool,
    key: *mut *mut braid_value,
    value: *mut *mut braid_value,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        slot(key, "key")?;
        slot(value, "value")?;
        let tree = handle(tree, "tree")?;
        let popped = match &tree.tree {
            AnyTree::Plain(_) if last => tree.latest("a pop")?.pop_last()?,
            AnyTree::Plain(_) => tree.latest("a pop")?.pop_first()?,
            AnyTree::Multi(multi) => match (&tree.place, last) {
                (Place::Snapshot(_), _) => return Err(of_snapshot()),
                (Place::Transaction(_), _) => return Err(not_in_transaction("a pop")),
                (Place::Latest, true) => multi.pop_last()?,
                (Place::Latest, false) => multi.pop_first()?,
            },
        };
        let Some(row) = popped else { return Ok(BRAID_NOT_FOUND) };
        crate::boundary::give(key, row.0.into());
        crate::boundary::give(value, row.1.into());
        Ok(BRAID_OK)
    })
}

/// Applies a merge function to the value of `key`: one of the program's (`braid_options_add_merge`),
/// or "add" (8 bytes, little-endian), "max", "min", "append", "union", "json_merge_patch".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_merge(
    tree: *const braid_tree,
    function: *const c_char,
    key: *const c_void,
    key_len: usize,
    operand: braid_slice,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (key, operand) = (bytes(key, key_len)?, bytes(operand.data, operand.len)?);
        let tree = handle(tree, "tree")?;
        let function = tree.merge_function(function)?;
        let plain = tree.tree.plain()?;
        match &tree.place {
            Place::Latest => drop(plain.merge(key, &function, operand)?),
            Place::Snapshot(_) => return Err(of_snapshot()),
            Place::Transaction(cell) => cell.with(|open| Ok(open.merge(plain, key, &function, operand)?))?,
        }
        Ok(BRAID_OK)
    })
}

/// Deletes one pair of a tree of many values per key. It may be absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_delete_pair(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (key, value) = (bytes(key, key_len)?, bytes(value, value_len)?);
        let tree = handle(tree, "tree")?;
        let multi = tree.tree.multi()?;
        match &tree.place {
            Place::Latest => drop(multi.delete_pair(key, value)?),
            Place::Snapshot(_) => return Err(of_snapshot()),
            Place::Transaction(cell) => cell.with(|open| Ok(open.multi_tree(multi).delete_pair(key, value)?))?,
        }
        Ok(BRAID_OK)
    })
}

/// `BRAID_OK` if a tree of many values per key has this pair, else `BRAID_NOT_FOUND`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_contains_pair(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (key, value) = (bytes(key, key_len)?, bytes(value, value_len)?);
        let tree = handle(tree, "tree")?;
        let multi = tree.tree.multi()?;
        let is_there = match &tree.place {
            Place::Latest => multi.contains_pair(key, value)?,
            Place::Snapshot(snapshot) => snapshot.multi_tree(multi).contains_pair(key, value)?,
            Place::Transaction(cell) => cell.with(|open| Ok(open.multi_tree(multi).contains_pair(key, value)?))?,
        };
        Ok(if is_there { BRAID_OK } else { BRAID_NOT_FOUND })
    })
}
