//! Deletes and a compaction on a small, really full file system give space back, also after a
//! reopening. Needs Linux and a kernel that permits mount namespaces.
//!
//! The story: a delete needs a log segment, a flush needs a run, and a merge needs its output
//! before it can remove its inputs. A full disk had space for none, so nothing could be deleted.

#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "a real file system, and a process of its own on it")]

use braiddb::{Db, Durability, Error, Tree};
use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Environment of the child: the directory of the small file system.
const PLACE: &str = "BRAIDDB_FULL_DISK_DIR";

/// Environment of the child: the order of keys.
const ORDER: &str = "BRAIDDB_FULL_DISK_ORDER";

/// Consecutive refusals after which the disk counts as full.
const REFUSALS: u64 = 30;

/// Runs `test` of this program on a file system of `mib` MiB.
fn on_volume(mib: u32, order: &str, test: &str) {
    let place = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let script = format!(
        "mount -t tmpfs -o size={mib}m none '{0}' || {{ echo no-mount; exit 0; }}\n\
         {PLACE}='{0}' {ORDER}={order} exec '{1}' --exact {test} --nocapture",
        place.path().display(),
        program.display()
    );
    let unshare = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).output();
    let Ok(output) = unshare else { return eprintln!("SKIPPED: there is no unshare") };
    let reported = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if reported.contains("no-mount") || reported.contains("unshare:") {
        return eprintln!("SKIPPED: no file system can be mounted here");
    }
    println!("{reported}");
    assert!(output.status.success() && reported.contains("1 passed"), "{mib} MiB, keys {order}: {reported}");
}

struct World {
    db: Db,
    tree: Tree,
    in_order: bool,
    acknowledged: Vec<bool>,
}

impl World {
    fn open(place: &Path, in_order: bool, acknowledged: Vec<bool>) -> World {
        let db = Db::builder().durability(Durability::Buffered).open(place.join("db")).unwrap();
        let tree = db.tree("t").unwrap();
        World { db, tree, in_order, acknowledged }
    }

    fn key(&self, number: usize) -> [u8; 8] {
        let number = number as u64;
        if self.in_order { number } else { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }.to_be_bytes()
    }

    fn value(number: usize) -> Vec<u8> {
        let mut state = number as u64 + 1;
        let mut value = Vec::new();
        while value.len() < 100 + number % 700 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value.extend_from_slice(&state.rotate_left(23).to_le_bytes());
        }
        value
    }

    fn fill(&mut self) -> usize {
        let (mut refused, mut stored) = (0, 0);
        while refused < REFUSALS {
            let number = self.acknowledged.len();
            match self.tree.put(self.key(number), World::value(number)) {
                Ok(_) => {
                    self.acknowledged.push(true);
                    (refused, stored) = (0, stored + 1);
                }
                Err(Error::DiskFull { .. }) => {
                    refused += 1;
                    // Flushes, so that the timing of background threads cannot end the fill early.
                    let _ = self.db.flush();
                }
                Err(error) => panic!("{error}"),
            }
        }
        stored
    }

    fn check(&self) {
        let mut there = 0;
        for (number, is_there) in self.acknowledged.iter().enumerate() {
            let found = self.tree.get(self.key(number)).unwrap();
            assert_eq!(found.is_some(), *is_there, "key {number}");
            assert!(found.is_none_or(|value| *value == World::value(number)), "key {number}");
            there += usize::from(*is_there);
        }
        let rows: Vec<_> = self.tree.iter().collect::<Result<_, Error>>().unwrap();
        assert_eq!(rows.len(), there);
    }

    fn delete_half(&mut self) {
        let mut keys: Vec<[u8; 8]> = (0..self.acknowledged.len()).map(|number| self.key(number)).collect();
        keys.retain(|key| self.tree.contains(key).unwrap());
        keys.sort_unstable();
        let middle = keys[keys.len() / 2];
        self.tree.delete_range(..&middle[..]).unwrap();
        for number in 0..self.acknowledged.len() {
            self.acknowledged[number] &= self.key(number) >= middle;
        }
    }

    fn wait_for_reserve(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let stats = self.db.stats();
            if stats.disk_reserve_bytes == stats.disk_reserve_bytes_whole {
                return assert!(stats.disk_reserve_bytes > 0, "there is a reserve");
            }
            assert!(Instant::now() < deadline, "the reserve is not refilled: {stats:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn reported(&self, when: &str) {
        let stats = self.db.stats();
        let there = self.acknowledged.iter().filter(|is_there| **is_there).count();
        println!(
            "{when}: {there} keys, {} KiB on disk, reserve {} of {} KiB, {} partitions",
            stats.disk_bytes >> 10,
            stats.disk_reserve_bytes >> 10,
            stats.disk_reserve_bytes_whole >> 10,
            stats.partitions.len()
        );
    }
}

fn fill_delete_and_go_on(place: &Path, in_order: bool) {
    let mut world = World::open(place, in_order, Vec::new());
    for round in 0..3 {
        let stored = world.fill();
        world.reported("full");
        assert!(stored > 500, "only {stored} keys were stored in round {round}");
        world.check();
        if round > 0 {
            let World { db, tree, acknowledged, .. } = world;
            drop(tree);
            db.close().unwrap();
            world = World::open(place, in_order, acknowledged);
            world.reported("opened");
            assert!(world.db.verify().unwrap().problems.is_empty());
            world.check();
        }
        world.delete_half();
        world.db.compact().unwrap_or_else(|error| panic!("compact: {error}"));
        world.reported("compacted");
        world.check();
        world.wait_for_reserve();
    }
    assert!(world.fill() > 500, "writes resume");
    assert!(world.db.verify().unwrap().problems.is_empty());
}

#[test]
fn delete_range_and_compact_on_full_volume_give_space_back() {
    if let Some(place) = std::env::var_os(PLACE) {
        return fill_delete_and_go_on(Path::new(&place), std::env::var(ORDER).as_deref() == Ok("ascending"));
    }
    let test = "delete_range_and_compact_on_full_volume_give_space_back";
    for (mib, order) in [(8, "random"), (8, "ascending")] {
        on_volume(mib, order, test);
    }
}
