use crate::compaction::{VersionFilter, combine::Sieve};
use crate::{
    base::{EntryKind, EntryRef, RangeTombstone, RangeTombstoneSet, SequenceNumber},
    codec::{Base, MergeFunctions, Operand, Operands, encode_operands},
};

const APPEND: u64 = 4;

const KEY: &[u8] = b"treekey";

type Version = (SequenceNumber, EntryKind, Vec<u8>);

fn append(sequence: SequenceNumber, reach: u64, pieces: &[&str]) -> Version {
    let operands = pieces.iter().map(|piece| Operand { function: APPEND, bytes: piece.as_bytes() });
    (sequence, EntryKind::Merge, encode_operands(Base::Beneath, reach, operands))
}

fn value(sequence: SequenceNumber, text: &str) -> Version {
    (sequence, EntryKind::Value, text.as_bytes().to_vec())
}

/// Commits at which other runs may have versions, and whether nothing lies beneath.
struct Elsewhere {
    between: Vec<SequenceNumber>,
    is_bottom: bool,
}

const NOWHERE: Elsewhere = Elsewhere { between: Vec::new(), is_bottom: true };

/// Text: `10=value`, `10/reach+a+b` for operands, `!` before those with a base.
fn merged(
    versions: &[Version],
    strata: &[SequenceNumber],
    deleted: &[SequenceNumber],
    elsewhere: &Elsewhere,
) -> String {
    let tombstone = |&sequence| RangeTombstone { start: b"tree".to_vec(), end: b"treez".to_vec(), sequence };
    let tombstones = RangeTombstoneSet::new(deleted.iter().map(tombstone).collect());
    let functions = MergeFunctions::built_in();
    let mut sieve = Sieve::new(VersionFilter::new(strata, &tombstones), &functions);
    let mut texts = Vec::new();
    let text = |entry: EntryRef<'_>| match Operands::decode(entry.value).filter(|_| entry.kind == EntryKind::Merge) {
        Some(operands) => {
            let pieces: Vec<_> = operands.iter().map(|piece| format!("+{}", piece.bytes.escape_ascii())).collect();
            let base = if operands.base == Base::Beneath { "" } else { "!" };
            format!("{base}{}/{}{}", entry.sequence, operands.reach, pieces.concat())
        }
        None if entry.kind == EntryKind::Tombstone => format!("{}x", entry.sequence),
        None => format!("{}={}", entry.sequence, entry.value.escape_ascii()),
    };
    for (sequence, kind, value) in versions {
        let entry = EntryRef { key: KEY, sequence: *sequence, kind: *kind, value };
        let between = |after, before| elsewhere.between.iter().any(|at| after < *at && *at < before);
        if sieve.judge(&entry, between) {
            texts.push(text(entry));
        }
    }
    texts.extend(sieve.finish(|_, _| elsewhere.is_bottom).iter().map(|finished| text(finished.entry())));
    texts.join(" ")
}

#[test]
fn merge_without_separating_snapshot_gives_one_entry() {
    let versions = [append(9, 0, &["c"]), append(7, 2, &["a", "b"]), value(3, "v")];
    assert_eq!(merged(&versions, &[20], &[], &NOWHERE), "9=vabc");
    assert_eq!(merged(&versions[..2], &[20], &[], &NOWHERE), "9=abc", "nothing is beneath");
    let elsewhere = Elsewhere { is_bottom: false, ..NOWHERE };
    assert_eq!(merged(&versions[..2], &[20], &[], &elsewhere), "9/4+abc", "something may be");
    let over_tombstone = [append(9, 0, &["c"]), (5, EntryKind::Tombstone, Vec::new()), value(3, "v")];
    assert_eq!(merged(&over_tombstone, &[20], &[], &elsewhere), "9=c");
    let over_value = [value(9, "new"), append(7, 0, &["a"]), value(3, "v")];
    assert_eq!(merged(&over_value, &[20], &[], &NOWHERE), "9=new");
}

/// A merge may leave out a run between its inputs.
#[test]
fn merge_with_unmerged_run_between_keeps_versions_apart() {
    let versions = [append(9, 0, &["c"]), value(3, "v")];
    let elsewhere = Elsewhere { between: vec![6], is_bottom: false };
    assert_eq!(merged(&versions, &[20], &[], &elsewhere), "9/0+c 3=v");
    let operands = [append(9, 0, &["c"]), append(4, 0, &["b"]), value(3, "v"), value(2, "w")];
    assert_eq!(merged(&operands, &[20], &[], &elsewhere), "9/0+c 4=vb", "what stands is put together itself");
    let elsewhere = Elsewhere { between: vec![1], is_bottom: false };
    assert_eq!(merged(&operands, &[20], &[], &elsewhere), "9=vbc", "older ones are in nobody's way");
}

/// The newer entry includes the older one, which a snapshot sees by itself.
#[test]
fn merge_of_entry_that_includes_a_visible_one_puts_base_beneath_both() {
    let versions = [append(12, 3, &["ab"]), append(9, 0, &["a"]), value(5, "v")];
    assert_eq!(merged(&versions, &[10, 20], &[], &NOWHERE), "12=vab 9=va");
    assert_eq!(merged(&versions, &[20], &[], &NOWHERE), "12=vab");
    assert_eq!(merged(&versions, &[7, 10, 20], &[], &NOWHERE), "12/3+ab 9/0+a 5=v", "the value is seen by itself");
    let elsewhere = Elsewhere { is_bottom: false, ..NOWHERE };
    assert_eq!(merged(&versions[..2], &[10, 20], &[], &elsewhere), "12/3+ab 9/0+a");
    let apart = [append(12, 0, &["b"]), append(9, 0, &["a"]), value(5, "v")];
    assert_eq!(merged(&apart, &[10, 20], &[], &NOWHERE), "12/0+b 9=va");
    assert_eq!(merged(&apart, &[8, 20], &[], &NOWHERE), "12/3+ab 5=v");
}

#[test]
fn merge_above_range_tombstone_has_absent_base() {
    let versions = [append(9, 0, &["c"]), append(6, 0, &["b"]), value(3, "v")];
    assert_eq!(merged(&versions, &[20], &[5], &NOWHERE), "9=bc");
    assert_eq!(merged(&versions, &[20], &[8], &NOWHERE), "9=c");
    assert_eq!(merged(&versions, &[20], &[10], &NOWHERE), "");
    assert_eq!(merged(&versions, &[4, 20], &[5], &NOWHERE), "9/3+bc 3=v", "a snapshot sees what is deleted since");
}

/// Merges do not read blobs. A reference stays, and versions beneath it are dropped.
#[test]
fn merge_with_blob_base_keeps_blob_reference() {
    let versions = [append(9, 0, &["c"]), (5, EntryKind::BlobRef, b"ref".to_vec()), value(3, "v")];
    assert_eq!(merged(&versions, &[20], &[], &NOWHERE), "9/0+c 5=ref");
}
