//! Internal keys of single calls.

use super::catalog::TreeState;
use crate::{
    base::{Error, Result, TreeId, limits},
    read::LookupKey,
};
use std::ops::Deref;

pub const TREE_ID_LEN: usize = 4;

const SHORT: usize = 64;

/// An internal key, without an allocation if it is short.
#[derive(Clone, Debug)]
pub struct KeyBuf {
    len: usize,
    short: [u8; SHORT],
    long: Vec<u8>,
}

impl KeyBuf {
    #[inline]
    pub fn new(tree: TreeId, user_key: &[u8]) -> KeyBuf {
        let mut key = KeyBuf::empty();
        key.set_in(tree, user_key);
        key
    }

    /// An empty key, to be filled in place: a move costs as much as filling.
    #[inline(always)]
    pub fn empty() -> KeyBuf {
        KeyBuf { len: 0, short: [0; SHORT], long: Vec::new() }
    }

    #[inline(always)]
    pub fn of_pieces<const N: usize>(pieces: &[&[u8]; N]) -> KeyBuf {
        let mut key = KeyBuf { len: pieces.iter().map(|piece| piece.len()).sum(), short: [0; SHORT], long: Vec::new() };
        if key.len <= SHORT {
            let mut at = 0;
            for piece in pieces {
                key.short[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
        } else {
            key.long = pieces.concat();
        }
        key
    }

    /// Builds a key. Fails if the tree was dropped, or the key is too long.
    #[inline]
    pub fn of(tree: &TreeState, user_key: &[u8]) -> Result<KeyBuf> {
        tree.check()?;
        check_key(user_key)?;
        Ok(KeyBuf::new(tree.id, user_key))
    }

    /// Sets the key of a lookup. Fails as [`KeyBuf::of`] does.
    #[inline(always)]
    pub fn seek_of<'k>(&'k mut self, tree: &TreeState, user_key: &'k [u8]) -> Result<LookupKey<'k>> {
        tree.check()?;
        check_key(user_key)?;
        self.set_in(tree.id, user_key);
        Ok(LookupKey::of_parts(self, tree.id.first_key(), user_key))
    }

    #[inline(always)]
    pub fn set_in(&mut self, tree: TreeId, user_key: &[u8]) {
        let len = TREE_ID_LEN + user_key.len();
        if len <= SHORT {
            self.short[..TREE_ID_LEN].copy_from_slice(&tree.first_key());
            self.short[TREE_ID_LEN..len].copy_from_slice(user_key);
        } else {
            self.long.clear();
            self.long.reserve_exact(len);
            self.long.extend_from_slice(&tree.first_key());
            self.long.extend_from_slice(user_key);
        }
        self.len = len;
    }

    pub fn copy_of(internal: &[u8]) -> KeyBuf {
        let mut key = KeyBuf::empty();
        key.set(internal);
        key
    }

    /// Becomes the smallest key after all keys with this prefix. Returns false if there is none.
    pub fn set_prefix_end(&mut self) -> bool {
        let bytes = if self.len <= SHORT { &mut self.short[..self.len] } else { &mut self.long[..] };
        let Some(last) = bytes.iter().rposition(|&byte| byte < 0xff) else { return false };
        bytes[last] += 1;
        if self.len <= SHORT {
            self.len = last + 1;
        } else {
            let long = std::mem::take(&mut self.long);
            self.set(&long[..=last]);
        }
        true
    }

    pub fn set(&mut self, internal: &[u8]) {
        if internal.len() <= SHORT {
            self.short[..internal.len()].copy_from_slice(internal);
        } else {
            self.long.clear();
            self.long.extend_from_slice(internal);
        }
        self.len = internal.len();
    }
}

impl Deref for KeyBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.len <= SHORT { &self.short[..self.len] } else { &self.long }
    }
}

#[inline]
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > limits::MAX_KEY_LEN {
        let reason = format!("the key has {} bytes; the most is {}", key.len(), limits::MAX_KEY_LEN);
        return Err(Error::InvalidArgument(reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_come_back() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut reused = KeyBuf::new(TreeId(0), b"");
        for len in 0..bytes.len() {
            let expected = [&[0, 0, 1, 2], &bytes[..len]].concat();
            assert_eq!(*KeyBuf::new(TreeId(258), &bytes[..len]), *expected);
            assert_eq!(*KeyBuf::of_pieces(&[&[0, 0, 1, 2], &bytes[..len / 2], &bytes[len / 2..len]]), *expected);
            reused.set_in(TreeId(258), &bytes[..len]);
            assert_eq!(*reused, *expected);
            reused.set(&bytes[..len]);
            assert_eq!(*reused, bytes[..len]);
        }
    }
}
