//! Asks views and plain merges the same, checks every answer, counts and times.
//!
//! Each operation is run once by each contestant with every answer compared, whole, with the rows that must be there; what
//! that costs in comparisons and segments is counted then. What it reads of runs is counted in some operations that each find
//! no block in the cache, so that a block counts once however often it is looked at. The timed rounds repeat the same
//! questions, and must give the same sum over all answers. Contestants take turns, and each round begins with the other one.

use super::{
    ask::{Merges, Views, ask},
    counters,
    data::Layout,
    questions::{Check, Operation, Questions, Sum, Visit},
    report::{Figure, IndexSize, Report},
    shelf::Shelf,
};
use crate::{
    base::{Error, Result},
    view,
};
use std::path::Path;

/// Operations that find no block in the cache.
const COLD_OPERATIONS: usize = 200;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// The sorted view.
    View,
    /// The plain merging iterator; for gets, filters and bisection run by run.
    Merge,
}

/// How often everything is read before it must be cached.
const WARM_PASSES_MAX: usize = 100;

impl Contestant {
    /// Both.
    pub const ALL: [Contestant; 2] = [Contestant::View, Contestant::Merge];

    /// Its name in the figures.
    pub fn name(self) -> &'static str {
        match self {
            Contestant::View => "view",
            Contestant::Merge => "merge",
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    /// Rows in all runs together.
    pub rows: u64,
    /// Gets and seeks of each kind; a tenth of it where each reads 50 rows.
    pub operations: u64,
    /// Timed rounds, of which the median counts. With 0 there are counts alone.
    pub rounds: usize,
    /// Layouts, each with its number of runs.
    pub layouts: Vec<(Layout, usize)>,
}

/// Tells the time in nanoseconds since some moment: best the processor time of the calling thread.
pub type Clock<'a> = &'a dyn Fn() -> u64;

/// Measures all of it. An answer that is wrong is an error.
pub fn measure(options: &MeasureOptions, clock: Clock<'_>, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut report = Report { rows: options.rows, ..Report::default() };
    for &(layout, runs) in &options.layouts {
        progress(&format!("{} layout, {runs} runs", layout.name()));
        let shelf = Shelf::build(options.rows, layout, runs)?;
        let size = |contestant, bytes: u64, file_bytes: u64| IndexSize {
            layout,
            runs,
            contestant,
            bytes_per_key: bytes as f64 / options.rows as f64,
            file_bytes_per_key: file_bytes as f64 / options.rows as f64,
        };
        report.sizes.push(size(Contestant::View, shelf.view_bytes(), shelf.view_file_bytes()));
        report.sizes.push(size(Contestant::Merge, shelf.plain_bytes(), 0));
        for operation in Operation::ALL {
            let questions = Questions::new(operation, options.rows, options.operations);
            let bench = Bench { shelf: &shelf, questions, layout, runs };
            report.figures.extend(bench.run(options.rounds, clock)?);
        }
    }
    Ok(report)
}

/// One operation on one shelf.
pub(super) struct Bench<'a> {
    pub(super) shelf: &'a Shelf,
    pub(super) questions: Questions,
    pub(super) layout: Layout,
    pub(super) runs: usize,
}

impl Bench<'_> {
    /// The figures of both contestants.
    pub(super) fn run(&self, rounds: usize, clock: Clock<'_>) -> Result<Vec<Figure>> {
        let (mut figures, mut sum) = (Vec::new(), 0);
        for contestant in Contestant::ALL {
            let (figure, seen) = self.count(contestant)?;
            figures.push(figure);
            // All of them right, so the same for each contestant.
            sum = seen;
        }
        let mut times = [const { Vec::new() }; Contestant::ALL.len()];
        for round in 0..rounds {
            for turn in 0..Contestant::ALL.len() {
                let index = (round + turn) % Contestant::ALL.len();
                let (mut seen, start) = (Sum::default(), clock());
                let asked = self.pass(Contestant::ALL[index], &mut seen)?;
                times[index].push((clock() - start) as f64 / asked as f64);
                if seen.0 != sum {
                    return Err(self.wrong(Contestant::ALL[index], "a timed round gave other answers".to_owned()));
                }
            }
        }
        for (figure, times) in figures.iter_mut().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            figure.nanoseconds = times.get(times.len() / 2).copied();
        }
        Ok(figures)
    }

    /// What the operation costs on average, each answer checked; and the sum over the answers.
    fn count(&self, contestant: Contestant) -> Result<(Figure, u64)> {
        // For nothing, until everything is cached when it is counted: other threads may hold up the cache's reclaiming.
        for _ in 0..WARM_PASSES_MAX {
            let before = Costs::now(self.shelf);
            self.pass(contestant, &mut Sum::default())?;
            if Costs::now(self.shelf).since(before).loads == 0 {
                break;
            }
        }
        let mut check = Check::new(&self.shelf.truth, &self.questions);
        let before = Costs::now(self.shelf);
        let asked = self.pass(contestant, &mut check)?;
        let costs = Costs::now(self.shelf).since(before);
        if let Some((number, step)) = check.wrong {
            return Err(self.wrong(contestant, format!("answer {step} to question {number} is wrong")));
        }
        if costs.loads > 0 {
            return Err(self.wrong(contestant, format!("{} loads of what should be cached", costs.loads)));
        }
        let each = |count: u64| count as f64 / asked as f64;
        let figure = Figure {
            layout: self.layout,
            runs: self.runs,
            operation: self.questions.operation,
            contestant,
            nanoseconds: None,
            comparisons: each(costs.comparisons),
            segments: each(costs.segments),
            blocks: self.blocks_read(contestant)?,
        };
        Ok((figure, check.sum.0))
    }

    /// Blocks that an operation reads on average if none is cached when it begins. Afterwards all are cached again.
    fn blocks_read(&self, contestant: Contestant) -> Result<f64> {
        let (mut asked, mut read) = (0, 0);
        for questions in self.questions.singly(COLD_OPERATIONS) {
            self.shelf.forget_blocks();
            let before = self.shelf.blocks.stats().misses;
            asked += ask_contestant(self.shelf, contestant, &questions, &mut Sum::default())?;
            read += self.shelf.blocks.stats().misses - before;
        }
        let all = Questions::new(Operation::Scan, self.shelf.truth.len() as u64, 1);
        ask_contestant(self.shelf, contestant, &all, &mut Sum::default())?;
        Ok(read as f64 / asked as f64)
    }

    /// Asks everything once; says how many operations that were.
    fn pass(&self, contestant: Contestant, visit: &mut impl Visit) -> Result<u64> {
        ask_contestant(self.shelf, contestant, &self.questions, visit)
    }

    fn wrong(&self, contestant: Contestant, detail: String) -> Error {
        let (who, what) = (contestant.name(), self.questions.operation.name());
        Error::corruption(Path::new("/shelf"), 0, format!("{who}, {what}: {detail}"))
    }
}

/// Asks with new cursors; says how many operations that were.
fn ask_contestant(shelf: &Shelf, contestant: Contestant, questions: &Questions, visit: &mut impl Visit) -> Result<u64> {
    match contestant {
        Contestant::View => ask(&Views(shelf), questions, visit),
        Contestant::Merge => ask(&Merges(shelf, &crossbeam_epoch::pin()), questions, visit),
    }
}

/// What was spent so far.
#[derive(Clone, Copy)]
struct Costs {
    comparisons: u64,
    segments: u64,
    /// Blocks and pages that were not cached.
    loads: u64,
}

impl Costs {
    fn now(shelf: &Shelf) -> Costs {
        Costs {
            comparisons: view::key_comparisons() + counters::key_comparisons(),
            segments: view::segments_read(),
            loads: shelf.blocks.stats().misses + shelf.pages.stats().misses,
        }
    }

    fn since(self, before: Costs) -> Costs {
        Costs {
            comparisons: self.comparisons - before.comparisons,
            segments: self.segments - before.segments,
            loads: self.loads - before.loads,
        }
    }
}
