//! Computes the rows that reads must have found: repeats the choices against the ledger.

use super::{
    distribution::Chooser,
    ledger::Ledger,
    runner::Thread,
    tally::Tally,
    worker::{Action, Task, prefix_range},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    pub count: u64,
    /// Sum of the row numbers, modulo 2^64.
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

/// The expected result: rows that existed all the time, and possibly concurrently written ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub least: Rows,
    pub most: Rows,
}

impl Expected {
    pub fn complaint(&self, tally: &Tally) -> Option<String> {
        let (found, least, most) = (tally.found, self.least.count, self.most.count);
        if (least..=most).contains(&found) {
            let wrong_rows = self.least == self.most && tally.sum != self.least.sum;
            return wrong_rows.then(|| format!("found {found} rows, the expected number, but not the right ones"));
        }
        let wanted = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        let nothing = if found == 0 { ": none, though rows were stored" } else { "" };
        Some(format!("found {found} rows, expected {wanted}{nothing}"))
    }
}

/// Records the threads' writes. Returns the rows that their reads must have found.
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

fn write(ledger: &mut Ledger, task: &Task, chooser: &mut Chooser, done: u64) {
    let rows = std::iter::from_fn(|| chooser.next()).take(done as usize);
    match task.action {
        Action::Put | Action::Update => rows.for_each(|row| ledger.insert(row)),
        Action::Delete => rows.for_each(|row| ledger.remove(row)),
        _ => {}
    }
}

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
        // Ignores `done`, to detect a pass that ended early.
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
