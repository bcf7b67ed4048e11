//! Steps with multi-trees.

use super::{
    outcome::{Outcome, Said, drain, unless_expired},
    steps::{Step, key},
    world::World,
};
use braiddb::{Durability, Key, Result, Snapshot, Value};
use braiddb_sim::model::{Bounds, Bytes, MultiModel, short};
use std::{collections::VecDeque, ops::Bound, sync::Arc};

/// Adds the key to its values.
fn of_key<'k>(
    values: impl DoubleEndedIterator<Item = Result<Value>> + 'k,
    key: &'k [u8],
) -> impl DoubleEndedIterator<Item = Result<(Key, Value)>> + 'k {
    values.map(move |value| Ok((Key::from(key), value?)))
}

impl World<'_> {
    pub fn step_of_multi(&mut self, step: &Step) -> Outcome {
        match step {
            Step::MultiFill { key: number, first, count } => {
                let mut batch = self.db().batch();
                for value in *first..first + u16::from(*count) {
                    let value = value.wrapping_mul(40503).to_be_bytes();
                    batch.add(self.multi(), key(*number), value);
                    self.pairs().add(&key(*number), &value);
                }
                batch.commit_with(Durability::Buffered).said("a batch of pairs").map(drop)
            }
            Step::MultiSeek { key: number, value, steps } => self.check_multi_seek(&key(*number), &key(*value), *steps),
            Step::MultiSnapshot => {
                self.multi_snapshots.push((self.db().snapshot(), Arc::clone(&self.multi_model), self.hours));
                if self.multi_snapshots.len() > 3 {
                    self.multi_snapshots.remove(0);
                }
                Ok(())
            }
            Step::ReadMultiSnapshot { which, key: number } => {
                let which = usize::from(*which) % self.multi_snapshots.len().max(1);
                let Some((snapshot, model, since)) = self.multi_snapshots.get(which) else { return Ok(()) };
                let done = self.check_multi_snapshot(snapshot, model.values(&key(*number)), key(*number));
                unless_expired(done, self.may_expire(*since)).map(drop)
            }
            Step::MultiTransaction { pairs, is_exclusive, is_committed } => {
                self.multi_transaction(pairs, *is_exclusive, *is_committed)
            }
            other => unreachable!("{other:?} is done elsewhere"),
        }
    }

    fn check_multi_snapshot(&self, snapshot: &Snapshot, expected: Vec<Bytes>, one: Bytes) -> Outcome {
        let view = snapshot.multi_tree(self.multi());
        let found = view.count_values(&one).said("a snapshot's count")?;
        ensure!(found == expected.len() as u64, "{found} values in a snapshot, not {}", expected.len());
        let mut expected: VecDeque<_> = expected.into_iter().map(|value| (one.clone(), value)).collect();
        let count = expected.len() + 1;
        drain(&mut of_key(view.values(&one), &one), &mut expected, self.tag, count, true)
    }

    pub fn check_multi_seek(&self, key: &[u8], value: &[u8], mut steps: u64) -> Outcome {
        let values = self.multi_model.values(key);
        let at = values.partition_point(|other| other.as_slice() < value);
        let mut cursor = self.multi().cursor();
        let before = cursor.seek_value_before(key, value).said("seek_value_before")?;
        let found = before.then(|| cursor.value().to_vec());
        ensure!(
            found.as_ref() == values[..at].last(),
            "seek_value_before {} of key {} found {found:?}",
            short(value),
            short(key)
        );
        let is_there = cursor.seek_value(key, value).said("seek_value")?;
        let found = is_there.then(|| cursor.value().to_vec());
        ensure!(found.as_ref() == values.get(at), "seek_value {} of key {} found {found:?}", short(value), short(key));
        let mut at = at as i64;
        for _ in 0..12 {
            let by = if steps & 1 == 0 { 1 } else { -1 };
            at = (at + by).clamp(-1, values.len() as i64);
            steps >>= 1;
            let is_there = if by > 0 { cursor.next_value() } else { cursor.prev_value() }.said("a step by value")?;
            let found = is_there.then(|| cursor.value());
            let expected = usize::try_from(at).ok().and_then(|at| values.get(at));
            ensure!(
                found == expected.map(Vec::as_slice),
                "a step by value: {found:?} instead of {expected:?}, key {}",
                short(key)
            );
        }
        let found = cursor.count_values_of(key).said("a cursor's count")?;
        ensure!(found == values.len() as u64, "count_values_of gave {found} values of key {}", short(key));
        Ok(())
    }

    pub fn multi_transaction(&mut self, pairs: &[(u8, u8, u8)], is_exclusive: bool, is_committed: bool) -> Outcome {
        let begun = if is_exclusive { self.db().begin_exclusive() } else { self.db().begin() };
        let (tx, mut model) = (begun.said("begin")?, MultiModel::clone(&self.multi_model));
        for (what, of, value) in pairs {
            let (of, value, view) = (key(*of), key(*value), tx.multi_tree(self.multi()));
            match what {
                0 => view.delete(&of).said("delete").map(|()| model.remove_all(&of))?,
                1..4 => view.delete_pair(&of, &value).said("delete_pair").map(|()| model.remove(&of, &value))?,
                _ => view.add(&of, &value).said("add").map(|()| model.add(&of, &value))?,
            }
            let expected = model.values(&of);
            let found = view.count_values(&of).said("a transaction's count")?;
            ensure!(found == expected.len() as u64, "{found} values of {} in a transaction", short(&of));
            let found = view.contains_pair(&of, &value).said("contains_pair")?;
            ensure!(found == expected.contains(&value), "a transaction holds {} of {}", short(&value), short(&of));
            let mut expected: VecDeque<_> = expected.into_iter().map(|value| (of.clone(), value)).collect();
            let count = expected.len() + 1;
            drain(&mut of_key(view.values(&of), &of), &mut expected, self.tag, count, true)?;
        }
        if is_committed {
            tx.commit().said("a transaction of pairs")?;
            self.multi_model = Arc::new(model);
        }
        Ok(())
    }

    pub fn check_multi(&self, bounds: &Bounds, number: u8, directions: u64) -> Outcome {
        let mut expected = VecDeque::from(self.multi_model.range(bounds));
        let count = expected.len() + 1;
        drain(&mut self.multi().range(bounds.clone()), &mut expected, directions, count, true)
            .map_err(|text| format!("{text}, in the multi-tree's range {bounds:?}"))?;
        let one = key(number);
        let only_one = (Bound::Included(one.clone()), Bound::Included(one.clone()));
        let mut expected = VecDeque::from(self.multi_model.range(&only_one));
        for (key, value) in &expected {
            ensure!(
                self.multi().contains_pair(key, value).said("contains_pair")?,
                "a value is missing from {}",
                short(key)
            );
        }
        let found = self.multi().count_values(&one).said("count")?;
        ensure!(found == expected.len() as u64, "{found} values of {} instead of {}", short(&one), expected.len());
        let count = expected.len() + 1;
        drain(&mut of_key(self.multi().values(&one), &one), &mut expected, directions, count, true)
            .map_err(|text| format!("{text}, in the values of {}", short(&one)))
    }
}
