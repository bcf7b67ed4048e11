//! Bounds in each order of a pop's and a writer's steps.

use super::*;
use crate::commit::RawBatch;

const TREE: TreeId = TreeId(7);

fn key(user_key: u8) -> Vec<u8> {
    [&TREE.first_key()[..], &[user_key]].concat()
}

fn put(ends: &TreeEnds, user_key: u8) {
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Value, &[&key(user_key)], b"value");
    ends.note(batch.prepare().unwrap().bytes());
}

fn pop(ends: &TreeEnds, side: Side, user_key: u8, since: SequenceNumber) {
    let ticket = ends.propose(TREE, side, &key(user_key));
    ends.conclude(ticket, Some(since));
}

fn used() -> TreeEnds {
    let ends = TreeEnds::default();
    drop(ends.turn(TREE));
    ends
}

#[test]
fn bound_holds_from_its_commit_on() {
    let ends = used();
    pop(&ends, Side::First, 5, 10);
    pop(&ends, Side::Last, 8, 11);
    assert_eq!(ends.bound(TREE, Side::First, 9), None);
    assert_eq!(ends.bound(TREE, Side::First, 10), Some(after(&key(5))));
    assert_eq!(ends.bound(TREE, Side::Last, 10), None);
    assert_eq!(ends.bound(TREE, Side::Last, 11), Some(key(8)));
    assert_eq!(ends.bound(TreeId(8), Side::First, 11), None);
}

#[test]
fn write_moves_bounds_back_and_deletes_do_not() {
    let ends = used();
    pop(&ends, Side::First, 5, 10);
    pop(&ends, Side::Last, 8, 11);
    put(&ends, 6);
    assert_eq!(ends.bound(TREE, Side::First, 12), Some(after(&key(5))));
    let mut batch = RawBatch::default();
    batch.push(EntryKind::Tombstone, &[&key(1)], b"");
    batch.push(EntryKind::RangeDelete, &[&key(2)], &key(4));
    ends.note(batch.prepare().unwrap().bytes());
    assert_eq!(ends.bound(TREE, Side::First, 12), Some(after(&key(5))));
    put(&ends, 5);
    put(&ends, 8);
    assert_eq!(ends.bound(TREE, Side::First, 12), Some(key(5)));
    assert_eq!(ends.bound(TREE, Side::Last, 12), Some(after(&key(8))));
    put(&ends, 3);
    put(&ends, 4);
    assert_eq!(ends.bound(TREE, Side::First, 12), Some(key(3)));
}

/// The write comes after the pop's commit, and before the pop concludes.
#[test]
fn write_between_commit_and_conclusion_moves_the_proposal_back() {
    for side in [Side::First, Side::Last] {
        let ends = used();
        let ticket = ends.propose(TREE, side, &key(5));
        put(&ends, if side == Side::First { 2 } else { 9 });
        ends.conclude(ticket, Some(10));
        let expected = if side == Side::First { key(2) } else { after(&key(9)) };
        assert_eq!(ends.bound(TREE, side, 10), Some(expected));
    }
}

/// Commits that wait for a sync overlap, and may conclude in any order.
#[test]
fn bound_of_the_latest_commit_stays() {
    let ends = used();
    let tickets = [5, 6, 4].map(|user_key| ends.propose(TREE, Side::First, &key(user_key)));
    ends.conclude(tickets[1], Some(11));
    ends.conclude(tickets[0], Some(10));
    assert_eq!(ends.bound(TREE, Side::First, 11), Some(after(&key(6))));
    ends.conclude(tickets[2], None);
    ends.conclude(tickets[2], Some(12));
    assert_eq!(ends.bound(TREE, Side::First, 12), Some(after(&key(6))), "it was withdrawn");
}

#[test]
fn proposals_are_limited() {
    let ends = used();
    let oldest = ends.propose(TREE, Side::First, &key(5));
    let others = [0; PROPOSALS_MAX].map(|_| ends.propose(TREE, Side::First, &key(4)));
    ends.conclude(oldest, Some(10));
    assert_eq!(ends.bound(TREE, Side::First, 10), None);
    others.into_iter().for_each(|ticket| ends.conclude(ticket, None));
    assert!(ends.trees.lock().by_id[&TREE].proposals.is_empty());
}

#[test]
fn load_forgets_bound_and_proposal() {
    let ends = used();
    pop(&ends, Side::First, 5, 10);
    let ticket = ends.propose(TREE, Side::First, &key(6));
    ends.forget(TREE);
    assert_eq!(ends.bound(TREE, Side::First, 10), None);
    drop(ends.turn(TREE));
    ends.conclude(ticket, Some(11));
    assert_eq!(ends.bound(TREE, Side::First, 11), None);
}

#[test]
fn bounds_of_more_trees_than_the_maximum_are_forgotten() {
    let ends = used();
    pop(&ends, Side::First, 5, 10);
    (100..100 + TREES_MAX as u32 - 1).for_each(|tree| drop(ends.turn(TreeId(tree))));
    assert!(ends.bound(TREE, Side::First, 10).is_some());
    drop(ends.turn(TreeId(99)));
    assert_eq!(ends.bound(TREE, Side::First, 10), None);
    assert!(ends.trees.lock().by_id.len() <= TREES_MAX);
}
