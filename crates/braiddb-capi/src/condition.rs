//! Writes that depend on the present value or version.

use crate::{
    boundary::{Failure, Outcome, braid_slice, bytes, handle, maybe_bytes, run, set, slot},
    code::braid_code::*,
    place::{Place, not_in_transaction},
    tree::braid_tree,
    value::braid_value,
};
use braiddb::Version;
use std::ffi::{c_char, c_void};

/// Sets the value of `key` to `wanted` if it is `expected`. A `data` of NULL means absent, for
/// both. `BRAID_NOT_FOUND` if the value is another one. Not for trees of snapshots and
/// transactions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_compare_and_set(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    expected: braid_slice,
    wanted: braid_slice,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let key = bytes(key, key_len)?;
        let (expected, wanted) = (maybe_bytes(expected)?, maybe_bytes(wanted)?);
        let plain = handle(tree, "tree")?.latest("a conditional write")?.plain()?;
        Ok(if plain.compare_exchange(key, expected, wanted)?.is_some() { BRAID_OK } else { BRAID_NOT_FOUND })
    })
}

/// A version of a record as text: a strong HTTP ETag, with a NUL at its end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct braid_version_tag {
    pub text: [c_char; 36],
}

impl braid_version_tag {
    pub(crate) fn of(version: Version) -> braid_version_tag {
        let mut text = [0; 36];
        for (to, byte) in text.iter_mut().zip(version.etag().bytes().take(35)) {
            *to = byte as c_char;
        }
        braid_version_tag { text }
    }

    fn parse(&self) -> Outcome<Version> {
        let bytes: Vec<u8> = self.text.iter().map(|&c| c as u8).take_while(|&byte| byte != 0).collect();
        let text = std::str::from_utf8(&bytes).map_err(|_| Failure::argument("the version is no ETag"))?;
        Ok(text.parse()?)
    }
}

/// Returns the value of `key` and its version. Not for trees of transactions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_get_version(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    value: *mut *mut braid_value,
    version: *mut braid_version_tag,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        slot(value, "value")?;
        let (tree, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let plain = tree.tree.plain()?;
        let found = match &tree.place {
            Place::Latest => plain.get_versioned(key)?,
            Place::Snapshot(snapshot) => snapshot.get_versioned(plain, key)?,
            Place::Transaction(_) => return Err(not_in_transaction("a version")),
        };
        let Some((found, tag)) = found else { return Ok(BRAID_NOT_FOUND) };
        set(version, braid_version_tag::of(tag));
        crate::boundary::give(value, found.into());
        Ok(BRAID_OK)
    })
}

/// Sets the value of `key` if its version is `expected`, or deletes it if `wanted.data` is NULL. An
/// `expected` of NULL means absent. `BRAID_NOT_FOUND` if the version is another one, else
/// `version`, which may be NULL, takes the new one. Not for trees of snapshots and transactions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_put_if_version(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    wanted: braid_slice,
    expected: *const braid_version_tag,
    version: *mut braid_version_tag,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let (key, wanted) = (bytes(key, key_len)?, maybe_bytes(wanted)?);
        let plain = handle(tree, "tree")?.latest("a conditional write")?.plain()?;
        let expected = expected.as_ref().map(braid_version_tag::parse).transpose()?;
        let written = match (expected, wanted) {
            (Some(expected), Some(value)) => plain.put_if_version(key, value, expected)?,
            (Some(expected), None) => plain.delete_if_version(key, expected)?,
            (None, Some(value)) => plain.put_if_absent(key, value)?,
            (None, None) => return Err(Failure::argument("absent before and after: nothing to write")),
        };
        match written {
            None => Ok(BRAID_NOT_FOUND),
            Some(new) => {
                set(version, braid_version_tag::of(new));
                Ok(BRAID_OK)
            }
        }
    })
}
