//! The ten anomalies of Hermitage (Kleppmann, github.com/ept/hermitage). None happens between
//! optimistic transactions: each sees a correct state, or its commit is refused.
//!
//! A table holds 10 under 1 and 20 under 2, and a predicate filters the whole range. Each case runs
//! once for each place where a commit finds conflicts: in the window of recent commits, and after a
//! flood of the window in the memtable, in flushed runs, in a view, and after a merge.

use crate::common;

use braiddb::{Db, Durability, Result, SequenceNumber, Snapshot, Transaction, Tree, platform::MemVfs};
use common::{SmallOptions, empty_disk, explained, threads::ok};
use std::sync::Arc;

/// Exceeds the window of recent commits.
const FLOOD_KEYS: u8 = 5;
const FLOOD_KEY_LEN: usize = 60_000;

/// Flushes after which unindexed runs are folded.
const RUNS: u8 = 8;

#[derive(Clone, Copy, Debug)]
enum Place {
    Window,
    Memory,
    Runs,
    View,
    Merged,
}

struct Case {
    db: Db,
    table: Tree,
    other: Tree,
    place: Place,
}

type Rows = Vec<(u8, u8)>;

fn everywhere(body: impl Fn(&Case)) {
    for place in [Place::Window, Place::Memory, Place::Runs, Place::View, Place::Merged] {
        explained(
            || format!("{place:?}"),
            || {
                let options = SmallOptions { memtable_bytes: 4 << 20, ..SmallOptions::default() };
                let builder = options.builder(&empty_disk(1), 1).vfs(Arc::new(MemVfs::new()));
                let db = ok(builder.open(common::PATH));
                let (table, other) = (ok(db.tree("table")), ok(db.tree("other")));
                ok(table.put([1], [10]));
                ok(table.put([2], [20]));
                body(&Case { db, table, other, place });
            },
        );
    }
}

impl Case {
    fn begin(&self) -> Transaction {
        ok(self.db.begin())
    }

    fn get(&self, tx: &Transaction, key: u8) -> Option<u8> {
        ok(tx.get(&self.table, [key])).map(|value| value[0])
    }

    fn put(&self, tx: &Transaction, key: u8, value: u8) {
        ok(tx.put(&self.table, [key], [value]));
    }

    fn select(&self, tx: &Transaction, holds: impl Fn(u8) -> bool) -> Rows {
        let rows = tx.iter(&self.table).map(ok).map(|(key, value)| (key[0], value[0]));
        rows.filter(|(_, value)| holds(*value)).collect()
    }

    fn seen_by(&self, snapshot: &Snapshot) -> Rows {
        snapshot.iter(&self.table).map(ok).map(|(key, value)| (key[0], value[0])).collect()
    }

    fn rows(&self) -> Rows {
        self.table.iter().map(ok).map(|(key, value)| (key[0], value[0])).collect()
    }

    fn try_commit(&self, tx: Transaction) -> Result<SequenceNumber> {
        if !matches!(self.place, Place::Window) {
            let mut batch = self.db.batch();
            for key in 0..FLOOD_KEYS {
                batch.delete(&self.other, vec![key; FLOOD_KEY_LEN]);
            }
            ok(batch.commit_with(Durability::Buffered));
        }
        match self.place {
            Place::Runs => ok(self.db.flush()),
            Place::View => {
                for number in 0..RUNS {
                    ok(self.db.flush());
                    ok(self.other.put([number], []));
                }
            }
            Place::Merged => ok(self.db.compact()),
            Place::Window | Place::Memory => {}
        }
        tx.commit()
    }

    fn commit(&self, tx: Transaction) {
        ok(self.try_commit(tx));
    }

    fn is_refused(&self, tx: Transaction) {
        let before = self.rows();
        let refused = self.try_commit(tx).expect_err("a conflict");
        assert!(refused.is_conflict(), "{refused}");
        assert_eq!(self.rows(), before, "a refused transaction changes nothing");
    }
}

/// G0: the writes of two transactions to the same keys do not mix.
#[test]
fn g0_write_cycles_are_prevented() {
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        case.put(&one, 1, 11);
        case.put(&two, 1, 12);
        case.put(&one, 2, 21);
        case.commit(one);
        assert_eq!(case.rows(), [(1, 11), (2, 21)]);
        let snapshot = case.db.snapshot();
        case.put(&two, 2, 22);
        case.commit(two);
        assert_eq!(case.rows(), [(1, 12), (2, 22)]);
        assert_eq!(case.seen_by(&snapshot), [(1, 11), (2, 21)]);
    });
}

/// G1a: writes rolled back, dropped or refused are never seen.
#[test]
fn g1a_aborted_reads_are_prevented() {
    everywhere(|case| {
        let (dropped, refused, reader) = (case.begin(), case.begin(), case.begin());
        case.put(&dropped, 1, 101);
        assert_eq!(case.get(&refused, 2), Some(20));
        case.put(&refused, 1, 102);
        assert_eq!(case.get(&reader, 1), Some(10));
        assert_eq!(case.rows(), [(1, 10), (2, 20)]);
        dropped.rollback();
        let writer = case.begin();
        let savepoint = writer.savepoint();
        case.put(&writer, 1, 103);
        ok(writer.delete(&case.table, [2]));
        ok(writer.rollback_to(savepoint));
        assert_eq!(case.select(&writer, |_| true), [(1, 10), (2, 20)]);
        case.put(&writer, 2, 21);
        case.commit(writer);
        case.is_refused(refused);
        assert_eq!(case.select(&reader, |_| true), [(1, 10), (2, 20)]);
        let later = case.begin();
        assert_eq!(case.select(&later, |_| true), [(1, 10), (2, 21)]);
        assert_eq!(case.seen_by(&case.db.snapshot()), [(1, 10), (2, 21)]);
        case.commit(reader);
    });
}

/// G1b: a value that its writer overwrites later is never seen.
#[test]
fn g1b_intermediate_reads_are_prevented() {
    everywhere(|case| {
        let (writer, reader) = (case.begin(), case.begin());
        case.put(&writer, 1, 101);
        assert_eq!(case.get(&reader, 1), Some(10));
        assert_eq!(case.seen_by(&case.db.snapshot()), [(1, 10), (2, 20)]);
        case.put(&writer, 1, 11);
        case.commit(writer);
        assert_eq!(case.get(&reader, 1), Some(10));
        case.put(&reader, 3, 30);
        case.is_refused(reader);
        assert_eq!(case.rows(), [(1, 11), (2, 20)]);
    });
}

/// G1c: each reads a key that the other writes. Neither sees the write, and only one commits.
#[test]
fn g1c_circular_information_flow_is_prevented() {
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        case.put(&one, 1, 11);
        case.put(&two, 2, 22);
        assert_eq!(case.get(&one, 2), Some(20));
        assert_eq!(case.get(&two, 1), Some(10));
        case.commit(one);
        case.is_refused(two);
        assert_eq!(case.rows(), [(1, 11), (2, 20)]);
    });
}

/// OTV, observed transaction vanishes: a reader of a part of a transaction sees all of it.
#[test]
fn otv_vanishing_of_observed_transaction_is_prevented() {
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        case.put(&one, 1, 11);
        case.put(&one, 2, 19);
        case.put(&two, 1, 12);
        case.commit(one);
        let (reader, snapshot) = (case.begin(), case.db.snapshot());
        assert_eq!(case.get(&reader, 1), Some(11));
        case.put(&two, 2, 18);
        assert_eq!(case.get(&reader, 2), Some(19));
        case.commit(two);
        assert_eq!(case.get(&reader, 2), Some(19));
        assert_eq!(case.get(&reader, 1), Some(11));
        assert_eq!(case.seen_by(&snapshot), [(1, 11), (2, 19)]);
        case.put(&reader, 3, 30);
        case.is_refused(reader);
        assert_eq!(case.rows(), [(1, 12), (2, 18)]);
    });
}

/// PMP, predicate-many-preceders: a predicate repeats its rows, and a write based on it is refused
/// if they have changed.
#[test]
fn pmp_predicate_many_preceders_is_prevented() {
    everywhere(|case| {
        let (reader, writer) = (case.begin(), case.begin());
        assert_eq!(case.select(&reader, |value| value == 30), []);
        case.put(&writer, 3, 30);
        case.commit(writer);
        assert_eq!(case.select(&reader, |value| value % 3 == 0), []);
        case.put(&reader, 9, 90);
        case.is_refused(reader);
    });
    // The predicate of a write.
    everywhere(|case| {
        let (adder, remover) = (case.begin(), case.begin());
        for (key, value) in case.select(&adder, |_| true) {
            case.put(&adder, key, value + 10);
        }
        for (key, _) in case.select(&remover, |value| value == 20) {
            ok(remover.delete(&case.table, [key]));
        }
        case.commit(adder);
        assert_eq!(case.select(&remover, |_| true), [(1, 10)], "it sees only its own delete");
        case.is_refused(remover);
        assert_eq!(case.rows(), [(1, 20), (2, 30)]);
    });
}

/// P4, lost update: of two that read and write a key, one commits.
#[test]
fn p4_lost_update_is_prevented() {
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        assert_eq!(case.get(&one, 1), Some(10));
        assert_eq!(case.get(&two, 1), Some(10));
        case.put(&one, 1, 11);
        case.put(&two, 1, 12);
        case.commit(one);
        case.is_refused(two);
        assert_eq!(case.rows(), [(1, 11), (2, 20)]);
    });
    // A key deleted meanwhile.
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        assert_eq!(case.get(&one, 1), Some(10));
        assert_eq!(case.select(&two, |value| value > 10), [(2, 20)]);
        case.put(&one, 1, 11);
        case.put(&two, 3, 30);
        ok(case.table.delete([1]));
        case.is_refused(one);
        case.is_refused(two);
        assert_eq!(case.rows(), [(2, 20)]);
    });
    // A missing key, and a blind range delete.
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        assert_eq!(case.get(&one, 5), None);
        assert_eq!(case.get(&two, 2), Some(20));
        case.put(&one, 5, 1);
        case.put(&two, 2, 21);
        ok(case.table.put([5], [2]));
        ok(case.table.delete_range([2]..[4]));
        case.is_refused(one);
        case.is_refused(two);
        assert_eq!(case.rows(), [(1, 10), (5, 2)]);
    });
}

/// G-single, read skew: reads around a commit of both keys see the old values.
#[test]
fn g_single_read_skew_is_prevented() {
    everywhere(|case| {
        let (reader, writer) = (case.begin(), case.begin());
        let snapshot = reader.snapshot();
        assert_eq!(case.get(&reader, 1), Some(10));
        assert_eq!(case.select(&writer, |_| true), [(1, 10), (2, 20)]);
        case.put(&writer, 1, 12);
        case.put(&writer, 2, 18);
        case.commit(writer);
        assert_eq!(case.get(&reader, 2), Some(20));
        assert_eq!(case.seen_by(&snapshot), [(1, 10), (2, 20)]);
        let sequence = reader.sequence();
        assert_eq!(ok(case.try_commit(reader)), sequence, "a read-only commit returns its snapshot's sequence number");
    });
    // With predicates.
    everywhere(|case| {
        let (reader, writer) = (case.begin(), case.begin());
        assert_eq!(case.select(&reader, |value| value % 5 == 0), [(1, 10), (2, 20)]);
        case.put(&writer, 1, 12);
        case.commit(writer);
        assert_eq!(case.select(&reader, |value| value % 3 == 0), []);
        case.commit(reader);
    });
    // With a write based on both.
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        assert_eq!(case.get(&one, 1), Some(10));
        case.put(&two, 1, 12);
        case.put(&two, 2, 18);
        case.commit(two);
        for (key, _) in case.select(&one, |value| value == 20) {
            ok(one.delete(&case.table, [key]));
        }
        case.is_refused(one);
        assert_eq!(case.rows(), [(1, 12), (2, 18)]);
    });
}

/// G2-item, write skew: both read two keys, and each writes another one of them.
#[test]
fn g2_item_write_skew_is_prevented() {
    everywhere(|case| {
        let (one, two) = (case.begin(), case.begin());
        for tx in [&one, &two] {
            assert_eq!((case.get(tx, 1), case.get(tx, 2)), (Some(10), Some(20)));
        }
        case.put(&one, 1, 11);
        case.put(&two, 2, 21);
        case.commit(one);
        case.is_refused(two);
        assert_eq!(case.rows(), [(1, 11), (2, 20)]);
    });
}

/// G2, anti-dependency cycles: both find no row for a predicate and insert one, from either end of
/// the range.
#[test]
fn g2_anti_dependency_cycles_are_prevented() {
    for is_backward in [false, true] {
        everywhere(|case| {
            let (one, two) = (case.begin(), case.begin());
            for tx in [&one, &two] {
                match is_backward {
                    false => assert_eq!(case.select(tx, |value| value % 3 == 0), []),
                    true => assert!(tx.iter(&case.table).rev().map(ok).all(|(_, value)| value[0] % 3 != 0)),
                }
            }
            case.put(&one, 3, 30);
            case.put(&two, 4, 42);
            case.commit(one);
            case.is_refused(two);
            assert_eq!(case.rows(), [(1, 10), (2, 20), (3, 30)]);
        });
    }
    // Fekete's case: a read-only transaction sees the second and not the first, which must not
    // commit.
    everywhere(|case| {
        let one = case.begin();
        assert_eq!(case.select(&one, |_| true), [(1, 10), (2, 20)]);
        let two = case.begin();
        let before = case.get(&two, 2);
        case.put(&two, 2, before.unwrap_or_default() + 5);
        case.commit(two);
        let three = case.begin();
        assert_eq!(case.select(&three, |_| true), [(1, 10), (2, 25)]);
        assert_eq!(case.seen_by(&case.db.snapshot()), [(1, 10), (2, 25)]);
        case.commit(three);
        case.put(&one, 1, 0);
        case.is_refused(one);
        assert_eq!(case.rows(), [(1, 10), (2, 25)]);
    });
}
