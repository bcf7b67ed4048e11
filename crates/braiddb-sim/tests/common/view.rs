//! Reads of a tree, latest or at a snapshot.

use braiddb::{Iter, Snapshot, Tree, Value, streams::StreamReader};
use std::io::{Read, Seek, SeekFrom};

macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

pub fn check_stream(reader: Option<StreamReader>, expected: Option<&[u8]>) -> Result<(), String> {
    let (Some(mut reader), Some(expected)) = (reader, expected) else {
        ensure!(expected.is_none(), "the stream is missing");
        return Ok(());
    };
    let len = expected.len() as u64;
    ensure!(reader.len() == len, "{} bytes instead of {len}", reader.len());
    let said = |e: std::io::Error| e.to_string();
    let mut end = Vec::new();
    reader.seek(SeekFrom::End(-((len / 3) as i64))).map_err(said)?;
    reader.read_to_end(&mut end).map_err(said)?;
    ensure!(end == expected[(len - len / 3) as usize..], "the last third differs");
    let middle = len / 2..len / 2 + 100;
    let part = reader.read_range(middle.clone()).map_err(|e| e.to_string())?;
    ensure!(part == expected[middle.start as usize..middle.end.min(len) as usize], "the range {middle:?} differs");
    let mut all = Vec::new();
    reader.rewind().map_err(said)?;
    reader.read_to_end(&mut all).map_err(said)?;
    ensure!(all == expected, "the whole value differs");
    Ok(())
}

pub enum View<'a> {
    Now(&'a Tree),
    At(&'a Snapshot, &'a Tree),
}

impl View<'_> {
    pub fn get(&self, key: &[u8]) -> braiddb::Result<Option<Value>> {
        match self {
            View::Now(tree) => tree.get(key),
            View::At(snapshot, tree) => snapshot.get(tree, key),
        }
    }

    pub fn stream(&self, key: &[u8]) -> braiddb::Result<Option<StreamReader>> {
        match self {
            View::Now(tree) => tree.stream(key),
            View::At(snapshot, tree) => snapshot.stream(tree, key),
        }
    }

    pub fn contains(&self, key: &[u8]) -> braiddb::Result<bool> {
        match self {
            View::Now(tree) => tree.contains(key),
            View::At(snapshot, tree) => snapshot.contains(tree, key),
        }
    }

    pub fn multi_get(&self, keys: &[Vec<u8>]) -> braiddb::Result<Vec<Option<Value>>> {
        match self {
            View::Now(tree) => tree.multi_get(keys),
            View::At(snapshot, tree) => snapshot.multi_get(tree, keys),
        }
    }

    pub fn range(&self, bounds: impl braiddb::KeyRange) -> Iter {
        match self {
            View::Now(tree) => tree.range(bounds),
            View::At(snapshot, tree) => snapshot.range(tree, bounds),
        }
    }

    pub fn prefix(&self, prefix: &[u8]) -> Iter {
        match self {
            View::Now(tree) => tree.prefix(prefix),
            View::At(snapshot, tree) => snapshot.prefix(tree, prefix),
        }
    }

    pub fn iter(&self) -> Iter {
        match self {
            View::Now(tree) => tree.iter(),
            View::At(snapshot, tree) => snapshot.iter(tree),
        }
    }
}
