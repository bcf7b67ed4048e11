//! The list checker finds each error in constructed histories, and none in correct ones.

use super::*;
use crate::{history::Kind, model::prefix_bounds};

/// Its sequence number has no meaning.
fn transaction(name: u64, times: (u64, u64), steps: Vec<Step>) -> Record {
    let mut record = Record::new((name, 0), Kind::Optimistic, times.0, 0);
    record.ended = times.1;
    record.steps = steps;
    record.outcome = Outcome::Committed(1);
    record
}

fn get(key: &str, list: &[u64]) -> Step {
    Step::Get(0, key.into(), (!list.is_empty()).then(|| encode(list)))
}

fn put(key: &str, list: &[u64]) -> Step {
    Step::Write(Change::Put(0, key.into(), encode(list)))
}

fn all(rows: &[(&str, &[u64])]) -> Step {
    let rows = rows.iter().map(|(key, list)| Some((key.as_bytes().to_vec(), encode(list)))).chain([None]);
    Step::Range(0, prefix_bounds(b""), rows.map(|row| Taken { is_back: false, row }).collect())
}

fn judge(records: &[Record], finally: &[(&str, &[u64])]) -> Result<u64, String> {
    let finally = finally.iter().map(|(key, list)| ((0, key.as_bytes().to_vec()), encode(list))).collect();
    check_lists(records, &finally, |_, _| true).map_err(|wrong| wrong.report(records))
}

fn wrong(records: &[Record], finally: &[(&str, &[u64])]) -> String {
    judge(records, finally).expect_err("the history must fail")
}

#[test]
fn correct_history_passes() {
    let own = vec![get("a", &[]), put("a", &[1]), get("a", &[1]), put("a", &[1, 2]), all(&[("a", &[1, 2])])];
    let regrets = vec![
        Step::Savepoint(1),
        Step::Write(Change::DeleteRange(0, prefix_bounds(b""))),
        get("a", &[]),
        put("a", &[9]),
        Step::RollBack(1),
        get("a", &[1, 2]),
        put("a", &[1, 2, 3]),
    ];
    let mut refused = transaction(3, (2, 20), vec![get("a", &[1, 2]), put("a", &[1, 2, 4]), all(&[("a", &[1, 2, 4])])]);
    refused.outcome = Outcome::Refused;
    let records =
        [transaction(1, (0, 1), own), transaction(2, (2, 9), regrets), refused, transaction(4, (10, 11), vec![])];
    assert_eq!(judge(&records, &[("a", &[1, 2, 3])]), Ok(4));
    assert_eq!(judge(&[], &[]), Ok(0));
}

#[test]
fn history_with_lost_update_fails() {
    let add = |name, number| transaction(name, (0, 9), vec![get("a", &[]), put("a", &[number])]);
    let reported = wrong(&[add(1, 1), add(2, 2)], &[("a", &[2])]);
    assert!(
        reported.contains("an update was lost") && reported.contains("T1.0") && reported.contains("T2.0"),
        "{reported}"
    );
    let reported = wrong(&[add(1, 1)], &[]);
    assert!(reported.contains("1 in 0/\"a\" was committed, but is missing"), "{reported}");
}

#[test]
fn history_with_write_skew_fails() {
    let both = || [get("a", &[]), get("b", &[])];
    let one = transaction(1, (0, 9), [&both()[..], &[put("a", &[1])]].concat());
    let other = transaction(2, (0, 9), [&both()[..], &[put("b", &[2])]].concat());
    let reported = wrong(&[one, other], &[("a", &[1]), ("b", &[2])]);
    assert!(reported.starts_with("a cycle (G2): [1] -rw 0/\"b\"-> [2] -rw 0/\"a\"-> [1]"), "{reported}");
}

#[test]
fn history_with_aborted_or_intermediate_read_fails() {
    let mut aborted = transaction(1, (0, 9), vec![get("a", &[]), put("a", &[1])]);
    aborted.outcome = Outcome::Refused;
    let reader = |list: &[u64]| transaction(2, (0, 9), vec![get("a", list)]);
    assert!(wrong(&[aborted, reader(&[1])], &[]).starts_with("aborted read: 1"));
    let twice = transaction(1, (0, 9), vec![get("a", &[]), put("a", &[1]), put("a", &[1, 2])]);
    assert!(wrong(&[twice.clone(), reader(&[1])], &[("a", &[1, 2])]).starts_with("intermediate read"));
    assert!(judge(&[twice, reader(&[])], &[("a", &[1, 2])]).is_ok());
    let back = vec![get("a", &[]), Step::Savepoint(1), put("a", &[1]), Step::RollBack(1), put("a", &[2])];
    assert!(wrong(&[transaction(1, (0, 9), back), reader(&[1])], &[("a", &[2])]).starts_with("aborted read: 1"));
    let once = transaction(1, (0, 9), vec![put("a", &[1])]);
    assert!(wrong(&[once.clone(), reader(&[1, 1])], &[("a", &[1])]).contains("holds 1 twice"));
    assert!(wrong(&[once, reader(&[1, 7])], &[("a", &[1])]).contains("holds 7, which no transaction wrote"));
}

#[test]
fn history_with_circular_information_flow_fails() {
    let one = transaction(1, (0, 9), vec![put("a", &[1]), get("b", &[2])]);
    let other = transaction(2, (0, 9), vec![put("b", &[2]), get("a", &[1])]);
    assert!(wrong(&[one, other], &[("a", &[1]), ("b", &[2])]).starts_with("a cycle (G1c)"));
}

#[test]
fn history_with_read_skew_fails() {
    let writer = transaction(1, (0, 9), vec![get("a", &[]), get("b", &[]), put("a", &[1]), put("b", &[2])]);
    let reader = transaction(2, (0, 9), vec![get("a", &[]), get("b", &[2])]);
    assert!(wrong(&[writer, reader], &[("a", &[1]), ("b", &[2])]).starts_with("a cycle (G-single)"));
}

#[test]
fn history_with_long_fork_fails() {
    let one = transaction(1, (0, 9), vec![get("a", &[]), put("a", &[1])]);
    let other = transaction(2, (0, 9), vec![get("b", &[]), put("b", &[2])]);
    let sees = |name, a: &[u64], b: &[u64]| transaction(name, (0, 9), vec![get("a", a), get("b", b)]);
    let reported = wrong(&[one, other, sees(3, &[1], &[]), sees(4, &[], &[2])], &[("a", &[1]), ("b", &[2])]);
    assert!(
        reported.starts_with("a cycle (G2)") && reported.contains("T3.0") && reported.contains("T4.0"),
        "{reported}"
    );
}

#[test]
fn history_with_phantom_fails() {
    let one = transaction(1, (0, 9), vec![all(&[]), put("a", &[1])]);
    let other = transaction(2, (0, 9), vec![all(&[]), put("b", &[2])]);
    let reported = wrong(&[one.clone(), other], &[("a", &[1]), ("b", &[2])]);
    assert!(reported.starts_with("a cycle (G2): "), "{reported}");
    let after = transaction(2, (0, 9), vec![all(&[("a", &[1])]), put("b", &[2])]);
    assert_eq!(judge(&[one, after], &[("a", &[1]), ("b", &[2])]), Ok(3));
}

#[test]
fn history_that_violates_real_time_order_fails() {
    let writer = transaction(1, (0, 5), vec![get("a", &[]), put("a", &[1])]);
    let idle = transaction(3, (2, 3), vec![]);
    let stale = |began| transaction(2, (began, 9), vec![get("a", &[])]);
    assert!(judge(&[writer.clone(), idle.clone(), stale(4)], &[("a", &[1])]).is_ok());
    let reported = wrong(&[writer, idle, stale(6)], &[("a", &[1])]);
    assert!(
        reported.starts_with("a cycle (G-single, in real time): [1] -time-> -time-> [2] -rw 0/\"a\"-> [1]"),
        "{reported}"
    );
}
