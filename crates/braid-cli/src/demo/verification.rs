//! Checks the acknowledged records: regenerates each disc and compares it with the stored one.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Result, anyhow};
use braiddb::{Db, MultiTree, Tree};

use super::show::{ALBUMS, Dump};
use crate::{
    bar::Bar,
    freedb::{self, Disc, generator::disc_file},
};

const DISCS_AT_A_TIME: u64 = 500;

#[derive(Clone, Debug, Default)]
pub struct Verification {
    pub acknowledged: u64,
    pub lost: Vec<String>,
    pub extra: u64,
    pub seconds: f64,
}

impl Verification {
    /// A loss after the kill counts even if the record returned later.
    pub fn joined(after_kill: &Verification, at_end: &Verification) -> Verification {
        let mut joined = at_end.clone();
        for loss in &after_kill.lost {
            if !joined.lost.contains(loss) {
                joined.lost.push(loss.clone());
            }
        }
        joined
    }
}

struct Trees {
    albums: Tree,
    by_disc_id: MultiTree,
    by_artist: MultiTree,
    by_title: MultiTree,
}

pub fn verify(db: &Db, dump: Dump, end: u64, threads: usize) -> Result<Verification> {
    let began = Instant::now();
    if end == 0 {
        return Ok(Verification::default());
    }
    let trees = Trees {
        albums: db.open_tree(ALBUMS)?,
        by_disc_id: db.open_multi_tree("by_disc_id")?,
        by_artist: db.open_multi_tree("by_artist")?,
        by_title: db.open_multi_tree("by_title")?,
    };
    let bar = Bar::count(Some(end), "verify");
    let next = AtomicU64::new(0);
    let total = Mutex::new(Verification::default());
    thread::scope(|scope| -> Result<()> {
        let worker = || -> Result<()> {
            loop {
                let first = next.fetch_add(DISCS_AT_A_TIME, Ordering::Relaxed);
                if first >= end {
                    return Ok(());
                }
                let mut part = Verification::default();
                for number in first..(first + DISCS_AT_A_TIME).min(end) {
                    trees.check(dump, number, &mut part)?;
                }
                let mut total = total.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                total.acknowledged += part.acknowledged;
                total.lost.append(&mut part.lost);
                bar.set_count(first);
            }
        };
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a verifying thread panicked"))??;
        }
        Ok(())
    })?;
    let mut total = total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    total.lost.sort();
    total.extra = trees.count_extra(end, &total)?;
    total.seconds = began.elapsed().as_secs_f64();
    bar.finish();
    Ok(total)
}

impl Trees {
    fn check(&self, dump: Dump, number: u64, found: &mut Verification) -> Result<()> {
        let file = disc_file(dump.seed, number, dump.discs);
        let key = number.to_be_bytes();
        let stored = self.albums.get(key)?;
        let Some(disc) = freedb::parse(&file.path, &file.bytes, number, &mut Vec::new()) else {
            if stored.is_some() || file.truth.is_some() {
                found.lost.push(format!("disc {number}: {} should not be stored", file.path));
            }
            return Ok(());
        };
        found.acknowledged += 1;
        let Some(stored) = stored else {
            found.lost.push(format!("disc {number}: no record"));
            return Ok(());
        };
        if serde_json::to_vec(&disc)?.as_slice() != &*stored {
            found.lost.push(format!("disc {number}: different record"));
        } else if let Some(index) = self.missing_index(&disc, &key)? {
            found.lost.push(format!("disc {number}: no entry in {index}"));
        }
        Ok(())
    }

    fn missing_index(&self, disc: &Disc, key: &[u8; 8]) -> Result<Option<&'static str>> {
        for id in &disc.disc_ids {
            if !self.by_disc_id.contains_pair(id, key)? {
                return Ok(Some("by_disc_id"));
            }
        }
        if !self.by_artist.contains_pair(crate::import::index_key(&disc.artist.to_lowercase()), key)? {
            return Ok(Some("by_artist"));
        }
        if !self.by_title.contains_pair(crate::import::index_key(&disc.title.to_lowercase()), key)? {
            return Ok(Some("by_title"));
        }
        Ok(None)
    }

    fn count_extra(&self, end: u64, found: &Verification) -> Result<u64> {
        let mut records = 0;
        for item in self.albums.range(..end.to_be_bytes()) {
            item?;
            records += 1;
        }
        let missing = found.lost.iter().filter(|loss| loss.ends_with("no record")).count() as u64;
        Ok(u64::saturating_sub(records, found.acknowledged - missing))
    }
}
