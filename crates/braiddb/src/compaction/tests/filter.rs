use crate::{
    base::{EntryKind, EntryRef, RangeTombstone, RangeTombstoneSet},
    compaction::{filter::Validation, *},
};

/// `v9` is a value at 9, `t9` a tombstone.
fn kept(versions: &str, strata: &[u64], tombstones: &[(&str, &str, u64)]) -> String {
    let tombstones = tombstones
        .iter()
        .map(|(start, end, sequence)| RangeTombstone {
            start: (*start).into(),
            end: (*end).into(),
            sequence: *sequence,
        })
        .collect();
    let set = RangeTombstoneSet::new(tombstones);
    let mut filter = VersionFilter::new(strata, &set);
    let judged = versions.split(' ').filter(|text| {
        let kind = if text.starts_with('t') { EntryKind::Tombstone } else { EntryKind::Value };
        let entry = EntryRef { key: b"k", sequence: text[1..].parse().unwrap(), kind, value: b"" };
        filter.judge(&entry) == Validation::Keep
    });
    judged.collect::<Vec<_>>().join(" ")
}

#[test]
fn filter_keeps_newest_version_of_each_stratum() {
    assert_eq!(kept("v9 v8 v5 v3 v1", &[9], &[]), "v9");
    assert_eq!(kept("v9 v8 v5 v3 v1", &[4, 8, 20], &[]), "v9 v8 v3");
    assert_eq!(kept("v9 t8 v5", &[5, 20], &[]), "v9 v5");
    assert_eq!(kept("v9 v8 v7", &[8], &[]), "v9 v8", "what is newer than all strata is kept");
}

#[test]
fn filter_under_range_tombstone_keeps_versions_for_older_snapshots_only() {
    assert_eq!(kept("v5", &[9], &[("a", "z", 7)]), "");
    assert_eq!(kept("v5", &[6, 9], &[("a", "z", 7)]), "v5");
    assert_eq!(kept("v8 v5", &[9], &[("a", "z", 7)]), "v8");
    assert_eq!(kept("v8 v5", &[9], &[("a", "b", 9)]), "v8");
    assert_eq!(kept("v7", &[9], &[("a", "z", 7)]), "v7", "a put of the same batch comes after its range delete");
}
