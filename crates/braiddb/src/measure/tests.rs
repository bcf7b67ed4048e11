//! The view does what it is held to, by counts; and the plain merge that it is held against is a right one.

use super::{
    contest::Bench,
    plain_merge::{self, PlainMerge},
    questions::Questions,
    shelf::Shelf,
    *,
};
use crate::base::Cursor;

const ROWS: u64 = 40_000;

/// Counts alone are looked at.
fn no_clock() -> u64 {
    0
}

fn counts(layouts: &[(Layout, usize)]) -> Report {
    let options = MeasureOptions { rows: ROWS, operations: 8_000, rounds: 0, layouts: layouts.to_vec() };
    measure(&options, &no_clock, &mut |_| ()).unwrap()
}

#[test]
fn a_view_compares_one_key_where_a_merge_compares_many() {
    let report = counts(&[
        (Layout::Even, 1),
        (Layout::Even, 4),
        (Layout::Even, 8),
        (Layout::Even, 16),
        (Layout::NineTenths, 8),
        (Layout::NineTenths, 16),
    ]);
    let mut seeks_held = 0;
    for (view, merge) in report.pairs() {
        let name = format!("{} {} {}", view.layout.name(), view.runs, view.operation.name());
        match view.operation {
            Operation::GetHit | Operation::GetChained => {
                assert_eq!((view.comparisons, view.blocks, view.segments), (1.0, 1.0, 1.0), "{name}");
            }
            Operation::GetMiss => assert!(view.comparisons <= 0.15 && view.segments == 1.0, "{name} {view:?}"),
            Operation::SeekHit => assert_eq!((view.comparisons, view.blocks), (1.0, 1.0), "{name} {view:?}"),
            Operation::SeekMiss => assert!(view.comparisons <= 1.0 && view.blocks <= 2.0, "{name} {view:?}"),
            Operation::SeekFifty => assert!(view.comparisons <= 1.0, "{name} {view:?}"),
            Operation::Scan | Operation::ScanBack => assert_eq!(view.comparisons, 0.0, "{name}"),
        }
        if matches!(view.operation, Operation::SeekHit | Operation::SeekMiss) {
            let bar = match view.runs {
                16 => 9.0,
                8 => 5.0,
                _ => 1.0,
            };
            assert!(merge.comparisons >= bar * view.comparisons, "{name} {merge:?}");
            seeks_held += 1;
        }
    }
    assert_eq!(seeks_held, 12);
    for size in report.sizes.iter().filter(|size| size.contestant == Contestant::View && size.runs <= 8) {
        assert!(size.bytes_per_key < 6.0, "{size:?}");
    }
}

#[test]
fn the_standings_tell_what_is_not_met() {
    let mut report = counts(&[(Layout::Even, 8)]);
    let standings = report.standings();
    assert_eq!(standings.len(), 3);
    assert!(standings[..2].iter().all(|standing| standing.is_met), "{standings:?}");
    for figure in &mut report.figures {
        figure.nanoseconds = Some(if figure.contestant == Contestant::View { 10.0 } else { 49.0 });
    }
    let timed = report.standings();
    assert_eq!(timed.iter().filter(|standing| !standing.is_met && standing.value == 4.9).count(), 2);
}

/// The least comparisons a bisection can need, and no more than a careless one would: else what the view is held against
/// would be made of straw.
#[test]
fn the_plain_merge_compares_no_more_than_it_must() {
    let report = counts(&[(Layout::Even, 8)]);
    for figure in report.figures.iter().filter(|figure| figure.contestant == Contestant::Merge) {
        let rows_of_run = ROWS as f64 / 8.0;
        // Bisecting blocks and then entries costs at most a step more than bisecting the run; a heap of eight is built with
        // at most fourteen comparisons.
        let most = match figure.operation {
            Operation::GetHit | Operation::GetChained => rows_of_run.log2() + 3.0,
            Operation::GetMiss => 1.5,
            Operation::SeekHit | Operation::SeekMiss => 8.0 * (rows_of_run.log2() + 1.5) + 14.0,
            Operation::SeekFifty => 8.0 * (rows_of_run.log2() + 1.5) + 14.0 + 49.0 * 7.0,
            Operation::Scan | Operation::ScanBack => 7.0,
        };
        assert!(figure.comparisons <= most, "{figure:?}, {most} at most");
    }
}

#[test]
fn the_plain_merge_turns_round_anywhere() {
    let shelf = Shelf::build(3_000, Layout::NineTenths, 5).unwrap();
    let guard = crossbeam_epoch::pin();
    let mut merge = PlainMerge::new(&shelf.parts[0].plain, &guard);
    let mut state = 1;
    for _ in 0..300 {
        state = data::mix(state);
        let mut at = (state % 3_000) as usize;
        merge.seek(&shelf.truth[at].0).unwrap();
        for step in 0..40 {
            assert_eq!(merge.key(), shelf.truth[at].0);
            let is_forward = state >> (step + 8) & 1 == 1;
            let next = if is_forward { at.checked_add(1) } else { at.checked_sub(1) };
            if is_forward {
                merge.next().unwrap()
            } else {
                merge.prev().unwrap()
            }
            match next.filter(|&next| next < 3_000) {
                Some(next) => at = next,
                None => {
                    assert!(!merge.valid());
                    break;
                }
            }
        }
    }
    merge.seek_before(&shelf.truth[0].0).unwrap();
    assert!(!merge.valid());
    let (key, row) = shelf.truth[7];
    let found = plain_merge::get(&shelf.parts[0].plain, &key, &guard).unwrap().unwrap();
    assert_eq!(found.value, data::value(row));
}

#[test]
fn rows_are_spread_as_the_layouts_say() {
    assert_eq!(Layout::NineTenths.borders(1_000, 4), [0, 900, 933, 966, 1_000]);
    assert_eq!(Layout::Even.borders(1_000, 4), [0, 250, 500, 750, 1_000]);
    assert_eq!(Layout::NineTenths.borders(1_000, 1), [0, 1_000]);
}

#[test]
fn a_keyspace_cut_into_parts_answers_as_a_whole() {
    let (layout, runs) = (Layout::NineTenths, 3);
    let shelf = Shelf::cut(5_000, layout, runs, 1_200).unwrap();
    assert_eq!(shelf.parts.len(), 4);
    for operation in Operation::ALL {
        let questions = Questions::new(operation, 5_000, 1_000);
        Bench { shelf: &shelf, questions, layout, runs }.run(2, &no_clock).unwrap();
    }
}

#[test]
fn wrong_answers_are_told() {
    let mut shelf = Shelf::build(2_000, Layout::Even, 2).unwrap();
    // What must be there is changed, which is as good as an index that has it wrong.
    shelf.truth[1_234].1 ^= 1;
    for operation in [Operation::GetHit, Operation::SeekHit, Operation::SeekFifty, Operation::Scan, Operation::ScanBack]
    {
        let questions = Questions::new(operation, 2_000, 20_000);
        let bench = Bench { shelf: &shelf, questions, layout: Layout::Even, runs: 2 };
        let error = bench.run(0, &no_clock).unwrap_err();
        assert!(error.to_string().contains("is wrong"), "{error}");
    }
}
