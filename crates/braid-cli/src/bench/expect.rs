//! What a workload must have found, told afterwards: the rows are chosen once more, and looked up in the ledger.

use super::{
    distribution::Chooser,
    ledger::Ledger,
    runner::Thread,
    tally::Tally,
    worker::{Action, Task, prefix_range},
};

/// Rows, by their count and the sum of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub count: u64,
    /// The sum, modulo 2^64.
    pub sum: u64,
}

impl Rows {
    fn add(&mut self, row: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(row);
    }

    fn of(rows: impl Iterator<Item = u64>) -> Rows {
        let mut all = Rows::default();
        rows.for_each(|row| all.add(row));
        all
    }

    fn merge(&mut self, other: Rows) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// What must have been found: rows that were there all the time, and perhaps some of those that came meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// At least these.
    pub least: Rows,
    /// At most these.
    pub most: Rows,
}

impl Expected {
    /// What is wrong with what was found, if anything is.
    pub fn complaint(&self, tally: &Tally) -> Option<String> {
        let (found, least, most) = (tally.found, self.least.count, self.most.count);
        if (least..=most).contains(&found) {
            let wrong_rows = self.least == self.most && tally.sum != self.least.sum;
            return wrong_rows.then(|| format!("found {found} rows, as many as there must be, but not the right ones"));
        }
        let wanted = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        let nothing = if found == 0 { ": nothing, though rows were stored" } else { "" };
        Some(format!("found {found} rows, and not {wanted}{nothing}"))
    }
}

/// Enters into the ledger what the threads did, and tells what they must have found.
pub fn settle(ledger: &mut Ledger, threads: &[Thread<'_>], done: &[u64]) -> Expected {
    let runs = || threads.iter().zip(done);
    let found = |ledger: &Ledger| {
        let mut all = Rows::default();
        runs().for_each(|(thread, done)| all.merge(rows_found(ledger, thread, *done)));
        all
    };
    let before = found(ledger);
    for (thread, done) in runs() {
        write(ledger, thread.task, &mut thread.chooser.clone(), *done);
    }
    let is_written = threads.iter().any(|thread| thread.task.action.writes());
    let after = if is_written { found(ledger) } else { before };
    Expected { least: before, most: after }
}

/// Enters what one thread wrote.
fn write(ledger: &mut Ledger, task: &Task, chooser: &mut Chooser, done: u64) {
    let rows = std::iter::from_fn(|| chooser.next()).take(done as usize);
    match task.action {
        Action::Put | Action::Update => rows.for_each(|row| ledger.insert(row)),
        Action::Delete => rows.for_each(|row| ledger.remove(row)),
        _ => {}
    }
}

/// What one thread must have found in rows that do not change.
fn rows_found(ledger: &Ledger, thread: &Thread<'_>, done: u64) -> Rows {
    let mut chooser = thread.chooser.clone();
    let range = chooser.range();
    let chosen = std::iter::from_fn(|| chooser.next()).take(done as usize);
    match thread.task.action {
        Action::Get | Action::MultiGet | Action::Update => Rows::of(chosen.filter(|row| ledger.contains(*row))),
        Action::Seek { nexts } => Rows::of(chosen.flat_map(|row| ledger.from(row).take((nexts + 1) as usize))),
        Action::Prefix { bytes } => Rows::of(chosen.flat_map(|row| {
            let heads = prefix_range(row, bytes);
            ledger.from(*heads.start()).take_while(move |row| row <= heads.end())
        })),
        // Not `done`: a pass that ended too early must be found out.
        Action::Pass { reverse: false } => {
            let rows = ledger.from(range.start).take_while(|row| *row < range.end);
            Rows::of(rows.take(thread.operations as usize))
        }
        Action::Pass { reverse: true } => {
            let rows = ledger.before(range.end).take_while(|row| *row >= range.start);
            Rows::of(rows.take(thread.operations as usize))
        }
        Action::Put | Action::Delete | Action::GetMissing | Action::Mixed(_) => Rows::default(),
    }
}
