//! A session cache with TTL, LRU eviction, size limits and hit statistics.
//!
//! Tree `values` holds the sessions. Tree `lru` orders them by last use. The engine expires both
//! rows of a session at the same time, without notice, so the cache's totals are upper bounds. When
//! a total exceeds its limit, the cache recounts `lru` and evicts down to 90 % of the limits.

#![allow(clippy::disallowed_methods)] // the engine's own code takes the time from its runtime

use braiddb::{Db, Durability, Read, Result, Tree};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, SystemTime};

#[derive(Clone, Copy)]
struct Size {
    entries: u64,
    bytes: u64,
}

impl Size {
    fn within(self, limit: Size) -> bool {
        self.entries <= limit.entries && self.bytes <= limit.bytes
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    hits: u64,
    misses: u64,
    evicted: u64,
}

struct State {
    next_use: u64,
    used: Size, // an upper bound
    figures: Figures,
}

struct Cache {
    db: Db,
    values: Tree, // session -> number of the last use, value
    lru: Tree,    // number of the last use -> bytes, session
    limit: Size,
    state: Mutex<State>,
}

impl Cache {
    /// Opens the cache. Its sessions may be lost by a crash of the system, so commits are buffered.
    fn open(path: &Path, limit: Size) -> Result<Self> {
        let db = Db::builder().durability(Durability::Buffered).open(path)?;
        let (values, lru) = (db.tree("values")?, db.tree("lru")?);
        let next_use = lru.last()?.map_or(0, |(last, _)| number(&last) + 1);
        let state = State { next_use, used: size(&lru)?, figures: Figures::default() };
        Ok(Self { db, values, lru, limit, state: Mutex::new(state) })
    }

    fn put(&self, session: &str, value: &[u8], ttl: Duration) -> Result<()> {
        let this_use = self.next_use();
        let bytes = (session.len() + value.len()) as u64;
        self.db.update(|tx| {
            if let Some(old) = tx.get(&self.values, session)? {
                tx.delete(&self.lru, &old[..8])?;
            }
            tx.put_with_ttl(&self.values, session, [&this_use[..], value].concat(), ttl)?;
            tx.put_with_ttl(&self.lru, this_use, lru_row(bytes, session), ttl)
        })?;
        let mut state = self.state();
        state.used = Size { entries: state.used.entries + 1, bytes: state.used.bytes + bytes };
        self.evict(&mut state)
    }

    /// Returns the value, and makes the session the most recently used. Its expiry stays.
    fn get(&self, session: &str) -> Result<Option<Vec<u8>>> {
        let this_use = self.next_use();
        let value = self.db.update(|tx| {
            let Some((row, Some(expires))) = tx.get_with_expiry(&self.values, session)? else { return Ok(None) };
            let Ok(left) = expires.duration_since(SystemTime::now()) else { return Ok(None) };
            let value = row[8..].to_vec();
            let bytes = (session.len() + value.len()) as u64;
            tx.delete(&self.lru, &row[..8])?;
            tx.put_with_ttl(&self.lru, this_use, lru_row(bytes, session), left)?;
            tx.put_keep_ttl(&self.values, session, [&this_use[..], &value].concat())?;
            Ok(Some(value))
        })?;
        let figures = &mut self.state().figures;
        *if value.is_some() { &mut figures.hits } else { &mut figures.misses } += 1;
        Ok(value)
    }

    fn evict(&self, state: &mut State) -> Result<()> {
        if state.used.within(self.limit) {
            return Ok(());
        }
        state.used = size(&self.lru)?; // outside the transaction: each use changes `lru`
        if state.used.within(self.limit) {
            return Ok(()); // enough has expired, or was counted twice
        }
        let goal = Size { entries: self.limit.entries * 9 / 10, bytes: self.limit.bytes * 9 / 10 };
        let (left, evicted) = self.db.update(|tx| {
            let (mut left, mut evicted) = (state.used, 0);
            while !left.within(goal) {
                let Some((last_use, row)) = tx.first(&self.lru)? else { break };
                tx.delete(&self.lru, &last_use)?;
                tx.delete(&self.values, &row[8..])?;
                left.entries = left.entries.saturating_sub(1);
                left.bytes = left.bytes.saturating_sub(number(&row[..8]));
                evicted += 1;
            }
            Ok((left, evicted))
        })?;
        state.used = left;
        state.figures.evicted += evicted;
        Ok(())
    }

    fn next_use(&self) -> [u8; 8] {
        let mut state = self.state();
        state.next_use += 1;
        (state.next_use - 1).to_be_bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the lock")
    }
}

fn size(lru: &impl Read) -> Result<Size> {
    lru.iter().try_fold(Size { entries: 0, bytes: 0 }, |size, row| {
        Ok(Size { entries: size.entries + 1, bytes: size.bytes + number(&row?.1[..8]) })
    })
}

fn lru_row(bytes: u64, session: &str) -> Vec<u8> {
    [&bytes.to_be_bytes()[..], session.as_bytes()].concat()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Gets sessions, a few of them often, and puts those that are absent.
fn serve(cache: &Cache, mut random: u64) -> Result<()> {
    for _ in 0..2_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let [pick, among] = [random >> 40, random >> 33 & 7];
        let session = format!("session {}", pick % if among < 6 { 100 } else { 5_000 });
        if cache.get(&session)?.is_none() {
            cache.put(&session, &[7; 150], Duration::from_secs(600))?;
        }
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("braiddb-session-cache-{}", std::process::id()));
    let limit = Size { entries: 500, bytes: 80_000 };
    let cache = Cache::open(&path, limit)?;

    // Time to live.
    cache.put("ann", b"page 1", Duration::from_millis(50))?;
    cache.put("bob", b"page 1", Duration::from_secs(600))?;
    thread::sleep(Duration::from_millis(100));
    assert_eq!(cache.get("ann")?, None);
    assert_eq!(cache.get("bob")?.as_deref(), Some(&b"page 1"[..]));
    assert_eq!(size(&cache.lru)?.entries, 1);

    // The least recently used goes first, by number and by size.
    for session in 0..499 {
        cache.put(&format!("old {session}"), b"", Duration::from_secs(600))?;
    }
    assert!(cache.get("old 0")?.is_some());
    cache.put("one too many", b"", Duration::from_secs(600))?;
    assert!(cache.get("old 0")?.is_some() && cache.get("bob")?.is_none() && cache.get("old 1")?.is_none());
    cache.put("large", &[0; 40_000], Duration::from_secs(600))?;
    cache.put("too large", &[0; 40_000], Duration::from_secs(600))?;
    assert!(cache.get("large")?.is_none() && cache.get("too large")?.is_some());

    // Four threads.
    let shared = &cache;
    thread::scope(|scope| {
        let threads: Vec<_> = (1..=4).map(|seed| scope.spawn(move || serve(shared, seed))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let (figures, used) = (cache.state().figures, size(&cache.lru)?);
    println!("{figures:?}: {} % hits", figures.hits * 100 / (figures.hits + figures.misses));
    println!("{} sessions of {} bytes", used.entries, used.bytes);
    assert!(used.entries <= limit.entries && used.bytes <= limit.bytes);
    assert_eq!(cache.values.len()?, used.entries);

    // Sessions survive a restart.
    cache.db.close()?;
    let cache = Cache::open(&path, limit)?;
    assert_eq!(size(&cache.lru)?.entries, used.entries);
    cache.db.close()?;
    std::fs::remove_dir_all(&path)?;
    Ok(())
}
