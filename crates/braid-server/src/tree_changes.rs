//! The changes of the tree that has a name, whichever tree that is.
//!
//! The engine selects changes by a tree's id, which a new tree with an old name does not have. So the
//! stream of the present tree ends with its drop or rename, and a **search** reads the changes of all
//! trees until one has the name. Then a stream with its id begins before that commit.
//!
//! The catalog has the present names only. The tree that a resumed client followed may be another one:
//! the stream of the present tree is a **guess** until it has passed all commits before the lookup. The
//! guess is wrong if the tree is created or gets its name there, and a search takes its place.
//!
//! INVARIANT C1: [`TreeChanges::position`] never passes a commit with a change of a tree that had the
//! name then and that was not returned.

use crate::problem::Problem;
use braiddb::{
    Db, Error, Result,
    watch::{Change, ChangeSet, ChangeStream, Gap, WatchOptions},
};
use hyper::StatusCode;
use std::task::{Context, Poll};

/// Selects changes: those of the tree with this name, and of its keys with this prefix.
#[derive(Clone, Debug)]
pub struct Selection {
    /// `None`: all trees.
    pub name: Option<String>,
    pub prefix: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    All,
    /// The tree may have had another name at first. Decided when `until` is passed.
    Guess {
        until: u64,
    },
    /// The tree has the name.
    Tree,
    /// No tree is known to have the name.
    Search,
}

/// A stream of changes. Polls read the log: use it in the pool.
pub struct TreeChanges {
    db: Db,
    selection: Selection,
    stream: ChangeStream,
    stage: Stage,
    /// The commit after which all changes of the name are still to be returned.
    passed: u64,
}

impl TreeChanges {
    /// Begins after a commit, or with the present. With the present there must be such a tree.
    pub fn begin(db: Db, selection: Selection, after: Option<u64>) -> std::result::Result<TreeChanges, Problem> {
        let (id, looked_up_at) = match &selection.name {
            None => (None, 0),
            Some(name) => {
                let id = id_of(&db, name)?;
                if id.is_none() && after.is_none() {
                    return Err(Problem::not_found(format!("there is no tree {name:?}")));
                }
                (id, db.snapshot().sequence())
            }
        };
        let options = match after {
            None => WatchOptions::new(),
            Some(sequence) => WatchOptions::new().after(sequence),
        };
        let options = match id {
            None => options,
            Some(id) => options.tree_id(id).prefix(&selection.prefix),
        };
        let stream = db.watch(options).map_err(|error| match error {
            // Above the last commit.
            Error::InvalidArgument(detail) if after.is_some() => gone(detail),
            error => of_watch(error),
        })?;
        let stream = stream
            .into_stream()
            .map_err(|error| Problem::new(StatusCode::NOT_IMPLEMENTED, "No change stream", error.to_string()))?;
        let stage = match (&selection.name, id, after) {
            (None, ..) => Stage::All,
            (Some(_), None, _) => Stage::Search,
            (Some(_), Some(_), Some(_)) => Stage::Guess { until: looked_up_at },
            // It had the name when the stream began, unless it was dropped just before.
            (Some(name), Some(_), None) if id_of(&db, name)? == id => Stage::Tree,
            (Some(_), Some(_), None) => Stage::Search,
        };
        let passed = stream.token().sequence();
        let mut changes = TreeChanges { db, selection, stream, stage, passed };
        if changes.stage == Stage::Search && id.is_some() {
            changes.search()?;
        }
        Ok(changes)
    }

    /// Returns a position to resume after.
    pub fn position(&mut self) -> u64 {
        let reached = self.stream.token().sequence();
        match self.stage {
            Stage::Guess { until } if reached < until => self.passed,
            Stage::Guess { .. } => {
                self.stage = Stage::Tree;
                reached
            }
            _ => reached,
        }
    }

    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<ChangeSet>>> {
        loop {
            let commit = match self.stream.poll_next_change(context) {
                Poll::Ready(Some(Ok(commit))) => commit,
                other => return other,
            };
            match self.take(commit) {
                Ok(Some(commit)) => {
                    self.passed = commit.sequence;
                    return Poll::Ready(Some(Ok(commit)));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Returns the commit if its changes are those of the name. Otherwise another stream may begin.
    fn take(&mut self, mut commit: ChangeSet) -> Result<Option<ChangeSet>> {
        let Some(name) = self.selection.name.clone() else { return Ok(Some(commit)) };
        if self.stage == Stage::Search {
            if let Some(id) = commit.changes.iter().find_map(|change| id_before_or_after(change, &name)) {
                self.follow(id, commit.sequence)?;
                return Ok(None);
            }
            // It concerns all trees.
            commit.changes.retain(|change| matches!(change, Change::Gap(Gap::Commits { .. })));
            self.passed = commit.sequence;
            return Ok((!commit.changes.is_empty()).then_some(commit));
        }
        let is_guess = matches!(self.stage, Stage::Guess { until } if commit.sequence <= until);
        if is_guess && commit.changes.iter().any(|change| !had_name_before(change, &name)) {
            self.search()?;
            return Ok(None);
        }
        if commit.changes.iter().any(|change| is_end(change, &name)) {
            self.passed = commit.sequence;
            self.search()?;
        }
        Ok(Some(commit))
    }

    /// Reads the changes of all trees after those that were returned.
    fn search(&mut self) -> Result<()> {
        self.stream = self.db.watch(WatchOptions::new().after(self.passed))?.into_stream()?;
        self.stage = Stage::Search;
        Ok(())
    }

    /// Follows a tree from a commit on.
    fn follow(&mut self, id: u32, commit: u64) -> Result<()> {
        let options = WatchOptions::new().tree_id(id).prefix(&self.selection.prefix);
        self.stream = self.db.watch(options.after(commit.saturating_sub(1)))?.into_stream()?;
        self.stage = Stage::Tree;
        Ok(())
    }
}

fn id_of(db: &Db, name: &str) -> Result<Option<u32>> {
    Ok(db.tree_info(name)?.map(|tree| tree.id))
}

/// Returns the id of the change's tree, if that has the name before or after the change.
fn id_before_or_after(change: &Change, name: &str) -> Option<u32> {
    let tree = change.tree()?;
    let had_name = matches!(change, Change::RenameTree { from, .. } if from == name);
    (had_name || tree.name.as_deref() == Some(name)).then_some(tree.id)
}

/// Returns whether the change's tree can have had the name before the change.
fn had_name_before(change: &Change, name: &str) -> bool {
    match change {
        Change::CreateTree { .. } => false,
        Change::RenameTree { from, .. } => from == name,
        change => change.tree().and_then(|tree| tree.name.as_deref()).is_none_or(|found| found == name),
    }
}

/// Returns whether the name is free after the change.
fn is_end(change: &Change, name: &str) -> bool {
    match change {
        Change::DropTree { .. } => true,
        Change::RenameTree { from, .. } => from == name,
        _ => false,
    }
}

/// The problem of a position that is not there.
pub fn gone(detail: String) -> Problem {
    let remedy = "read the records again, and follow from the Braid-Version of that scan";
    Problem::new(StatusCode::GONE, "Changes gone", format!("{detail}: {remedy}"))
}

/// Names the remedy of a position that the log does not have.
pub fn of_watch(error: Error) -> Problem {
    match error {
        Error::WatchTooOld { after, floor } => gone(format!(
            "the log does not have the changes of commits {} to {floor} any more (`braid serve --keep SIZE` retains more)",
            after.saturating_add(1)
        )),
        error => error.into(),
    }
}
