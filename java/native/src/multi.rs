//! Trees of many sorted values per key.

use crate::{
    boundary::{ABSENT, Outcome, give, give_writer, handle, native, split, two},
    codec::Writer,
    place::{read_at, write_at},
    scan::Range,
    tree::TreeCell,
};
use braiddb::MultiTree;
use jni::sys::{jint, jlong};

fn multi<'a>(tree: jlong) -> Outcome<&'a MultiTree> {
    handle::<TreeCell>(tree)?.multi()
}

native! {
    fn multi_add(tree: jlong, place: jlong, key_len: jint, value_len: jint) |buffer| {
        let (key, value) = two(buffer, key_len, value_len)?;
        let tree = multi(tree)?;
        write_at!(place, Ok(tree.add(key, value)? as jlong), |open| {
            open.multi_tree(tree).add(key, value)?;
            Ok(0)
        })
    }
}

native! {
    fn multi_delete_pair(tree: jlong, place: jlong, key_len: jint, value_len: jint) |buffer| {
        let (key, value) = two(buffer, key_len, value_len)?;
        let tree = multi(tree)?;
        write_at!(place, Ok(tree.delete_pair(key, value)? as jlong), |open| {
            open.multi_tree(tree).delete_pair(key, value)?;
            Ok(0)
        })
    }
}

native! {
    fn multi_delete(tree: jlong, place: jlong, key_len: jint) |buffer| {
        let (key, _) = split(buffer, key_len)?;
        let tree = multi(tree)?;
        write_at!(place, Ok(tree.delete(&*key)? as jlong), |open| {
            open.multi_tree(tree).delete(&*key)?;
            Ok(0)
        })
    }
}

native! {
    fn multi_delete_range(tree: jlong, place: jlong, range_len: jint) |buffer| {
        let range = Range::decode(buffer, range_len)?;
        let tree = multi(tree)?;
        write_at!(place, Ok(tree.delete_range(range.bounds())? as jlong), |open| {
            open.multi_tree(tree).delete_range(range.bounds())?;
            Ok(0)
        })
    }
}

native! {
    fn multi_contains_pair(tree: jlong, place: jlong, key_len: jint, value_len: jint) |buffer| {
        let (key, value) = two(buffer, key_len, value_len)?;
        let tree = multi(tree)?;
        read_at!(place, multi tree.contains_pair(key, value)).map(jlong::from)
    }
}

native! {
    /// Returns the number of values of a key.
    fn multi_count_values(tree: jlong, place: jlong, key_len: jint) |buffer| {
        let (key, _) = split(buffer, key_len)?;
        let tree = multi(tree)?;
        read_at!(place, multi tree.count_values(&*key)).map(|count| count as jlong)
    }
}

native! {
    /// Returns the number of pairs in a range of keys.
    fn multi_count(tree: jlong, place: jlong, range_len: jint) |buffer| {
        let range = Range::decode(buffer, range_len)?;
        let tree = multi(tree)?;
        read_at!(place, multi tree.count(range.bounds())).map(|count| count as jlong)
    }
}

native! {
    /// Returns the first or the last value of a key.
    fn multi_end_value(tree: jlong, place: jlong, is_last: jint, key_len: jint) |buffer| {
        let (key, out) = split(buffer, key_len)?;
        let tree = multi(tree)?;
        let value = if is_last != 0 {
            read_at!(place, multi tree.last_value(&*key))?
        } else {
            read_at!(place, multi tree.first_value(&*key))?
        };
        value.map_or(Ok(ABSENT), |value| give(out, &value))
    }
}

native! {
    /// Removes and returns the first or the last pair.
    fn multi_pop(tree: jlong, place: jlong, is_last: jint) |buffer| {
        let (tree, is_last) = (multi(tree)?, is_last != 0);
        let pair = write_at!(place, Ok(if is_last { tree.pop_last()? } else { tree.pop_first()? }), |open| {
            let tree = open.multi_tree(tree);
            Ok(if is_last { tree.pop_last()? } else { tree.pop_first()? })
        })?;
        let Some((key, value)) = pair else { return Ok(ABSENT) };
        let mut result = Writer::new();
        result.bytes(&key);
        result.bytes(&value);
        give_writer(buffer, result)
    }
}
