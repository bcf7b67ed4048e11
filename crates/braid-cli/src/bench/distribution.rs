//! Chooses the next row: in sequence, or at random with several distributions.

use std::{fmt, ops::Range, str::FromStr};

use super::zipf::Zipf;
use crate::random::Random;

pub const THETA: f64 = 0.99;
/// Maximum exponent: beyond it rounding errors matter.
const THETA_MAX: f64 = 5.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    Uniform,
    /// A few rows very often, anywhere in the key space.
    Zipfian(f64),
    /// The rows with the highest numbers very often.
    Latest(f64),
    Sequential,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let (name, theta) = match text.split_once(':') {
            Some((name, theta)) => (name, Some(parse_theta(theta)?)),
            None => (text, None),
        };
        match (name, theta) {
            ("uniform", None) => Ok(Distribution::Uniform),
            ("sequential", None) => Ok(Distribution::Sequential),
            ("zipfian", theta) => Ok(Distribution::Zipfian(theta.unwrap_or(THETA))),
            ("latest", theta) => Ok(Distribution::Latest(theta.unwrap_or(THETA))),
            _ => Err(format!(
                "{text:?} is not a distribution: give uniform, zipfian, zipfian:0.99, latest or sequential"
            )),
        }
    }
}

fn parse_theta(text: &str) -> Result<f64, String> {
    let theta = text.parse::<f64>().ok().filter(|theta| *theta > 0.0 && *theta <= THETA_MAX);
    theta.ok_or_else(|| format!("{text:?} is not an exponent: give a number above 0, at most {THETA_MAX}"))
}

impl fmt::Display for Distribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => formatter.write_str("uniform"),
            Distribution::Zipfian(theta) => write!(formatter, "zipfian:{theta}"),
            Distribution::Latest(theta) => write!(formatter, "latest:{theta}"),
            Distribution::Sequential => formatter.write_str("sequential"),
        }
    }
}

/// Chooses rows. A clone repeats the choices, to compute the expected results.
#[derive(Clone, Debug)]
pub struct Chooser {
    rows: u64,
    random: Random,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Uniform,
    Zipfian(Zipf, Scatter),
    Latest(Zipf),
    Around { next: u64 },
    Once(Range<u64>),
}

impl Chooser {
    pub fn at_random(distribution: Distribution, rows: u64, random: Random, share: Share) -> Chooser {
        let way = match distribution {
            Distribution::Uniform => Way::Uniform,
            Distribution::Zipfian(theta) => Way::Zipfian(Zipf::new(rows, theta), Scatter::new(rows)),
            Distribution::Latest(theta) => Way::Latest(Zipf::new(rows, theta)),
            Distribution::Sequential => Way::Around { next: share.of(rows).start % rows },
        };
        Chooser { rows, random, way }
    }

    pub fn once(rows: Range<u64>) -> Chooser {
        Chooser { rows: rows.end, random: Random::of(0, 0), way: Way::Once(rows) }
    }

    #[inline]
    pub fn next(&mut self) -> Option<u64> {
        Some(match &mut self.way {
            Way::Uniform => self.random.below(self.rows),
            Way::Zipfian(zipf, scatter) => scatter.place(zipf.next(&mut self.random)),
            Way::Latest(zipf) => self.rows - 1 - zipf.next(&mut self.random),
            Way::Around { next } => {
                let row = *next;
                *next = if row + 1 == self.rows { 0 } else { row + 1 };
                row
            }
            Way::Once(rows) => return rows.next(),
        })
    }

    #[inline]
    pub fn grow(&mut self, rows: u64) {
        if matches!(self.way, Way::Latest(_)) {
            self.rows = self.rows.max(rows);
        }
    }

    pub fn range(&self) -> Range<u64> {
        match &self.way {
            Way::Once(rows) => rows.clone(),
            _ => 0..self.rows,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub thread: u64,
    pub threads: u64,
}

impl Share {
    pub fn of(self, count: u64) -> Range<u64> {
        let cut = |thread: u64| (u128::from(count) * u128::from(thread) / u128::from(self.threads)) as u64;
        cut(self.thread)..cut(self.thread + 1)
    }
}

/// A permutation of `0..count` that moves neighbours far apart: multiplication by a coprime number.
#[derive(Clone, Debug)]
struct Scatter {
    count: u64,
    step: u64,
}

impl Scatter {
    fn new(count: u64) -> Scatter {
        let golden = (count as f64 * 0.618_033_988_749_895) as u64;
        let step = (golden.max(1)..).find(|step| greatest_common_divisor(*step, count) == 1).unwrap_or(1);
        Scatter { count, step }
    }

    #[inline]
    fn place(&self, number: u64) -> u64 {
        match number.checked_mul(self.step) {
            Some(product) => product % self.count,
            None => (u128::from(number) * u128::from(self.step) % u128::from(self.count)) as u64,
        }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
