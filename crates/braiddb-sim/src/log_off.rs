//! Numbered commits without WAL: the last number determines the contents. Each commit writes to
//! three trees and sets its number as the application cursor.

use crate::{
    model::{Change, Contents, apply, difference, prefix_bounds},
    random::{Random, mix},
};
use braiddb::{Db, Durability, Result};

/// Trees by number.
pub const TREES: [&str; 3] = ["left", "right", "third"];

const KEYS: u64 = 400;

/// Returns the changes of a commit.
pub fn changes(seed: u64, number: u64) -> Vec<Change> {
    let mut random = Random::new(mix(seed, number));
    let key = |random: &mut Random| format!("{:03}", random.below(KEYS)).into_bytes();
    let mut changes = Vec::new();
    if random.chance(1, 30) {
        let tree = random.below(3) as u32;
        changes.push(Change::DeleteRange(tree, prefix_bounds(format!("{:02}", random.below(KEYS / 10)).as_bytes())));
    }
    for tree in 0..3 {
        for _ in 0..1 + random.below(3) {
            let (key, chance) = (key(&mut random), random.below(20));
            let len = if chance == 1 { 1500 } else { random.below(150) as usize };
            changes.push(match chance {
                0 => Change::Delete(tree, key),
                _ => Change::Put(tree, key, random.bytes(len)),
            });
        }
        changes.push(Change::Put(tree, b"number".to_vec(), number.to_le_bytes().to_vec()));
    }
    changes
}

/// Commits the changes of a number, without WAL.
pub fn commit(db: &Db, seed: u64, number: u64) -> Result<()> {
    let mut batch = db.batch();
    for change in changes(seed, number) {
        let tree = |tree: u32| db.tree(TREES[tree as usize]);
        match change {
            Change::Put(of, key, value) => batch.put(&tree(of)?, key, value),
            Change::Delete(of, key) => batch.delete(&tree(of)?, key),
            Change::DeleteRange(of, bounds) => batch.delete_range(&tree(of)?, bounds),
            other => unreachable!("{other:?}"),
        };
    }
    batch.set_application_cursor(number.to_le_bytes());
    batch.commit_with(Durability::None).map(|_| ())
}

/// Returns the number of the last commit in the database; 0 if there is none.
pub fn cursor_of(db: &Db) -> Result<u64> {
    let cursor = db.application_cursor()?;
    Ok(cursor.map_or(0, |cursor| u64::from_le_bytes(cursor.try_into().expect("a number"))))
}

/// The expected contents.
#[derive(Debug, Default)]
pub struct Expected {
    number: u64,
    contents: Contents,
}

impl Expected {
    /// Checks that the database holds exactly the commits up to its cursor, which must not
    /// decrease. Returns the cursor.
    pub fn judge(&mut self, db: &Db, seed: u64) -> std::result::Result<u64, String> {
        let last = cursor_of(db).map_err(|e| e.to_string())?;
        if last < self.number {
            return Err(format!("the cursor is {last}, and was {} before", self.number));
        }
        for number in self.number + 1..=last {
            apply(&mut self.contents, &changes(seed, number));
        }
        self.number = last;
        let mut found = Contents::new();
        for (number, name) in TREES.iter().enumerate() {
            let tree = match db.open_tree(name) {
                Err(e) if e.is_not_found() => continue,
                tree => tree.map_err(|e| e.to_string())?,
            };
            for row in tree.iter() {
                let (key, value) = row.map_err(|e| e.to_string())?;
                found.insert((number as u32, key.to_vec()), value.to_vec());
            }
        }
        if found == self.contents { Ok(last) } else { Err(difference(&self.contents, &found)) }
    }
}
