use super::*;
use crate::base::{Cursor, EntryKind, EntryRef, Result};

#[derive(Debug)]
struct Pairs {
    pairs: Vec<(Vec<u8>, u64)>,
    at: Option<usize>,
}

impl Pairs {
    fn first_from(&self, key: &[u8]) -> usize {
        self.pairs.partition_point(|(k, _)| k.as_slice() < key)
    }
}

impl Cursor for Pairs {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.at = Some(self.first_from(key)).filter(|&i| i < self.pairs.len());
        Ok(())
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.first_from(key).checked_sub(1);
        Ok(())
    }
    fn seek_first(&mut self) -> Result<()> {
        self.seek(b"")
    }
    fn seek_last(&mut self) -> Result<()> {
        self.at = self.pairs.len().checked_sub(1);
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.at = self.at.map(|i| i + 1).filter(|&i| i < self.pairs.len());
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.at = self.at.and_then(|i| i.checked_sub(1));
        Ok(())
    }
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn entry(&self) -> EntryRef<'_> {
        let (key, sequence) = &self.pairs[self.at.unwrap()];
        EntryRef { key, sequence: *sequence, kind: EntryKind::Value, value: b"" }
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn merge_in_both_directions_returns_newest_entry_of_each_key() {
    let mut state = 1;
    for _ in 0..200 {
        let mut model = std::collections::BTreeMap::<Vec<u8>, u64>::new();
        let mut sources = Vec::new();
        for source in 0..1 + random(&mut state) % 5 {
            let mut pairs = std::collections::BTreeMap::new();
            for _ in 0..random(&mut state) % 12 {
                let (key, sequence) = (vec![(random(&mut state) % 20) as u8], source * 100 + random(&mut state) % 100);
                pairs.insert(key.clone(), sequence);
            }
            for (key, sequence) in &pairs {
                let newest = model.entry(key.clone()).or_default();
                *newest = (*newest).max(*sequence);
            }
            sources.push(Pairs { pairs: pairs.into_iter().collect(), at: None });
        }
        walk(Merge::new(sources), &model.into_iter().collect::<Vec<_>>(), &mut state);
    }
}

fn walk(mut merge: Merge<Pairs>, model: &[(Vec<u8>, u64)], state: &mut u64) {
    let mut at: Option<usize> = None;
    for _ in 0..60 {
        let key = vec![(random(state) % 21) as u8];
        let from = model.partition_point(|(k, _)| *k < key);
        at = match (random(state) % 8, at) {
            (0, _) => {
                merge.seek(&key).unwrap();
                Some(from).filter(|&i| i < model.len())
            }
            (1, _) => {
                merge.seek_before(&key).unwrap();
                from.checked_sub(1)
            }
            (2, _) => {
                merge.seek_first().unwrap();
                Some(0).filter(|_| !model.is_empty())
            }
            (3, _) => {
                merge.seek_last().unwrap();
                model.len().checked_sub(1)
            }
            (4 | 5, Some(i)) => {
                merge.next().unwrap();
                Some(i + 1).filter(|&i| i < model.len())
            }
            (_, Some(i)) => {
                merge.prev().unwrap();
                i.checked_sub(1)
            }
            (_, None) => None,
        };
        assert_eq!(merge.valid(), at.is_some());
        if let Some(i) = at {
            assert_eq!((merge.key(), merge.sequence()), (model[i].0.as_slice(), model[i].1));
        }
    }
}
