//! Tests the distributions against theory.

use crate::{
    bench::{
        distribution::{Chooser, Distribution, Share},
        ycsb::{Inserts, Mix},
        zipf::Zipf,
    },
    random::Random,
};

const ALONE: Share = Share { thread: 0, threads: 1 };

fn draw(distribution: Distribution, rows: u64, draws: u64) -> Vec<u64> {
    let mut chooser = Chooser::at_random(distribution, rows, Random::of(7, 1), ALONE);
    let mut counts = vec![0; rows as usize];
    (0..draws).for_each(|_| counts[chooser.next().unwrap() as usize] += 1);
    counts
}

/// Sum of squared deviations over their variance: about the number of cells, within the square root
/// of twice that number.
fn chi_square(counts: &[u64], expected: impl Fn(usize) -> f64) -> f64 {
    counts.iter().enumerate().map(|(cell, count)| (*count as f64 - expected(cell)).powi(2) / expected(cell)).sum()
}

fn assert_fits(counts: &[u64], expected: impl Fn(usize) -> f64, what: &str) {
    let cells = counts.len() as f64 - 1.0;
    let distance = chi_square(counts, expected);
    assert!((distance - cells).abs() < 5.0 * (2.0 * cells).sqrt() + 1.0, "{what}: {distance} for {cells} cells");
}

#[test]
fn zipfian_draws_match_theoretical_frequencies() {
    const DRAWS: u64 = 1_000_000;
    for theta in [0.2, 0.5, 0.99, 1.0, 1.0 + 1e-12, 1.3] {
        for items in [2_usize, 10, 500] {
            let (zipf, mut random) = (Zipf::new(items as u64, theta), Random::of(3, items as u64));
            let mut counts = vec![0; items];
            (0..DRAWS).for_each(|_| counts[zipf.next(&mut random) as usize] += 1);
            let weight = |rank: usize| (rank as f64 + 1.0).powf(-theta);
            let whole: f64 = (0..items).map(weight).sum();
            assert_fits(&counts, |rank| DRAWS as f64 * weight(rank) / whole, &format!("theta {theta}, {items} items"));
        }
    }
}

#[test]
fn zipfian_ranks_are_below_count() {
    let mut random = Random::of(1, 1);
    for items in [1, 2, 3, 1 << 20, 1 << 40] {
        for theta in [0.01, 0.99, 1.0, 5.0] {
            let zipf = Zipf::new(items, theta);
            assert!((0..10_000).all(|_| zipf.next(&mut random) < items), "{items} {theta}");
        }
    }
}

#[test]
fn uniform_draws_match_equal_frequencies() {
    assert_fits(&draw(Distribution::Uniform, 300, 300_000), |_| 1000.0, "uniform");
}

#[test]
fn zipfian_frequent_rows_are_not_neighbours() {
    let mut counts = draw(Distribution::Zipfian(0.99), 1000, 200_000);
    let mut by_frequency: Vec<usize> = (0..1000).collect();
    by_frequency.sort_by_key(|row| std::cmp::Reverse(counts[*row]));
    let top = &by_frequency[..10];
    assert!(top.iter().all(|a| top.iter().all(|b| a == b || a.abs_diff(*b) > 1)), "{top:?}");
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let whole: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
    let first = counts[0] as f64 / 200_000.0;
    assert!((first * whole - 1.0).abs() < 0.03, "{first}");
}

/// With duplicate places, some rows were never chosen, and others too often.
#[test]
fn zipfian_draws_reach_all_rows() {
    for rows in (1..60).chain([64, 100, 128, 255, 256]) {
        assert!(draw(Distribution::Zipfian(0.1), rows, rows * 60).iter().all(|count| *count > 0), "{rows}");
    }
}

#[test]
fn latest_draws_prefer_newest_rows() {
    let counts = draw(Distribution::Latest(0.99), 1000, 200_000);
    let whole: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
    for (age, rank) in [(0, 1.0_f64), (1, 2.0), (9, 10.0)] {
        let share = counts[999 - age] as f64 / 200_000.0 * whole / rank.powf(-0.99);
        assert!((share - 1.0).abs() < 0.06, "the row {age} before the last: {share} of what it should have");
    }
    let newer: u64 = counts[900..].iter().sum();
    assert!(newer > 120_000, "{newer} of 200,000 among the newest tenth");
    let mut chooser = Chooser::at_random(Distribution::Latest(0.99), 1000, Random::of(1, 1), ALONE);
    chooser.grow(1500);
    let rows: Vec<u64> = (0..1000).filter_map(|_| chooser.next()).collect();
    assert!(rows.iter().all(|row| (500..1500).contains(row)));
    assert!(rows.iter().filter(|row| **row == 1499).count() > 80);
}

#[test]
fn sequential_choice_wraps_around_from_start_of_each_thread() {
    let next = |thread| {
        let share = Share { thread, threads: 3 };
        let mut chooser = Chooser::at_random(Distribution::Sequential, 7, Random::of(1, 1), share);
        (0..8).filter_map(|_| chooser.next()).collect::<Vec<_>>()
    };
    assert_eq!(next(0), [0, 1, 2, 3, 4, 5, 6, 0]);
    assert_eq!(next(2), [4, 5, 6, 0, 1, 2, 3, 4]);
}

#[test]
fn shares_of_threads_cover_all_items_once() {
    for count in [0, 1, 2, 10, 1001, u64::MAX] {
        for threads in [1, 2, 3, 256] {
            let shares: Vec<_> = (0..threads).map(|thread| Share { thread, threads }.of(count)).collect();
            assert_eq!((shares[0].start, shares[shares.len() - 1].end), (0, count));
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}

#[test]
fn cloned_chooser_repeats_choices() {
    for distribution in [Distribution::Uniform, Distribution::Zipfian(0.99), Distribution::Latest(0.8)] {
        let mut first = Chooser::at_random(distribution, 1000, Random::of(5, 5), ALONE);
        let mut again = first.clone();
        assert!((0..1000).all(|_| first.next() == again.next()));
    }
}

#[test]
fn distribution_text_parses_and_prints() {
    for (text, shown) in [
        ("uniform", "uniform"),
        ("zipfian", "zipfian:0.99"),
        ("zipfian:1.2", "zipfian:1.2"),
        ("latest", "latest:0.99"),
        ("sequential", "sequential"),
    ] {
        assert_eq!(text.parse::<Distribution>().map(|it| it.to_string()), Ok(shown.to_owned()));
    }
    for text in ["", "zipf", "zipfian:", "zipfian:0", "zipfian:-1", "zipfian:NaN", "zipfian:6", "uniform:1"] {
        assert!(text.parse::<Distribution>().is_err(), "{text}");
    }
}

#[test]
fn mix_shares_match_ycsb() {
    use crate::bench::latencies::Kind::{Insert, Read, ReadModifyWrite, Scan, Update};
    for (mix, shares) in [
        (Mix::A, vec![(Read, 50), (Update, 50)]),
        (Mix::B, vec![(Read, 95), (Update, 5)]),
        (Mix::C, vec![(Read, 100)]),
        (Mix::D, vec![(Read, 95), (Insert, 5)]),
        (Mix::E, vec![(Scan, 95), (Insert, 5)]),
        (Mix::F, vec![(Read, 50), (ReadModifyWrite, 50)]),
    ] {
        for (kind, percent) in shares {
            assert_eq!((0..100).filter(|choice| mix.pick(*choice) == kind).count(), percent, "{mix:?} {kind:?}");
        }
    }
    assert_eq!(Mix::D.distribution(), Distribution::Latest(0.99));
}

#[test]
fn inserts_done_stops_at_first_missing_row() {
    let inserts = Inserts::new(100);
    assert_eq!([inserts.begin(), inserts.begin(), inserts.begin()], [100, 101, 102]);
    inserts.finish(102);
    inserts.finish(101);
    assert_eq!(inserts.done(), 100);
    inserts.finish(100);
    assert_eq!(inserts.done(), 103);
}
