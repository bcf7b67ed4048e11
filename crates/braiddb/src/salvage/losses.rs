//! Losses, and the older versions that they make doubtful.
//!
//! If a newer version of a key may be lost, an older one must not pass for the record. So a loss in
//! a run casts a **shadow** over the keys that the lost part may have had, up to the run's highest
//! sequence number. Older versions in a shadow are withheld. A readable view has one hash byte of
//! each key ([`crate::view::View::held`]) and so rules out most keys.

use super::report::{Loss, LossKind, LostKey};
use crate::{
    base::{SequenceNumber, split_internal_key},
    table::Run,
    view::{Held, View},
};
use std::{collections::BTreeMap, ops::Range, path::PathBuf, sync::Arc};

/// Maximum losses listed; further ones are only counted.
const LOSSES_MAX: usize = 10_000;

/// Information about the lost part of a run.
#[derive(Clone, Debug)]
pub enum Oracle {
    /// The run's own view, and the lost blocks.
    Blocks(Arc<View>, Arc<Run>, Vec<Range<u16>>),
    /// The partition's view, and the index of the lost run among its runs.
    Run(Arc<View>, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lost {
    Nothing,
    /// The newest version in the view is intact, but older ones may be lost.
    Older,
    Newest,
}

impl Oracle {
    fn lost(&self, key: &[u8]) -> Lost {
        let (Oracle::Blocks(view, ..) | Oracle::Run(view, _)) = self;
        match (view.held(key), self) {
            (Ok(Held::Absent), _) => Lost::Nothing,
            (Ok(Held::Perhaps { cursor, after, .. }), Oracle::Blocks(_, run, lost)) => {
                let position = run.advance(cursor, after);
                let is_lost = lost.iter().any(|blocks| blocks.contains(&position.block));
                if is_lost { Lost::Newest } else { Lost::Nothing }
            }
            (Ok(Held::Perhaps { run, .. }), Oracle::Run(_, lost)) if run != *lost => Lost::Older,
            (Ok(Held::Perhaps { .. } | Held::Unknown) | Err(_), _) => Lost::Newest,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Shadow {
    pub start: Vec<u8>,
    /// Only older versions of the first key may be lost.
    pub is_start_known: bool,
    pub end: Option<Vec<u8>>,
    pub max_sequence: SequenceNumber,
    pub oracle: Option<Oracle>,
    pub path: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shade {
    pub newest_above: SequenceNumber,
    /// Versions below this may be missing: the base of operands is uncertain.
    pub whole_above: SequenceNumber,
    pub path: PathBuf,
}

#[derive(Debug, Default)]
pub struct Losses {
    /// Shadows not reached yet, in descending order of the first key.
    upcoming: Vec<Shadow>,
    active: Vec<Shadow>,
    losses: Vec<Loss>,
    left_out: u64,
    /// Index of the loss that a following withheld or stale record may extend.
    open: Option<usize>,
}

pub fn loss(kind: LossKind, path: impl Into<PathBuf>, detail: impl Into<String>) -> Loss {
    Loss {
        kind,
        path: path.into(),
        offset: None,
        bytes: None,
        from: None,
        to: None,
        commits: None,
        records: None,
        detail: detail.into(),
    }
}

pub fn lost_key(internal: &[u8]) -> Option<LostKey> {
    let (tree, key) = split_internal_key(internal)?;
    Some(LostKey { tree: tree.0, name: None, key: key.to_vec() })
}

impl Losses {
    pub fn add(&mut self, loss: Loss) {
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(loss);
        } else {
            self.left_out += 1;
        }
    }

    pub fn cast(&mut self, shadow: Shadow) {
        let place = self.upcoming.partition_point(|other| other.start > shadow.start);
        self.upcoming.insert(place, shadow);
    }

    /// True if a loss may concern a tree before that of `key`.
    pub fn is_any_below(&self, key: &[u8]) -> bool {
        let is_below = |from: &Option<LostKey>| match (from, split_internal_key(key)) {
            (Some(from), Some((tree, _))) => from.tree < tree.0,
            _ => true,
        };
        self.losses.iter().any(|loss| is_below(&loss.from)) || self.left_out > 0
    }

    /// Keys come in ascending order.
    pub fn shade(&mut self, key: &[u8]) -> Shade {
        while self.upcoming.last().is_some_and(|shadow| shadow.start.as_slice() <= key) {
            self.active.extend(self.upcoming.pop());
        }
        let mut shade = Shade::default();
        if self.active.is_empty() {
            return shade;
        }
        self.active.retain(|shadow| shadow.end.as_deref().is_none_or(|end| key <= end));
        for shadow in &self.active {
            let is_known = shadow.is_start_known && shadow.start == key;
            if shadow.max_sequence <= shade.newest_above && (is_known || shadow.max_sequence <= shade.whole_above) {
                continue;
            }
            let lost = match &shadow.oracle {
                _ if is_known => Lost::Older,
                Some(oracle) => oracle.lost(key),
                None => Lost::Newest,
            };
            if lost == Lost::Nothing {
                continue;
            }
            shade.whole_above = shade.whole_above.max(shadow.max_sequence.saturating_add(1));
            if lost == Lost::Newest && shadow.max_sequence >= shade.newest_above {
                shade.newest_above = shadow.max_sequence.saturating_add(1);
                shade.path.clone_from(&shadow.path);
            }
        }
        shade
    }

    /// Consecutive records form one loss.
    pub fn doubt(&mut self, kind: LossKind, shade: &Shade, key: &[u8], detail: &str) {
        let key = lost_key(key);
        if let Some(last) = self.open.and_then(|place| self.losses.get_mut(place))
            && last.kind == kind
            && last.path == shade.path
            && last.from.as_ref().map(|from| from.tree) == key.as_ref().map(|key| key.tree)
        {
            last.to = key;
            last.records = last.records.map(|records| records + 1);
            return;
        }
        self.open = Some(self.losses.len());
        let new = loss(kind, &shade.path, detail);
        self.add(Loss { from: key.clone(), to: key, records: Some(1), ..new });
    }

    pub fn finish(self, names: &BTreeMap<u32, String>) -> (Vec<Loss>, u64) {
        let mut losses = self.losses;
        for loss in &mut losses {
            for key in loss.from.iter_mut().chain(&mut loss.to) {
                key.name = names.get(&key.tree).cloned();
            }
        }
        (losses, self.left_out)
    }
}
