//! Times the three queries of a disc player.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use braiddb::{Db, MultiTree, Tree, Value};

use super::show::{ALBUMS, Dump};
use crate::{freedb::generator::disc_file, random::Random};

const SHOWN: usize = 10;

#[derive(Clone, Debug)]
pub struct LookupKind {
    pub name: &'static str,
    pub queries: u64,
    pub records: u64,
    pub example: String,
    times: Vec<Duration>,
}

impl LookupKind {
    pub fn percentile_us(&self, percent: usize) -> f64 {
        let index = (self.times.len() * percent / 100).min(self.times.len().saturating_sub(1));
        self.times.get(index).map_or(0.0, |time| time.as_nanos() as f64 / 1000.0)
    }
}

pub fn run_lookups(db: &Db, dump: Dump, queries: u64) -> Result<Vec<LookupKind>> {
    let albums = db.open_tree(ALBUMS)?;
    let kinds = [("by disc id", "by_disc_id"), ("by artist prefix", "by_artist"), ("by title prefix", "by_title")];
    let mut results = Vec::new();
    for (kind, (name, index)) in kinds.into_iter().enumerate() {
        let index = db.open_multi_tree(index)?;
        let mut random = Random::of(dump.seed ^ 0x100c, kind as u64);
        let mut result = LookupKind { name, queries: 0, records: 0, example: String::new(), times: Vec::new() };
        for _ in 0..queries * 4 {
            if result.queries == queries {
                break;
            }
            let number = random.below(dump.discs);
            let Some(truth) = disc_file(dump.seed, number, dump.discs).truth else { continue };
            let query = match kind {
                0 => random.pick(&truth.disc_ids.iter().map(String::as_str).collect::<Vec<_>>()).to_owned(),
                1 => beginning(&truth.artist),
                _ => beginning(&truth.title),
            };
            let began = Instant::now();
            let found = look_up(&albums, &index, kind, &query)?;
            result.times.push(began.elapsed());
            ensure!(!found.is_empty(), "nothing found {name} for {query:?} of disc {number}");
            result.queries += 1;
            result.records += found.len() as u64;
            if result.example.is_empty() && query.is_ascii() && query.len() > 5 {
                result.example = example(&query, &found);
            }
        }
        result.times.sort_unstable();
        results.push(result);
    }
    Ok(results)
}

fn look_up(albums: &Tree, index: &MultiTree, kind: usize, query: &str) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    let mut take = |id: braiddb::Result<Value>| -> Result<()> {
        found.extend(albums.get(id?)?);
        Ok(())
    };
    if kind == 0 {
        index.values(query).try_for_each(&mut take)?;
    } else {
        index.prefix(query).take(SHOWN).map(|pair| Ok(pair?.1)).try_for_each(&mut take)?;
    }
    Ok(found)
}

fn beginning(text: &str) -> String {
    text.to_lowercase().chars().take(6).collect()
}

fn example(query: &str, found: &[Value]) -> String {
    let names: Vec<String> = found
        .iter()
        .take(2)
        .filter_map(|record| serde_json::from_slice::<serde_json::Value>(record).ok())
        .map(|record| {
            let text = |field: &str| record.get(field).and_then(|value| value.as_str()).unwrap_or("").to_owned();
            format!("{} / {}", text("artist"), text("title"))
        })
        .collect();
    let more = if found.len() > 2 { "; .." } else { "" };
    format!("{query:?}: {}{more}", names.join("; "))
}
