//! The sequence number checker finds each error in constructed histories, and none in correct ones.

use super::*;

fn committed(name: u64, times: (u64, u64), snapshot: u64, at: u64, steps: Vec<Step>) -> Record {
    let mut record = Record::new((name, 0), Kind::Optimistic, times.0, snapshot);
    record.ended = times.1;
    record.steps = steps;
    record.outcome = Outcome::Committed(at);
    record
}

fn get(key: &str, found: Option<&str>) -> Step {
    Step::Get(0, key.into(), found.map(Into::into))
}

fn put(key: &str, value: &str) -> Step {
    Step::Write(Change::Put(0, key.into(), value.into()))
}

fn range(from: &str, to: &str, taken: &[Option<(&str, &str)>]) -> Step {
    let row = |row: &Option<(&str, &str)>| row.map(|(key, value)| (key.into(), value.into()));
    let taken = taken.iter().map(|taken| Taken { is_back: false, row: row(taken) }).collect();
    Step::Range(0, (Bound::Included(from.into()), Bound::Excluded(to.into())), taken)
}

fn holding(rows: &[(&str, &str)]) -> Contents {
    rows.iter().map(|(key, value)| ((0, (*key).into()), (*value).into())).collect()
}

fn first() -> Record {
    committed(0, (0, 1), 0, 1, vec![put("a", "0"), put("b", "0")])
}

fn wrong(records: &[Record], finally: &[(&str, &str)]) -> String {
    check_replay(records, &holding(finally)).expect_err("the history must fail").report(records)
}

#[test]
fn correct_history_passes() {
    let savepoint = vec![
        range("a", "z", &[Some(("a", "0")), Some(("b", "0")), None]),
        Step::Savepoint(7),
        Step::Write(Change::DeleteRange(0, (Bound::Unbounded, Bound::Unbounded))),
        get("a", None),
        range("a", "z", &[None]),
        Step::RollBack(7),
        get("a", Some("0")),
        put("c", "1"),
        range("b", "z", &[Some(("b", "0")), Some(("c", "1"))]),
    ];
    let mut refused = committed(2, (2, 9), 1, 0, vec![get("c", None), put("d", "2")]);
    refused.outcome = Outcome::Refused;
    let reader = committed(3, (3, 5), 1, 1, vec![Step::Contains(0, "c".into(), false)]);
    let mut blind = committed(4, (3, 8), 0, 3, vec![Step::Write(Change::Delete(0, "a".into()))]);
    blind.kind = Kind::Blind;
    let records = [first(), committed(1, (2, 6), 1, 2, savepoint), refused, reader, blind];
    // Each answer is compared at the snapshot, and before the commit if there was one.
    assert_eq!(check_replay(&records, &holding(&[("b", "0"), ("c", "1")])).map_err(|w| w.report(&records)), Ok(12));
}

#[test]
fn history_with_lost_update_fails() {
    let one = committed(1, (2, 5), 1, 2, vec![get("a", Some("0")), put("a", "1")]);
    let other = committed(2, (2, 6), 1, 3, vec![get("a", Some("0")), put("a", "2")]);
    let reported = wrong(&[first(), one, other], &[("a", "2"), ("b", "0")]);
    assert!(
        reported.starts_with("at 2 this should give \"1\": get 0/\"a\" -> \"0\"") && reported.contains("T1.0"),
        "{reported}"
    );
}

#[test]
fn history_with_write_skew_fails() {
    let one = committed(1, (2, 5), 1, 2, vec![get("a", Some("0")), get("b", Some("0")), put("a", "1")]);
    let other = committed(2, (2, 6), 1, 3, vec![get("a", Some("0")), get("b", Some("0")), put("b", "2")]);
    let reported = wrong(&[first(), one, other], &[("a", "1"), ("b", "2")]);
    assert!(reported.contains("get 0/\"a\" -> \"0\""), "{reported}");
}

#[test]
fn history_with_aborted_read_fails() {
    let mut dropped = committed(1, (2, 5), 1, 0, vec![put("a", "1")]);
    dropped.outcome = Outcome::Dropped;
    let mut reader = committed(2, (3, 6), 1, 0, vec![get("a", Some("1"))]);
    reader.outcome = Outcome::Dropped;
    let reported = wrong(&[first(), dropped, reader], &[("a", "0"), ("b", "0")]);
    assert!(reported.starts_with("at 1 this should give \"0\""), "{reported}");
}

#[test]
fn history_with_long_fork_fails() {
    let one = committed(1, (2, 5), 1, 2, vec![put("a", "1")]);
    let other = committed(2, (2, 6), 1, 3, vec![put("b", "1")]);
    let sees = |name, a, b| committed(name, (3, 7), 2, 2, vec![get("a", Some(a)), get("b", Some(b))]);
    let reported = wrong(&[first(), one, other, sees(3, "1", "0"), sees(4, "0", "1")], &[("a", "1"), ("b", "1")]);
    assert!(
        reported.starts_with("at 2 this should give \"1\": get 0/\"a\" -> \"0\"") && reported.contains("T4.0"),
        "{reported}"
    );
}

#[test]
fn history_with_phantom_fails() {
    let whole = || range("a", "z", &[Some(("a", "0")), Some(("b", "0")), None]);
    let one = committed(1, (2, 5), 1, 2, vec![whole(), put("c", "1")]);
    let other = committed(2, (2, 6), 1, 3, vec![whole(), put("d", "1")]);
    let finally = [("a", "0"), ("b", "0"), ("c", "1"), ("d", "1")];
    let reported = wrong(&[first(), one.clone(), other], &finally);
    assert!(reported.starts_with("at 2 this should give \"c\"=\"1\" from the front"), "{reported}");
    let part = range("a", "z", &[Some(("a", "0")), Some(("b", "0"))]);
    let records = [first(), one, committed(2, (2, 6), 1, 3, vec![part, put("d", "1")])];
    assert!(check_replay(&records, &holding(&finally)).is_ok());
}

#[test]
fn history_with_sequence_numbers_out_of_order_fails() {
    let one = committed(1, (2, 5), 1, 2, vec![put("a", "1")]);
    let both = [("a", "1"), ("b", "0")];
    let same = committed(2, (2, 6), 1, 2, vec![put("c", "1")]);
    assert!(wrong(&[first(), one.clone(), same], &both).starts_with("two commits have one"));
    let stale = committed(2, (6, 7), 1, 1, vec![get("b", Some("0"))]);
    assert!(wrong(&[first(), one.clone(), stale], &both).starts_with("a snapshot at 1 misses"));
    let mut late = committed(2, (6, 7), 0, 2, vec![put("c", "1")]);
    late.kind = Kind::Blind;
    let mut higher = one.clone();
    higher.outcome = Outcome::Committed(5);
    assert!(wrong(&[first(), higher, late], &both).starts_with("a commit has a smaller number"));
    let early = committed(2, (2, 7), 2, 2, vec![put("c", "1")]);
    assert!(wrong(&[first(), early], &both).contains("is not after its snapshot"));
    let nothing = committed(2, (2, 7), 1, 9, vec![get("a", Some("0"))]);
    assert!(wrong(&[first(), nothing], &both).contains("it wrote nothing, yet"));
    assert!(wrong(&[first(), one], &[("a", "1")]).starts_with("in the end: 0/\"b\" is missing"));
}

#[test]
fn history_with_needless_refusal_fails() {
    let one = committed(1, (2, 5), 1, 2, vec![put("b", "1"), Step::Write(Change::DeleteRange(0, open("c", "e")))]);
    let finally = [("a", "0"), ("b", "1")];
    let refused = |steps: Vec<Step>| {
        let mut refused = committed(2, (2, 6), 1, 0, steps);
        refused.outcome = Outcome::Refused;
        check_replay(&[first(), one.clone(), refused], &holding(&finally)).is_err()
    };
    assert!(refused(vec![get("a", Some("0")), put("x", "")]));
    assert!(!refused(vec![get("b", Some("0")), put("x", "")]));
    assert!(refused(vec![get("b", Some("0"))]), "it wrote nothing, so nothing can conflict");
    assert!(refused(vec![put("b", "2"), get("b", Some("2"))]), "its own write is no conflict");
    assert!(!refused(vec![get("c\0", None), put("x", "")]), "a deleted range covers the key");
    assert!(refused(vec![get("c", None), put("x", "")]), "the deleted range begins after the key");
    assert!(!refused(vec![range("a", "b\0", &[Some(("a", "0")), Some(("b", "0"))]), put("x", "")]));
    assert!(refused(vec![range("a", "z", &[Some(("a", "0"))]), put("x", "")]), "it did not read the changed row");
    assert!(!refused(vec![range("d", "z", &[None]), put("x", "")]));
    assert!(refused(vec![range("e", "z", &[None]), put("x", "")]));
}

fn open(from: &str, to: &str) -> Bounds {
    (Bound::Excluded(from.into()), Bound::Excluded(to.into()))
}
