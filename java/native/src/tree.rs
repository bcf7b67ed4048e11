//! Trees: reads and writes of single keys, and of many keys in one call.

use crate::{
    admin::{micros_of, time_of},
    boundary::{ABSENT, Outcome, free, give, give_handle, give_writer, handle, native, split, two},
    codec::{Reader, Writer},
    database,
    errors::Failure,
    options,
    place::{read_at, write_at},
    scan::Range,
};
use braiddb::{Db, Durability, Key, MultiTree, Transaction, Tree, Value, merge::MergeFunctionHandle};
use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};

/// A tree of either kind.
#[derive(Clone)]
pub enum AnyTree {
    Plain(Tree),
    Multi(MultiTree),
}

/// A tree, in no state.
pub struct TreeCell {
    db: Db,
    pub tree: AnyTree,
    functions: Mutex<HashMap<String, MergeFunctionHandle>>,
}

impl TreeCell {
    pub fn plain(&self) -> Outcome<&Tree> {
        match &self.tree {
            AnyTree::Plain(tree) => Ok(tree),
            AnyTree::Multi(tree) => {
                Err(Failure::argument(format!("the tree {:?} keeps many values per key", tree.name())))
            }
        }
    }

    pub fn multi(&self) -> Outcome<&MultiTree> {
        match &self.tree {
            AnyTree::Multi(tree) => Ok(tree),
            AnyTree::Plain(tree) => {
                Err(Failure::argument(format!("the tree {:?} keeps one value per key", tree.name())))
            }
        }
    }

    pub fn merge_function(&self, name: &str) -> Outcome<MergeFunctionHandle> {
        let mut functions = self.functions.lock();
        if let Some(known) = functions.get(name) {
            return Ok(known.clone());
        }
        let function = self.db.merge_function(name)?;
        functions.insert(name.to_owned(), function.clone());
        Ok(function)
    }
}

/// Returns the tree of a handle.
pub fn plain<'a>(tree: jlong) -> Outcome<&'a Tree> {
    handle::<TreeCell>(tree)?.plain()
}

/// When a row expires.
#[derive(Clone, Copy)]
pub enum Expiry {
    OfTree,
    After(Duration),
    /// At a time, in microseconds since 1970.
    At(jlong),
    /// As the row that it replaces.
    Kept,
}

impl Expiry {
    pub fn of(kind: u8, micros: jlong) -> Outcome<Expiry> {
        match kind {
            0 => Ok(Expiry::OfTree),
            1 => match u64::try_from(micros) {
                Ok(micros) => Ok(Expiry::After(Duration::from_micros(micros))),
                Err(_) => Err(Failure::argument("the time to live is negative")),
            },
            2 => time_of(micros).map(|_| Expiry::At(micros)),
            3 => Ok(Expiry::Kept),
            _ => Err(Failure::argument(format!("there is no expiry {kind}"))),
        }
    }
}

native! {
    /// Opens a tree, created if absent and wanted. The buffer has its name and options.
    fn tree_open(database: jlong, is_multi: jint, create: jint, arguments_len: jint) |buffer| {
        let db = database::open(database)?;
        let (arguments, _) = split(buffer, arguments_len)?;
        let mut arguments = Reader::new(arguments);
        let name = arguments.text()?;
        let options = options::tree(&mut arguments)?;
        let tree = match (is_multi != 0, create != 0) {
            (true, true) => AnyTree::Multi(db.multi_tree(name)?),
            (true, false) => AnyTree::Multi(db.open_multi_tree(name)?),
            (false, false) => AnyTree::Plain(db.open_tree(name)?),
            (false, true) if options == Default::default() => AnyTree::Plain(db.tree(name)?),
            (false, true) => AnyTree::Plain(db.tree_with(name, options)?),
        };
        give_handle(buffer, TreeCell { db: db.clone(), tree, functions: Mutex::default() })
    }
}

/// Frees a tree's handle.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn tree_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, tree: jlong) {
    free::<TreeCell>(tree);
}

native! {
    /// Returns the present name.
    fn tree_name(tree: jlong) |buffer| {
        let name = match &handle::<TreeCell>(tree)?.tree {
            AnyTree::Plain(tree) => tree.name(),
            AnyTree::Multi(tree) => tree.name(),
        };
        give(buffer, name.as_bytes())
    }
}

native! {
    /// Returns a value behind the key.
    fn tree_get(tree: jlong, place: jlong, key_len: jint) |buffer| {
        let (key, out) = split(buffer, key_len)?;
        let tree = plain(tree)?;
        let given = read_at!(place, tree.get_with(&*key, |value| give(out, value)));
        given.and_then(|given| given.unwrap_or(Ok(ABSENT)))
    }
}

native! {
    fn tree_contains(tree: jlong, place: jlong, key_len: jint) |buffer| {
        let (key, _) = split(buffer, key_len)?;
        let tree = plain(tree)?;
        read_at!(place, tree.contains(&*key)).map(jlong::from)
    }
}

native! {
    /// Returns an expiry time in microseconds since 1970, or -1, and the value.
    fn tree_get_with_expiry(tree: jlong, place: jlong, key_len: jint) |buffer| {
        let (key, out) = split(buffer, key_len)?;
        let tree = plain(tree)?;
        let Some((value, expires)) = read_at!(place, tree.get_with_expiry(&*key))? else { return Ok(ABSENT) };
        let mut result = Writer::new();
        result.long(expires.map_or(u64::MAX, micros_of));
        result.bytes(&value);
        give_writer(out, result)
    }
}

native! {
    /// Reads many keys. Returns their values, some absent.
    fn tree_get_many(tree: jlong, place: jlong, keys_len: jint) |buffer| {
        let (arguments, out) = split(buffer, keys_len)?;
        let mut arguments = Reader::new(arguments);
        let mut keys = Vec::new();
        while !arguments.is_at_end() {
            keys.push(arguments.bytes()?);
        }
        let tree = plain(tree)?;
        let values = read_at!(place, tree.multi_get(&keys))?;
        let mut result = Writer::new();
        values.iter().for_each(|value| result.maybe_bytes(value.as_deref()));
        give_writer(out, result)
    }
}

fn put_latest(cell: &TreeCell, key: &[u8], value: &[u8], expiry: Expiry, durability: Option<Durability>) -> Outcome {
    let tree = cell.plain()?;
    let sequence = match (expiry, durability) {
        (Expiry::OfTree, None) => tree.put(key, value)?,
        (Expiry::OfTree, Some(durability)) => tree.put_with(key, value, durability)?,
        (Expiry::Kept, None) => tree.put_keep_ttl(key, value)?,
        (Expiry::Kept, Some(_)) => {
            return Err(Failure::argument(
                "a put that keeps the time to live reads the key, so it takes no durability",
            ));
        }
        (Expiry::After(_) | Expiry::At(_), _) => {
            let mut batch = cell.db.batch();
            match expiry {
                Expiry::After(ttl) => _ = batch.put_with_ttl(tree, key, value, ttl),
                Expiry::At(micros) => _ = batch.put_until(tree, key, value, time_of(micros)?),
                Expiry::OfTree | Expiry::Kept => {}
            }
            match durability {
                Some(durability) => batch.commit_with(durability)?,
                None => batch.commit()?,
            }
        }
    };
    Ok(sequence as jlong)
}

fn put_in(open: &Transaction, tree: &Tree, key: &[u8], value: &[u8], expiry: Expiry) -> Outcome {
    match expiry {
        Expiry::OfTree => open.put(tree, key, value)?,
        Expiry::Kept => open.put_keep_ttl(tree, key, value)?,
        Expiry::After(ttl) => open.put_with_ttl(tree, key, value, ttl)?,
        Expiry::At(micros) => open.put_until(tree, key, value, time_of(micros)?)?,
    }
    Ok(0)
}

native! {
    /// Sets a value. Returns the commit, or 0 in a transaction.
    fn tree_put(tree: jlong, place: jlong, key_len: jint, value_len: jint, expiry_kind: jint, expiry: jlong, durability: jint) |buffer| {
        let (key, value) = two(buffer, key_len, value_len)?;
        let cell = handle::<TreeCell>(tree)?;
        let expiry = Expiry::of(u8::try_from(expiry_kind).unwrap_or(u8::MAX), expiry)?;
        let durability = options::durability(durability)?;
        write_at!(place, put_latest(cell, key, value, expiry, durability), |open| {
            put_in(open, cell.plain()?, key, value, expiry)
        })
    }
}

native! {
    fn tree_delete(tree: jlong, place: jlong, key_len: jint, durability: jint) |buffer| {
        let (key, _) = split(buffer, key_len)?;
        let (tree, durability) = (plain(tree)?, options::durability(durability)?);
        write_at!(place, Ok(match durability {
            Some(durability) => tree.delete_with(&*key, durability)?,
            None => tree.delete(&*key)?,
        } as jlong), |open| { open.delete(tree, &*key)?; Ok(0) })
    }
}

fn give_value(out: &mut [u8], value: Option<Value>) -> Outcome {
    value.map_or(Ok(ABSENT), |value| give(out, &value))
}

fn give_row(out: &mut [u8], row: Option<(Key, Value)>) -> Outcome {
    let Some((key, value)) = row else { return Ok(ABSENT) };
    let mut result = Writer::new();
    result.bytes(&key);
    result.bytes(&value);
    give_writer(out, result)
}

native! {
    /// Sets a value and returns the earlier one.
    fn tree_insert(tree: jlong, place: jlong, key_len: jint, value_len: jint) |buffer| {
        let (key, value) = two(buffer, key_len, value_len)?;
        let tree = plain(tree)?;
        let earlier = write_at!(place, Ok(tree.insert(key, value)?), |open| Ok(open.insert(tree, key, value)?))?;
        give_value(buffer, earlier)
    }
}

native! {
    /// Deletes a key and returns its value.
    fn tree_remove(tree: jlong, place: jlong, key_len: jint) |buffer| {
        let (key, out) = split(buffer, key_len)?;
        let tree = plain(tree)?;
        let earlier = write_at!(place, Ok(tree.remove(&*key)?), |open| Ok(open.remove(tree, &*key)?))?;
        give_value(out, earlier)
    }
}

native! {
    /// Sets a value if the key is absent. Returns 1 if it was.
    fn tree_put_if_absent(tree: jlong, place: jlong, key_len: jint, value_len: jint) |buffer| {
        let (key, value) = two(buffer, key_len, value_len)?;
        let tree = plain(tree)?;
        let was_absent = write_at!(place, Ok(tree.put_if_absent(key, value)?.is_some()), |open| {
            let is_absent = !open.contains(tree, key)?;
            if is_absent {
                open.put(tree, key, value)?;
            }
            Ok(is_absent)
        })?;
        Ok(jlong::from(was_absent))
    }
}

native! {
    /// Replaces a value if it is as expected; both may be absent. Returns 1 if it was.
    fn tree_compare_and_set(tree: jlong, place: jlong, arguments_len: jint) |buffer| {
        let (arguments, _) = split(buffer, arguments_len)?;
        let mut arguments = Reader::new(arguments);
        let (key, expected, new) = (arguments.bytes()?, arguments.maybe_bytes()?, arguments.maybe_bytes()?);
        let tree = plain(tree)?;
        let was_expected = write_at!(place, Ok(tree.compare_exchange(key, expected, new)?.is_some()), |open| {
            let is_expected = open.get(tree, key)?.as_deref() == expected;
            match new {
                _ if !is_expected => {}
                Some(new) => open.put(tree, key, new)?,
                None => open.delete(tree, key)?,
            }
            Ok(is_expected)
        })?;
        Ok(jlong::from(was_expected))
    }
}

native! {
    /// Combines a value with an operand. The buffer has the function's name, the key, the operand.
    fn tree_merge(tree: jlong, place: jlong, durability: jint, arguments_len: jint) |buffer| {
        let (arguments, _) = split(buffer, arguments_len)?;
        let mut arguments = Reader::new(arguments);
        let (name, key, operand) = (arguments.text()?, arguments.bytes()?, arguments.bytes()?);
        let (cell, durability) = (handle::<TreeCell>(tree)?, options::durability(durability)?);
        let (function, tree) = (cell.merge_function(name)?, cell.plain()?);
        write_at!(place, Ok(match durability {
            Some(durability) => tree.merge_with(key, &function, operand, durability)?,
            None => tree.merge(key, &function, operand)?,
        } as jlong), |open| { open.merge(tree, key, &function, operand)?; Ok(0) })
    }
}

native! {
    /// Deletes all keys of a range.
    fn tree_delete_range(tree: jlong, place: jlong, range_len: jint) |buffer| {
        let range = Range::decode(buffer, range_len)?;
        let tree = plain(tree)?;
        write_at!(place, Ok(tree.delete_range(range.bounds())? as jlong), |open| {
            open.delete_range(tree, range.bounds())?;
            Ok(0)
        })
    }
}

native! {
    fn tree_count(tree: jlong, place: jlong, range_len: jint) |buffer| {
        let range = Range::decode(buffer, range_len)?;
        let tree = plain(tree)?;
        read_at!(place, tree.count(range.bounds())).map(|count| count as jlong)
    }
}

native! {
    fn tree_len_estimate(tree: jlong) |_buffer| { Ok(plain(tree)?.len_estimate()? as jlong) }
}

native! {
    /// Returns the first or the last row.
    fn tree_end(tree: jlong, place: jlong, is_last: jint) |buffer| {
        let tree = plain(tree)?;
        let row = if is_last != 0 { read_at!(place, tree.last()) } else { read_at!(place, tree.first()) };
        give_row(buffer, row?)
    }
}

native! {
    /// Removes and returns the first or the last row.
    fn tree_pop(tree: jlong, place: jlong, is_last: jint) |buffer| {
        let (tree, is_last) = (plain(tree)?, is_last != 0);
        let row = write_at!(place, Ok(if is_last { tree.pop_last()? } else { tree.pop_first()? }), |open| {
            Ok(if is_last { open.pop_last(tree)? } else { open.pop_first(tree)? })
        })?;
        give_row(buffer, row)
    }
}

native! {
    /// Sets the text that the next commit of a transaction stores beside its writes.
    fn transaction_set_application_cursor(place: jlong, cursor_len: jint) |buffer| {
        let (cursor, _) = split(buffer, cursor_len)?;
        let latest = || Err(Failure::not_in_transaction("setApplicationCursor"));
        write_at!(place, latest(), |open| { open.set_application_cursor(&*cursor)?; Ok(0) })
    }
}
