//! Reads, compared with the model.

use super::{
    outcome::{Outcome, Said, drain},
    steps::{KEYS, key},
    world::World,
};
use crate::common::view::{View, check_stream};
use braiddb::Value;
use braiddb_sim::model::{At, Bounds, Bytes, TreeNumber, short};
use std::{collections::VecDeque, ops::Bound};

impl World<'_> {
    pub fn check_get(&self, view: &View<'_>, tree: TreeNumber, at: impl Into<At>, keys: &[u8]) -> Outcome {
        let at = at.into();
        let keys: Vec<Bytes> = keys.iter().map(|number| key(*number)).collect();
        let many = view.multi_get(&keys).said("multi_get")?;
        ensure!(many.len() == keys.len(), "multi_get gave {} values for {} keys", many.len(), keys.len());
        for (key, found) in keys.iter().zip(many) {
            let expected = self.model.get(tree, key, at);
            ensure!(found.as_deref() == expected, "multi_get {}: {:?}", short(key), found.as_deref().map(short));
            let found = view.get(key).said("get")?;
            ensure!(
                found.as_deref() == expected,
                "get {} is {:?} instead of {:?}",
                short(key),
                found.as_deref().map(short),
                expected.map(short)
            );
            ensure!(view.contains(key).said("contains")? == expected.is_some(), "contains {}", short(key));
            check_stream(view.stream(key).said("stream")?, expected)
                .map_err(|text| format!("a stream of {}: {text}", short(key)))?;
        }
        Ok(())
    }

    pub fn check_range(
        &self,
        view: &View<'_>,
        tree: TreeNumber,
        at: impl Into<At>,
        bounds: &Bounds,
        directions: u64,
    ) -> Outcome {
        let mut expected = VecDeque::from(self.model.range(tree, bounds, at));
        let count = expected.len() + 1;
        drain(&mut view.range(bounds.clone()), &mut expected, directions, count, true)
            .map_err(|text| format!("{text}, in the range {bounds:?}"))
    }

    pub fn check_all(&self) -> Outcome {
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let all_keys: Vec<u8> = (0..KEYS).collect();
        for (tree, number) in self.trees.iter().zip(self.numbers) {
            let view = View::Now(tree);
            self.check_get(&view, number, u64::MAX, &all_keys)?;
            for directions in [0, 1, 0x5a5a_1234_9876_fff2] {
                self.check_range(&view, number, u64::MAX, &everything, directions)?;
            }
            let mut expected = VecDeque::from(self.model.range(number, &everything, u64::MAX));
            let count = expected.len() + 1;
            drain(&mut view.iter(), &mut expected, 0, count, true)?;
        }
        for number in 1..8 {
            self.check_multi(&everything, number, 0)?;
        }
        self.check_multi(&everything, 0, 0)
    }

    pub fn check_ends(&self, tree: usize) -> Outcome {
        let all = self.model.range(self.numbers[tree], &(Bound::Unbounded, Bound::Unbounded), u64::MAX);
        let tree = &self.trees[tree];
        let plain = |(key, value): (braiddb::Key, Value)| (key.to_vec(), value.to_vec());
        ensure!(tree.first().said("first")?.map(plain).as_ref() == all.first(), "first");
        ensure!(tree.last().said("last")?.map(plain).as_ref() == all.last(), "last");
        Ok(())
    }
}
