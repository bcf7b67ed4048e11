//! Steps that write.

use super::{
    boundaries::Source,
    outcome::{Outcome, Said, drain},
    steps::{HOUR_US, Write, key, sized_value},
    world::World,
};
use crate::common::{
    append_of, value,
    view::check_stream,
    writer::{Way, Writer},
};
use braiddb::{Durability, Transaction, Update};
use braiddb_sim::model::{Bytes, Change, moment, short};
use std::{collections::VecDeque, ops::Bound};

/// A batch refuses operands on its own value if that may expire.
fn is_refused(before: &[Change], change: &Change) -> bool {
    let Change::Append(tree, key, _) = change else { return false };
    before.iter().any(|change| match change {
        Change::PutUntil(of, put, ..) | Change::Extend(of, put, _) => of == tree && put == key,
        _ => false,
    })
}

impl World<'_> {
    /// Multi-trees change their model here and return `None`.
    pub fn change_of(&mut self, write: &Write) -> Option<Change> {
        self.tag += 1;
        match write {
            Write::Put { tree, key: number, size } | Write::Stream { tree, key: number, size } => {
                Some(Change::Put(self.numbers[*tree], key(*number), sized_value(*size, self.tag)))
            }
            Write::PutUntil { tree, key: number, size, after } => {
                let expires_us = self.now_us().saturating_add_signed(i64::from(*after) * HOUR_US as i64) + HOUR_US / 2;
                let value = sized_value(*size, self.tag);
                Some(Change::PutUntil(self.numbers[*tree], key(*number), value, expires_us))
            }
            Write::Delete { tree, key: number } => Some(Change::Delete(self.numbers[*tree], key(*number))),
            Write::Append { tree, key: number, len } => {
                Some(Change::Append(self.numbers[*tree], key(*number), value(usize::from(*len), self.tag)))
            }
            Write::Extend { tree, key: number, size } => {
                Some(Change::Extend(self.numbers[*tree], key(*number), sized_value(*size, self.tag)))
            }
            Write::DeleteRange { tree, bounds } => Some(Change::DeleteRange(self.numbers[*tree], bounds.bounds())),
            Write::Add { key: number, value } => {
                self.pairs().add(&key(*number), &key(*value));
                None
            }
            Write::Remove { key: number, value } => {
                self.pairs().remove(&key(*number), &key(*value));
                None
            }
        }
    }

    pub fn load(&mut self, tree: usize, numbers: &[u8], size: u8) -> Outcome {
        let keys: std::collections::BTreeSet<Bytes> = numbers.iter().map(|number| key(*number)).collect();
        let mut records = Vec::new();
        for key in keys {
            self.tag += 1;
            records.push((key, sized_value(size.wrapping_add(self.tag as u8 % 3), self.tag)));
        }
        let loaded = self.trees[tree].bulk_load(records.iter().map(|(key, value)| (key, value)));
        let number = self.numbers[tree];
        let changes: Vec<Change> = records.into_iter().map(|(key, value)| Change::Put(number, key, value)).collect();
        self.commit_by(loaded.map(|loaded| loaded.sequence), &changes, Source::Load)
    }

    pub fn write(&mut self, write: &Write) -> Outcome {
        let change = self.change_of(write);
        let result = match (&change, write) {
            (Some(Change::Put(_, key, value)), Write::Put { tree, .. }) => self.trees[*tree].put(key, value),
            (Some(Change::PutUntil(_, key, value, expires_us)), Write::PutUntil { tree, .. }) => {
                self.trees[*tree].put_until(key, value, moment(*expires_us))
            }
            (Some(Change::Put(_, key, value)), Write::Stream { tree, .. }) => {
                self.abandon(*tree, key, value)?;
                self.trees[*tree].put_stream(key, value.as_slice())
            }
            (Some(Change::Extend(_, key, more)), Write::Extend { tree, .. }) => {
                self.trees[*tree].append_stream(key, more.as_slice())
            }
            (Some(Change::Delete(_, key)), Write::Delete { tree, .. }) => self.trees[*tree].delete(key),
            (Some(Change::Append(_, key, more)), Write::Append { tree, .. }) => {
                self.trees[*tree].merge(key, &append_of(self.db()), more)
            }
            (Some(Change::DeleteRange(_, bounds)), Write::DeleteRange { tree, .. }) => {
                self.trees[*tree].delete_range(bounds.clone())
            }
            (_, Write::Add { key: number, value }) => {
                return self.multi().add(key(*number), key(*value)).said("add").map(drop);
            }
            (_, Write::Remove { key: number, value }) => {
                return self.multi().delete_pair(key(*number), key(*value)).said("delete_pair").map(drop);
            }
            _ => unreachable!("a write and its change are of one kind"),
        };
        self.commit(result, change.as_slice())
    }

    pub fn abandon(&self, tree: usize, key: &[u8], value: &[u8]) -> Outcome {
        if self.tag.is_multiple_of(3) {
            let pending = self.trees[tree].write_stream(key, value).said("write_stream")?;
            ensure!(pending.len() == value.len() as u64, "a stream of {} bytes", pending.len());
        }
        Ok(())
    }

    pub fn batch(&mut self, writes: &[Write], sync: bool, way: Way) -> Outcome {
        let mut writer = Writer::new(self.db(), &self.trees, way).said("begin")?;
        let changes = self.add_all(&mut writer, writes, way)?;
        if let Writer::Transaction(_, transaction) = &writer {
            self.check_own(transaction, &changes)?;
        }
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        self.commit(writer.commit(durability), &changes)
    }

    pub fn add_all(&mut self, writer: &mut Writer, writes: &[Write], way: Way) -> Outcome<Vec<Change>> {
        // A batch cannot append to its own stream.
        let appends = |write: &Write| matches!(write, Write::Append { .. } | Write::Extend { .. });
        let streams = way != Way::Batch || !writes.iter().any(appends);
        let mut changes = Vec::new();
        for write in writes {
            let mut change = self.change_of(write);
            if let (Some(Change::Extend(tree, key, more)), Way::Batch) = (&change, way) {
                change = Some(Change::Append(*tree, key.clone(), more.clone()));
            }
            if change.as_ref().is_some_and(|change| is_refused(&changes, change)) {
                continue;
            }
            let done = match (&change, write) {
                (Some(Change::Put(_, key, value)), Write::Put { tree, .. }) => {
                    writer.put(&self.trees[*tree], key, value)
                }
                (Some(Change::PutUntil(_, key, value, expires_us)), Write::PutUntil { tree, .. }) => {
                    writer.put_until(&self.trees[*tree], key, value, *expires_us)
                }
                (Some(Change::Put(_, key, value)), Write::Stream { tree, .. }) if streams => {
                    writer.put_stream(&self.trees[*tree], key, value)
                }
                (Some(Change::Put(_, key, value)), Write::Stream { tree, .. }) => {
                    writer.put(&self.trees[*tree], key, value)
                }
                (Some(Change::Append(_, key, more) | Change::Extend(_, key, more)), Write::Extend { tree, .. }) => {
                    writer.append_stream(&self.trees[*tree], key, more)
                }
                (Some(Change::Delete(_, key)), Write::Delete { tree, .. }) => writer.delete(&self.trees[*tree], key),
                (Some(Change::Append(_, key, more)), Write::Append { tree, .. }) => {
                    writer.append(&self.trees[*tree], key, more)
                }
                (Some(Change::DeleteRange(_, bounds)), Write::DeleteRange { tree, .. }) => {
                    writer.delete_range(&self.trees[*tree], bounds.clone())
                }
                (_, Write::Add { key: number, value }) => writer.add(self.multi(), &key(*number), &key(*value)),
                (_, Write::Remove { key: number, value }) => writer.remove(self.multi(), &key(*number), &key(*value)),
                _ => unreachable!("a write and its change are of one kind"),
            };
            done.said("a write of a batch")?;
            changes.extend(change);
        }
        Ok(changes)
    }

    pub fn check_own(&self, transaction: &Transaction, changes: &[Change]) -> Outcome {
        let mut model = self.model.clone();
        model.commit(u64::MAX, changes);
        for (tree, number) in self.trees.iter().zip(&self.numbers) {
            let expected = model.range(*number, &(Bound::Unbounded, Bound::Unbounded), u64::MAX);
            let mut forward = VecDeque::from(expected.clone());
            drain(&mut transaction.iter(tree), &mut forward, 0, usize::MAX, true)?;
            let mut mixed = VecDeque::from(expected);
            drain(&mut transaction.iter(tree), &mut mixed, self.tag, usize::MAX, true)?;
            for number_of_key in [5, 9, 12, 26] {
                let key = key(number_of_key);
                let found = transaction.stream(tree, &key).said("stream")?;
                check_stream(found, model.get(*number, &key, u64::MAX))
                    .map_err(|text| format!("a transaction's stream of {}: {text}", short(&key)))?;
            }
        }
        Ok(())
    }

    pub fn conditional(&mut self, tree: usize, number: u8, size: u8, what: u8) -> Outcome {
        self.tag += 1;
        let (handle, key, new) = (self.trees[tree].clone(), key(number), sized_value(size, self.tag));
        let expected = self.model.get(self.numbers[tree], &key, u64::MAX).map(<[u8]>::to_vec);
        let found = handle.get_versioned(&key).said("get_versioned")?;
        ensure!(found.as_ref().map(|found| &*found.0) == expected.as_deref(), "get_versioned of {}", short(&key));
        let (put, delete) = (
            Change::Put(self.numbers[tree], key.clone(), new.clone()),
            Change::Delete(self.numbers[tree], key.clone()),
        );
        let never = self.db().version_of(u64::MAX >> 2);
        let (result, change) = match (what, found.map(|found| found.1)) {
            (0, found) => (handle.put_if_absent(&key, &new), found.is_none().then_some(put)),
            (1, _) => (handle.compare_exchange(&key, expected.as_deref(), Some(&new)), Some(put)),
            (2, _) => (handle.compare_exchange(&key, Some(b"never there"), None), None),
            (3, Some(version)) => (handle.put_if_version(&key, &new, version), Some(put)),
            (4, Some(version)) => (handle.delete_if_version(&key, version), Some(delete)),
            (3 | 4, None) => (handle.put_if_version(&key, &new, never), None),
            _ => {
                let before = handle.fetch_update(&key, |_| Update::Put(new.clone())).said("fetch_update")?;
                ensure!(before.as_deref() == expected.as_deref(), "fetch_update of {}", short(&key));
                (handle.get_versioned(&key).map(|found| found.map(|found| found.1)), Some(put))
            }
        };
        let written = result.said("a write on a condition")?;
        ensure!(written.is_some() == change.is_some(), "condition {what} on {} gave {written:?}", short(&key));
        match (written, change) {
            (Some(version), Some(change)) => self.commit(Ok(version.sequence()), &[change]),
            _ => Ok(()),
        }
    }

    pub fn fill(&mut self, tree: usize, first: u16, count: u8, size: u8) -> Outcome {
        for number in 0..u16::from(count) {
            self.tag += 1;
            let key = format!("fill{:04}", first + number).into_bytes();
            let value = sized_value(size % 7, self.tag);
            let mut batch = self.db().batch();
            batch.put(&self.trees[tree], &key, &value);
            let result = batch.commit_with(Durability::Buffered);
            self.commit(result, &[Change::Put(self.numbers[tree], key, value)])?;
        }
        Ok(())
    }
}
