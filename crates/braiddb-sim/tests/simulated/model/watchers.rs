//! Watchers: the changes shown, applied to a mirror, match the model at each commit.

use super::{
    boundaries::Source,
    outcome::{Outcome, Said},
    steps::{WatchStep, key},
    world::World,
};
use braiddb::{
    Error,
    platform::{SystemTime, UNIX_EPOCH},
    watch::{Change as Shown, ChangeSet, ChangedTree, Gap, MergeBase, ResumeToken, WatchOptions, Watcher},
};
use braiddb_sim::model::{Bounds, Bytes, Change, Model, MultiModel, TreeNumber, prefix_bounds, short};
use std::{ops::Bound, sync::Arc};

const WATCHERS_MAX: usize = 3;

#[derive(Clone, Debug)]
enum Of {
    All,
    Multi(u32),
    /// Tree id and key prefix.
    Keys(u32, TreeNumber, Bytes),
}

pub struct Watching {
    of: Of,
    is_unsynced: bool,
    /// `None` while it is killed.
    watcher: Option<Watcher>,
    token: ResumeToken,
    at: u64,
    mirror: Model,
    pairs: MultiModel,
    /// The watcher may have delivered commits that a crash removed: `mirror` is not compared, and is
    /// replaced at the next commit or gap.
    is_stale: bool,
}

impl Watching {
    pub fn note_loss(&mut self, there: u64) {
        self.is_stale |= self.at > there;
    }

    pub fn kill(&mut self) {
        self.watcher = None;
    }

    fn bounds_of(&self, number: TreeNumber) -> Option<Bounds> {
        match &self.of {
            Of::All => Some((Bound::Unbounded, Bound::Unbounded)),
            Of::Keys(_, of, prefix) if *of == number => Some(prefix_bounds(prefix)),
            _ => None,
        }
    }

    fn has_pairs(&self) -> bool {
        matches!(self.of, Of::All | Of::Multi(_))
    }

    fn options(&self) -> WatchOptions {
        let options = WatchOptions::new().unsynced(self.is_unsynced);
        match &self.of {
            Of::All => options,
            Of::Multi(id) => options.tree_id(*id),
            Of::Keys(id, _, prefix) => options.tree_id(*id).prefix(prefix),
        }
    }
}

/// `None` is the multi-tree.
fn number_of(world: &World<'_>, watching: &Watching, tree: &ChangedTree) -> Outcome<Option<TreeNumber>> {
    let number = *world.ids.get(&tree.id).ok_or_else(|| format!("the tree {tree:?} is unknown"))?;
    let is_wanted = match &watching.of {
        Of::All => true,
        Of::Multi(id) | Of::Keys(id, ..) => *id == tree.id,
    };
    ensure!(is_wanted, "{tree:?} is outside the watcher's scope");
    let names = if number.is_none() { &["multi"][..] } else { &["left", "right"] };
    ensure!(
        tree.name.as_deref().is_none_or(|name| names.contains(&name)),
        "{tree:?} has another name than tree {number:?}"
    );
    Ok(number)
}

fn micros(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

impl World<'_> {
    pub fn watch(&mut self, step: &WatchStep) -> Outcome {
        match step {
            WatchStep::Begin { filter, tree, prefix, unsynced } => {
                if self.watchings.len() == WATCHERS_MAX {
                    return Ok(());
                }
                let id =
                    |name: &str| self.db().trees().ok()?.into_iter().find(|tree| tree.name == name).map(|tree| tree.id);
                let id_of_tree = id(["left", "right"][*tree]).ok_or("a tree is not listed")?;
                let mut start = key(prefix.0);
                start.truncate(usize::from(prefix.1));
                let of = match filter {
                    0 | 1 => Of::All,
                    2 => Of::Multi(id("multi").ok_or("the tree of many values is not listed")?),
                    3 => Of::Keys(id_of_tree, self.numbers[*tree], Vec::new()),
                    _ => Of::Keys(id_of_tree, self.numbers[*tree], start),
                };
                let token = self.db().watch(WatchOptions::new().unsynced(*unsynced)).said("watch")?.token();
                let (mirror, pairs) = (Model::new(), MultiModel::default());
                let mut watching = Watching {
                    of,
                    is_unsynced: *unsynced,
                    watcher: None,
                    token,
                    at: 0,
                    mirror,
                    pairs,
                    is_stale: false,
                };
                self.watch_from_now(&mut watching)?;
                self.watchings.push(watching);
            }
            WatchStep::Read { which, most } => {
                if let Some(mut watching) = self.take_watching(*which) {
                    self.show(&mut watching, usize::from(*most))?;
                    self.watchings.push(watching);
                }
            }
            WatchStep::Resume { which } => {
                if let Some(mut watching) = self.take_watching(*which) {
                    watching.kill();
                    self.show(&mut watching, usize::MAX)?;
                    self.watchings.push(watching);
                }
            }
            WatchStep::End { which } => drop(self.take_watching(*which)),
        }
        Ok(())
    }

    fn take_watching(&mut self, which: u8) -> Option<Watching> {
        let count = self.watchings.len();
        (count > 0).then(|| self.watchings.swap_remove(usize::from(which) % count))
    }

    pub fn show_all(&mut self) -> Outcome {
        for mut watching in std::mem::take(&mut self.watchings) {
            self.show(&mut watching, usize::MAX)?;
        }
        Ok(())
    }

    fn watch_from_now(&mut self, watching: &mut Watching) -> Outcome {
        // A crash may have removed the tree and given its id to another.
        if let Of::Keys(id, number, _) = &mut watching.of {
            *number = self.ids.get(id).copied().flatten().unwrap_or(*number);
        }
        let watcher = self.db().watch(watching.options()).said("watch from now on")?;
        watching.token = watcher.token();
        watching.watcher = Some(watcher);
        let logged = self.last_logged();
        if !watching.is_unsynced {
            self.durable = self.durable.max(logged);
        }
        ensure!(watching.token.sequence() >= logged, "from commit {} on, not {logged}", watching.token.sequence());
        self.take_over(watching, self.last());
        Ok(())
    }

    fn take_over(&self, watching: &mut Watching, sequence: u64) {
        (watching.at, watching.is_stale) = (sequence, false);
        watching.mirror = self.model.up_to(sequence);
        let multi = self.boundary(sequence).and_then(|boundary| boundary.multi.as_ref());
        watching.pairs = multi.map(|multi| MultiModel::clone(multi)).unwrap_or_default();
    }

    /// Returns false if the token was refused.
    fn resume(&mut self, watching: &mut Watching) -> Outcome<bool> {
        let bytes = watching.token.to_bytes();
        let token = ResumeToken::from_bytes(&bytes).said("a valid token")?;
        let reported = token.sequence();
        let is_lost = reported > self.last();
        match self.db().watch(watching.options().resume(token)) {
            Ok(watcher) => {
                ensure!(!is_lost, "it resumes after commit {reported}, which a crash removed");
                watching.watcher = Some(watcher);
                Ok(true)
            }
            Err(Error::InvalidArgument(_) | Error::WatchTooOld { .. }) if watching.is_unsynced && self.crashes > 0 => {
                self.seen.refused_tokens.add(1);
                Ok(false)
            }
            Err(Error::WatchTooOld { .. }) if self.may_be_too_old() => {
                self.seen.too_old.add(1);
                Ok(false)
            }
            Err(e) => Err(e).said("resume"),
        }
    }

    fn may_be_too_old(&self) -> bool {
        !self.settings.keeps_all()
            || self.boundaries.iter().any(|boundary| matches!(boundary.source, Source::Load | Source::Unlogged))
    }

    fn show(&mut self, watching: &mut Watching, most: usize) -> Outcome {
        if watching.watcher.is_none() && !self.resume(watching)? {
            return self.watch_from_now(watching);
        }
        watching.mirror.now_us = self.now_us();
        for _ in 0..most {
            let watcher = watching.watcher.as_mut().expect("it was resumed");
            let shown = match watcher.try_next() {
                Err(Error::WatchTooOld { .. }) if self.may_be_too_old() => {
                    self.seen.too_old.add(1);
                    return self.watch_from_now(watching);
                }
                shown => shown.said("try_next")?,
            };
            if !watching.is_unsynced {
                // A watcher of synced commits shows only durable ones.
                self.durable = self.durable.max(self.synced_by(watcher.token().sequence()));
            }
            let Some(set) = shown else { return self.check_all_shown(watching) };
            self.seen.commits_shown.add(1);
            self.take_in(watching, &set).map_err(|text| format!("{text}, in {set:?}"))?;
        }
        Ok(())
    }

    fn synced_by(&self, sequence: u64) -> u64 {
        let upto = self.boundaries.iter().rev().find(|b| b.sequence <= sequence && b.source == Source::Log);
        upto.map_or(0, |boundary| boundary.sequence)
    }

    fn check_all_shown(&self, watching: &mut Watching) -> Outcome {
        let reported = watching.watcher.as_ref().expect("it was just asked").token();
        ensure!(
            reported.sequence() >= self.last_logged(),
            "shown up to commit {}, not {}",
            reported.sequence(),
            self.last_logged()
        );
        watching.token = reported;
        if watching.is_stale {
            return Ok(());
        }
        watching.at = watching.at.max(self.synced_by(reported.sequence()));
        let boundary = self.boundary(watching.at).ok_or("a commit that never existed was shown")?;
        for number in boundary.numbers.into_iter().flatten() {
            let Some(bounds) = watching.bounds_of(number) else { continue };
            let found = watching.mirror.range(number, &bounds, u64::MAX);
            let expected = self.model.range(number, &bounds, boundary.sequence);
            let wrong = found.iter().find(|row| !expected.contains(row));
            let wrong = wrong.or_else(|| expected.iter().find(|row| !found.contains(row)));
            ensure!(
                found == expected,
                "the mirror of {:?} has {} rows instead of {}, up to {}: {:?}",
                watching.of,
                found.len(),
                expected.len(),
                reported.sequence(),
                wrong.map(|(key, value)| (short(key), short(value)))
            );
        }
        if let Some(multi) = boundary.multi.as_ref().filter(|_| watching.has_pairs()) {
            ensure!(
                watching.pairs == **multi,
                "the mirror of {:?} has other pairs, up to {}",
                watching.of,
                reported.sequence()
            );
        }
        Ok(())
    }

    /// The changed keys must match the model at that commit.
    fn take_in(&self, watching: &mut Watching, set: &ChangeSet) -> Outcome {
        let before = watching.token.sequence();
        ensure!(set.sequence > before, "commit {} after {before}", set.sequence);
        ensure!(set.token.sequence() == set.sequence, "a token of commit {}", set.token.sequence());
        ensure!(!set.changes.is_empty(), "an empty commit");
        let gap = set.changes.iter().find_map(|change| if let Shown::Gap(gap) = change { Some(gap) } else { None });
        if watching.is_stale && gap.is_none() {
            self.take_over(watching, set.sequence - 1);
        }
        if let Of::All = watching.of {
            let reported = if let Some(Gap::Commits { up_to }) = gap { before.max(*up_to) } else { before };
            let is_logged = |b: &&super::boundaries::Boundary| b.source == Source::Log;
            let mut after = self.boundaries.iter().filter(|b| b.sequence > reported && b.sequence < set.sequence);
            let missing = after.find(is_logged);
            ensure!(missing.is_none(), "the earlier commit {} was not shown", missing.map_or(0, |b| b.sequence));
        }
        watching.token = set.token;
        if let Some(gap) = gap {
            ensure!(set.changes.len() == 1, "other changes beside a gap");
            return self.take_in_gap(watching, set.sequence, gap);
        }
        let boundary = self.boundary(set.sequence).filter(|boundary| boundary.sequence == set.sequence);
        let boundary = boundary.ok_or_else(|| format!("commit {} was never made", set.sequence))?;
        let mut changes = Vec::new();
        for change in &set.changes {
            if let Shown::ApplicationCursor { cursor } = change {
                let cursor = u64::from_le_bytes(cursor.as_slice().try_into().map_err(|_| "a cursor")?);
                ensure!(boundary.cursor == Some(cursor), "the cursor {cursor} instead of {:?}", boundary.cursor);
            }
            self.translate(watching, change, &mut changes)?;
        }
        watching.at = set.sequence;
        watching.mirror.commit(set.sequence, &changes);
        for change in &changes {
            let (Change::Put(tree, key, _)
            | Change::PutUntil(tree, key, ..)
            | Change::Delete(tree, key)
            | Change::Append(tree, key, _)) = change
            else {
                continue;
            };
            let is_of = watching.bounds_of(*tree).is_some_and(|bounds| std::ops::RangeBounds::contains(&bounds, key));
            ensure!(is_of, "{change:?} is outside the watcher's scope");
            let (found, expected) =
                (watching.mirror.get(*tree, key, u64::MAX), self.model.get(*tree, key, set.sequence));
            ensure!(
                found == expected,
                "after {change:?} the mirror has {:?} instead of {:?}",
                found.map(short),
                expected.map(short)
            );
        }
        if watching.has_pairs() {
            let is_same = boundary.multi.as_ref().is_none_or(|multi: &Arc<MultiModel>| watching.pairs == **multi);
            ensure!(is_same, "the mirror has other pairs");
        }
        Ok(())
    }

    /// Copies the state after the last missing commit, or after the load.
    fn take_in_gap(&self, watching: &mut Watching, sequence: u64, gap: &Gap) -> Outcome {
        self.seen.gaps.add(1);
        match gap {
            Gap::Commits { up_to } => {
                let is_there = self.boundaries.iter().any(|b| b.source == Source::Unlogged && b.sequence == *up_to);
                // Or a crash lost the commit, or its number too.
                ensure!(is_there || !self.jumps.is_empty(), "commit {up_to} is no commit without WAL");
                self.take_over(watching, *up_to);
            }
            Gap::Range { tree, .. } => {
                number_of(self, watching, tree)?;
                let load = self.boundaries.iter().find(|boundary| boundary.sequence >= sequence);
                let load = load.filter(|boundary| boundary.source == Source::Load);
                let load = load.ok_or_else(|| format!("no load after commit {sequence}"))?;
                self.take_over(watching, load.sequence);
            }
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    fn translate(&self, watching: &mut Watching, change: &Shown, changes: &mut Vec<Change>) -> Outcome {
        let Some(tree) = change.tree() else { return Ok(()) };
        let Some(number) = number_of(self, watching, tree)? else {
            return translate_pairs(&mut watching.pairs, change);
        };
        let put = |key: &Bytes, value: Bytes, expires: &Option<SystemTime>| match expires {
            Some(expires) => Change::PutUntil(number, key.clone(), value, micros(*expires)),
            None => Change::Put(number, key.clone(), value),
        };
        match change {
            Shown::Put { key, value, expires, .. } => changes.push(put(key, value.clone(), expires)),
            Shown::PutStream { key, stream, expires, .. } => {
                let mut value = Vec::new();
                stream.copy_to(&mut value).said("read a shown stream")?;
                changes.push(put(key, value, expires));
            }
            Shown::Delete { key, .. } => changes.push(Change::Delete(number, key.clone())),
            Shown::DeleteRange { start, end, .. } => {
                let end = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
                changes.push(Change::DeleteRange(number, (Bound::Included(start.clone()), end)));
            }
            Shown::Merge { key, base, operands, .. } => {
                match base {
                    MergeBase::Stored => {}
                    MergeBase::Nothing => changes.push(Change::Delete(number, key.clone())),
                    MergeBase::Value(value) => changes.push(Change::Put(number, key.clone(), value.clone())),
                }
                for operand in operands {
                    ensure!(operand.function == "append", "{operand:?}");
                    changes.push(Change::Append(number, key.clone(), operand.operand.clone()));
                }
            }
            Shown::CreateTree { multi, .. } => ensure!(!multi, "a plain tree was shown as a multi-tree"),
            Shown::DropTree { .. } => {}
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    }
}

fn translate_pairs(pairs: &mut MultiModel, change: &Shown) -> Outcome {
    match change {
        Shown::Add { key, value, .. } => pairs.add(key, value),
        Shown::DeletePair { key, value, .. } => pairs.remove(key, value),
        Shown::Delete { key, .. } => pairs.remove_all(key),
        Shown::CreateTree { multi, .. } => ensure!(*multi, "a multi-tree was shown as a plain tree"),
        other => return Err(format!("{other:?}")),
    }
    Ok(())
}
