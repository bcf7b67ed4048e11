//! Results of steps, and comparison of iterators.

use crate::common::full_text;
use braiddb::Result;
use braiddb_sim::model::{Bytes, short};
use std::collections::VecDeque;

/// The error is the engine's, or describes a wrong answer.
pub type Outcome<T = ()> = std::result::Result<T, String>;

pub trait Said<T> {
    fn said(self, what: &str) -> Outcome<T>;
}

impl<T> Said<T> for Result<T> {
    fn said(self, what: &str) -> Outcome<T> {
        self.map_err(|e| format!("{what}: {}", full_text(&e)))
    }
}

/// Takes entries from both ends by the bits of `directions`.
pub fn drain<K, V>(
    iter: &mut impl DoubleEndedIterator<Item = Result<(K, V)>>,
    expected: &mut VecDeque<(Bytes, Bytes)>,
    mut directions: u64,
    count: usize,
    whole: bool,
) -> Outcome
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    match directions % 4 {
        0 => directions = 0,
        1 => directions = u64::MAX,
        _ => {}
    }
    for step in 0..count {
        let back = directions >> (step % 64) & 1 == 1;
        let (found, wanted) =
            if back { (iter.next_back(), expected.pop_back()) } else { (iter.next(), expected.pop_front()) };
        let found = found.transpose().said("an iterator")?;
        let same = match (&found, &wanted) {
            (None, None) => true,
            (Some((key, value)), Some((k, v))) => key.as_ref() == k && value.as_ref() == v,
            _ => false,
        };
        ensure!(
            same,
            "step {step} of an iterator ({}) gave {:?} instead of {:?}",
            if back { "back" } else { "forth" },
            found.map(|(k, v)| (short(k.as_ref()), short(v.as_ref()))),
            wanted.map(|(k, v)| (short(&k), short(&v)))
        );
        if wanted.is_none() {
            break;
        }
    }
    if whole {
        for back in [true, false, true] {
            let more = if back { iter.next_back() } else { iter.next() };
            ensure!(more.is_none(), "an iterator continues after its end");
        }
    }
    Ok(())
}

/// Returns false if the reader had expired.
pub fn unless_expired(done: Outcome, may_expire: bool) -> Outcome<bool> {
    match done {
        Err(text) if may_expire && text.contains("ReaderExpired") => Ok(false),
        done => done.map(|()| true),
    }
}
