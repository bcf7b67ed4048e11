//! Trees: reads and writes of single keys, and of many keys in one call.

use crate::{
    boundary::{Failure, Outcome, array, braid_slice, bytes, free, give, handle, run, set, slot, text},
    code::braid_code::*,
    db::braid_db,
    options::{self, braid_options, new_handle},
    place::{AnyTree, Place, not_in_transaction, of_snapshot, read_at},
    range::{braid_range, range_of},
    value::braid_value,
    write::{Target, Write},
};
use braiddb::{Db, Value, merge::MergeFunctionHandle};
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

    pub(crate) fn merge_function(&self, name: &str) -> Outcome<MergeFunctionHandle> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get(name) {
            return Ok(known.clone());
        }
        let function = self.db.merge_function(name)?;
        functions.insert(name.to_owned(), function.clone());
        Ok(function)
    }

    fn get_many_with(&self, keys: &[&[u8]], mut read: impl FnMut(usize, Option<&[u8]>)) -> Outcome<()> {
        let tree = self.tree.plain()?;
        match &self.place {
            Place::Latest => Ok(tree.multi_get_with(keys, read)?),
            Place::Snapshot(snapshot) => Ok(snapshot.multi_get_with(tree, keys, read)?),
            Place::Transaction(cell) => cell.with(|open| {
                for (index, value) in open.multi_get(tree, keys)?.iter().enumerate() {
                    read(index, value.as_deref());
                }
                Ok(())
            }),
        }
    }

    /// For writes that are a commit of their own.
    pub(crate) fn latest(&self, what: &str) -> Outcome<&AnyTree> {
        match &self.place {
            Place::Latest => Ok(&self.tree),
            Place::Snapshot(_) => Err(of_snapshot()),
            Place::Transaction(_) => Err(not_in_transaction(what)),
        }
    }
}

unsafe fn write(tree: *const braid_tree, write: Write<'_>) -> Outcome {
    // SAFETY: the header's rules.
    write.apply(unsafe { handle(tree, "tree") }?, Target::Handle)?;
    Ok(BRAID_OK)
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

/// `BRAID_NOT_FOUND` without a value.
unsafe fn give_found(out: *mut *mut braid_value, found: Option<Value>) -> Outcome {
    let Some(found) = found else { return Ok(BRAID_NOT_FOUND) };
    // SAFETY: the header's rules.
    unsafe { give(out, found.into()) };
    Ok(BRAID_OK)
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
        let (of, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let tree = of.tree.plain()?;
        give_found(value, read_at!(of, tree, get(key))?)
    })
}

/// Copies the value of `key` to `buffer`. `value_len` takes its length, also if it does not fit:
/// then nothing is copied, and the result is `BRAID_BUFFER_TOO_SMALL`.
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
        let copy = |value: &[u8]| {
            set(value_len, value.len());
            let fits = value.len() <= capacity && (!buffer.is_null() || value.is_empty());
            if fits && !value.is_empty() {
                buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), value.len());
            }
            if fits { Ok(()) } else { Err(value.len()) }
        };
        let (of, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let tree = of.tree.plain()?;
        match read_at!(of, tree, get_with(key, copy))? {
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
/// `values` takes their places in it; `data` is NULL for an absent key. `needed`, which may be
/// NULL, takes the bytes of all values. If they do not fit, the result is `BRAID_BUFFER_TOO_SMALL`,
/// and `values` has those that did; the others have `data` NULL and their length.
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
        let (of, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let is_there = match &of.tree {
            AnyTree::Plain(tree) => read_at!(of, tree, contains(key)),
            AnyTree::Multi(tree) => read_at!(of, multi tree, contains(key)),
        }?;
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
    run(|| unsafe { write(tree, Write::Put(bytes(key, key_len)?, bytes(value, value_len)?)) })
}

/// Sets the value of `key`, which expires after `ttl_ms`; at once if 0. Not for trees of many
/// values per key.
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
        let ttl = Duration::from_millis(ttl_ms);
        write(tree, Write::PutTtl(bytes(key, key_len)?, bytes(value, value_len)?, ttl))
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
        let (of, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let tree = of.tree.plain()?;
        let found = read_at!(of, tree, get_with_expiry(key))?.map(|(found, expires)| {
            set(expires_ms, expires.map_or(0, unix_ms));
            found
        });
        give_found(value, found)
    })
}

pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Deletes `key`, which may be absent, with all its values in a tree of many values per key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_delete(tree: *const braid_tree, key: *const c_void, key_len: usize) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe { write(tree, Write::Delete(bytes(key, key_len)?)) })
}

/// Deletes the keys of a range, NULL for all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_delete_range(tree: *const braid_tree, range: *const braid_range) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe { write(tree, Write::DeleteRange(range_of(range)?)) })
}

/// Counts the keys of a range, or the pairs in a tree of many values per key, exactly. NULL is all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_count(tree: *const braid_tree, range: *const braid_range, count: *mut u64) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (of, range) = (handle(tree, "tree")?, range_of(range)?);
        let counted = match &of.tree {
            AnyTree::Plain(tree) => read_at!(of, tree, count(range.bounds())),
            AnyTree::Multi(tree) => read_at!(of, multi tree, count(range.bounds())),
        }?;
        set(count, counted);
        Ok(BRAID_OK)
    })
}

/// Removes the first row, or the last one with `last`, and returns it: `BRAID_NOT_FOUND` if the
/// tree is empty. Of a tree of many values per key, a pair. Not for trees of snapshots and
/// transactions.
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
        let popped = match (handle(tree, "tree")?.latest("a pop")?, last) {
            (AnyTree::Plain(tree), false) => tree.pop_first()?,
            (AnyTree::Plain(tree), true) => tree.pop_last()?,
            (AnyTree::Multi(tree), false) => tree.pop_first()?,
            (AnyTree::Multi(tree), true) => tree.pop_last()?,
        };
        let Some(row) = popped else { return Ok(BRAID_NOT_FOUND) };
        give(key, row.0.into());
        give(value, row.1.into());
        Ok(BRAID_OK)
    })
}

/// Applies a merge function to the value of `key`: one of the program's
/// (`braid_options_add_merge`), or "add" (8 bytes, little-endian), "max", "min", "append", "union",
/// "json_merge_patch".
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
        let operand = bytes(operand.data, operand.len)?;
        write(tree, Write::Merge(text(function, "function")?, bytes(key, key_len)?, operand))
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
    run(|| unsafe { write(tree, Write::DeletePair(bytes(key, key_len)?, bytes(value, value_len)?)) })
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
        let of = handle(tree, "tree")?;
        let tree = of.tree.multi()?;
        let is_there = read_at!(of, multi tree, contains_pair(key, value))?;
        Ok(if is_there { BRAID_OK } else { BRAID_NOT_FOUND })
    })
}
