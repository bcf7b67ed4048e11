//! The engines of this build against a map.

use super::{Access, Engine, Op, Reader, Setup, all};
use crate::data::{KeyOrder, PREFIX_LEN, Values};
use anyhow::Result;
use std::{collections::BTreeMap, fs, path::Path};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const ROWS: u64 = 4000;
const BATCH_LEN: usize = 100;
const ORDER: KeyOrder = KeyOrder::Grouped;

fn setup(folder: &Path) -> Setup<'_> {
    Setup {
        folder,
        budget: 16 << 20,
        data_bytes: ROWS * 144,
        access: Access::Write,
        durable: false,
        in_memory: false,
        prefix_len: Some(PREFIX_LEN),
    }
}

/// Puts all rows, then overwrites every third and deletes every fifth.
fn fill(engine: &dyn Engine, map: &mut Map) -> Result<()> {
    let values = Values::small();
    let puts = (0..ROWS).map(|row| (row, Some(0)));
    let overwrites = (0..ROWS).step_by(3).map(|row| (row, Some(1)));
    let deletes = (0..ROWS).step_by(5).map(|row| (row, None));
    let rows = puts.chain(overwrites).chain(deletes).map(|(row, version)| {
        let value = version.map(|version| {
            let mut value = Vec::new();
            values.fill(row, version, &mut value);
            value
        });
        (ORDER.key(row), value)
    });
    let rows: Vec<_> = rows.collect();
    for batch in rows.chunks(BATCH_LEN) {
        let ops: Vec<Op<'_>> = batch.iter().map(|(key, value)| Op { key, value: value.as_deref() }).collect();
        engine.write(&ops)?;
    }
    for (key, value) in rows {
        match value {
            Some(value) => drop(map.insert(key.to_vec(), value)),
            None => drop(map.remove(&key[..])),
        }
    }
    Ok(())
}

fn collect(scan: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    scan(&mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    })?;
    Ok(rows)
}

fn check(name: &str, reader: &mut dyn Reader, map: &Map) -> Result<()> {
    let rows = || map.iter().map(|(key, value)| (key.clone(), value.clone()));
    assert!(collect(|visit| reader.scan(b"", visit))?.into_iter().eq(rows()), "{name}: scan");
    match collect(|visit| reader.scan_back(visit)) {
        Ok(back) => assert!(back.into_iter().eq(rows().rev()), "{name}: scan_back"),
        Err(error) => assert!(error.to_string().starts_with("unsupported"), "{name}: {error}"),
    }
    for row in (0..ROWS).step_by(97) {
        let key = ORDER.key(row);
        let from = collect(|visit| reader.scan(&key, visit))?;
        assert!(from.into_iter().eq(rows().filter(|(other, _)| other[..] >= key[..])), "{name}: scan from {row}");
        let prefix = &key[..PREFIX_LEN];
        let group = collect(|visit| reader.scan_prefix(prefix, visit))?;
        assert!(group.into_iter().eq(rows().filter(|(other, _)| other.starts_with(prefix))), "{name}: prefix {row}");
        // Any row, the next one, and one never written.
        let keys = [row, row + 1, row + ROWS].map(|row| ORDER.key(row));
        let mut found = [const { None }; 3];
        reader
            .multi_get(&keys.each_ref().map(|key| &key[..]), &mut |index, value| found[index] = Some(value.to_vec()))?;
        for (key, found) in keys.iter().zip(&found) {
            assert_eq!(found.as_ref(), map.get(&key[..]), "{name}: multi_get at {row}");
        }
    }
    Ok(())
}

#[test]
fn engines_answer_as_a_map_also_after_a_reopen() -> Result<()> {
    for kind in all() {
        let folder = std::env::temp_dir().join(format!("bench-compare-{}-{}", kind.name, std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut map = Map::new();
        let engine = (kind.open)(setup(&folder))?;
        fill(&*engine, &mut map)?;
        check(kind.name, &mut *engine.reader()?, &map)?;
        engine.flush()?;
        check(kind.name, &mut *engine.reader()?, &map)?;
        drop(engine);
        let engine = (kind.open)(setup(&folder))?;
        check(kind.name, &mut *engine.reader()?, &map)?;
        drop(engine);
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}
