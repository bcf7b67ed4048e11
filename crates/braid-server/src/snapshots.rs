//! Snapshots kept between the pages of scans: a table of limited size, whose entries expire.
//!
//! A kept snapshot pins old versions of records, so an unused one is dropped after
//! [`Limits::snapshot_life`](crate::Limits), and the one unused for longest when the table is full.
//!
//! The token of a page has the number of its scan and the place of its first row. A long place would
//! make a URL that no server takes, so it is kept here, and the token has its number:
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | number of the scan, big endian |
//! | 8 | 0: the place follows; 1: its number follows |
//! | 9.. | the place, or its number (u64, big endian) |

use crate::{json, opened::Opened, options::Limits};
use braiddb::{Snapshot, options::MAX_KEY_LEN};
use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Maximum bytes of a place in a token, which has two digits for each.
const PLACE_BYTES_MAX: usize = 1 << 10;
/// Bytes of places that a scan keeps: two of the longest ones, so that the present page can be asked
/// for again. Older places are dropped first.
const KEPT_BYTES_MAX: usize = 2 * LONGEST_PLACE_BYTES;
/// A pair with its longest key and value.
const LONGEST_PLACE_BYTES: usize = 4 + 2 * MAX_KEY_LEN;

/// The parameters of a scan: the same for all its pages.
#[derive(Clone, Debug)]
pub struct Scan {
    pub snapshot: Snapshot,
    pub tree: Opened,
    /// To refuse a token of another tree.
    pub tree_name: String,
    /// First key.
    pub start: Vec<u8>,
    /// Key after the last one.
    pub end: Option<Vec<u8>>,
    pub is_reverse: bool,
    pub has_values: bool,
    pub has_tuples: bool,
}

/// The table. Locked for a lookup or an insertion only.
pub struct Snapshots {
    table: Mutex<Table>,
    len_max: usize,
    life: Duration,
}

struct Table {
    /// Random at first, so that tokens of an earlier server are unknown.
    next_id: u64,
    /// Number of the next long place, of any scan: a scan that expired between its pages begins with no
    /// places, and no old token must find a new one.
    next_place: u64,
    kept: HashMap<u64, Kept>,
}

struct Kept {
    scan: Arc<Scan>,
    used: Instant,
    places: Places,
}

/// Long places with their numbers, the latest last.
#[derive(Default)]
struct Places {
    kept: VecDeque<(u64, Arc<[u8]>)>,
    bytes: usize,
}

impl Places {
    /// Keeps a place, and returns its number. A page that is asked for again gets the same one.
    fn keep(&mut self, place: &[u8], next_number: &mut u64) -> u64 {
        if let Some((number, _)) = self.kept.iter().find(|(_, kept)| **kept == *place) {
            return *number;
        }
        let number = *next_number;
        *next_number += 1;
        self.bytes += place.len();
        self.kept.push_back((number, place.into()));
        while self.bytes > KEPT_BYTES_MAX {
            let Some((_, dropped)) = self.kept.pop_front() else { break };
            self.bytes -= dropped.len();
        }
        number
    }

    fn find(&self, number: u64) -> Option<&[u8]> {
        self.kept.iter().find(|(kept, _)| *kept == number).map(|(_, place)| &**place)
    }
}

/// A page that was asked for.
pub enum Found {
    Page(Arc<Scan>, Vec<u8>),
    /// The scan is gone.
    NoScan,
    /// The scan is there, and has dropped the place of this page.
    NoPlace,
}

impl Snapshots {
    pub fn new(limits: &Limits) -> io::Result<Snapshots> {
        let next_id = getrandom::u64().map_err(io::Error::other)?;
        let table = Mutex::new(Table { next_id, next_place: 0, kept: HashMap::new() });
        Ok(Snapshots { table, len_max: limits.snapshots, life: limits.snapshot_life })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the snapshot of a scan, and returns the token of its next page; `known` is the number of the
    /// scan after its first page.
    pub fn keep(&self, scan: &Arc<Scan>, known: Option<u64>, place: &[u8]) -> String {
        let now = Instant::now();
        let mut locked = self.table();
        let table = &mut *locked;
        table.drop_expired(now, self.life);
        let id = known.unwrap_or_else(|| {
            table.next_id = table.next_id.wrapping_add(1);
            table.next_id
        });
        let kept = table.kept.entry(id).or_insert_with(|| Kept {
            scan: Arc::clone(scan),
            used: now,
            places: Places::default(),
        });
        kept.used = now;
        let token = match place.len() > PLACE_BYTES_MAX {
            true => token(id, IS_KEPT, &kept.places.keep(place, &mut table.next_place).to_be_bytes()),
            false => token(id, IS_INSIDE, place),
        };
        while table.kept.len() > self.len_max {
            let Some(oldest) = table.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id) else { break };
            table.kept.remove(&oldest);
        }
        token
    }

    /// Finds the scan of a token and the place of its page.
    pub fn find(&self, token: &Token) -> Found {
        let now = Instant::now();
        let mut table = self.table();
        table.drop_expired(now, self.life);
        let Some(kept) = table.kept.get_mut(&token.id) else { return Found::NoScan };
        kept.used = now;
        let place = match &token.place {
            Place::Inside(place) => Some(&**place),
            Place::Kept(number) => kept.places.find(*number),
        };
        place.map_or(Found::NoPlace, |place| Found::Page(Arc::clone(&kept.scan), place.to_vec()))
    }

    /// Drops the snapshot of a scan that has ended.
    pub fn end(&self, id: u64) {
        self.table().kept.remove(&id);
    }

    /// Drops expired snapshots. Called once a second, since no request may come for long.
    pub fn drop_expired(&self) {
        self.table().drop_expired(Instant::now(), self.life);
    }

    pub fn drop_all(&self) {
        self.table().kept.clear();
    }

    pub fn len(&self) -> usize {
        self.table().kept.len()
    }
}

impl Table {
    fn drop_expired(&mut self, now: Instant, life: Duration) {
        self.kept.retain(|_, kept| now.saturating_duration_since(kept.used) < life);
    }
}

const IS_INSIDE: u8 = 0;
const IS_KEPT: u8 = 1;

/// The parameter `next` of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The number of the scan.
    pub id: u64,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Inside(Vec<u8>),
    Kept(u64),
}

fn token(id: u64, kind: u8, rest: &[u8]) -> String {
    json::to_hex(&[&id.to_be_bytes()[..], &[kind], rest].concat())
}

impl Token {
    pub fn parse(text: &[u8]) -> Option<Token> {
        let bytes = json::from_hex(str::from_utf8(text).ok()?)?;
        let (id, place) = bytes.split_first_chunk()?;
        let place = match place.split_first()? {
            (&IS_INSIDE, place) => Place::Inside(place.to_vec()),
            (&IS_KEPT, number) => Place::Kept(u64::from_be_bytes(number.try_into().ok()?)),
            _ => return None,
        };
        Some(Token { id: u64::from_be_bytes(*id), place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braiddb::Db;

    fn scan(db: &Db) -> Arc<Scan> {
        Arc::new(Scan {
            snapshot: db.snapshot(),
            tree: Opened::Single(db.tree("t").unwrap()),
            tree_name: "t".to_owned(),
            start: Vec::new(),
            end: None,
            is_reverse: false,
            has_values: true,
            has_tuples: false,
        })
    }

    /// Keeps a scan at a short place, and returns its token.
    fn keep(snapshots: &Snapshots, scan: &Arc<Scan>, known: Option<&Token>) -> Token {
        Token::parse(snapshots.keep(scan, known.map(|token| token.id), b"k").as_bytes()).unwrap()
    }

    fn is_there(snapshots: &Snapshots, token: &Token) -> bool {
        matches!(snapshots.find(token), Found::Page(_, place) if place == b"k")
    }

    #[test]
    fn full_table_drops_the_snapshot_unused_for_longest() {
        let db = Db::in_memory().unwrap();
        let snapshots = Snapshots::new(&Limits { snapshots: 2, ..Limits::default() }).unwrap();
        let tokens = [keep(&snapshots, &scan(&db), None), keep(&snapshots, &scan(&db), None)];
        assert!(is_there(&snapshots, &tokens[0]));
        let third = keep(&snapshots, &scan(&db), None);
        assert!(!is_there(&snapshots, &tokens[1]));
        assert!(is_there(&snapshots, &tokens[0]) && is_there(&snapshots, &third));
        assert_eq!(keep(&snapshots, &scan(&db), Some(&third)), third);
        assert_eq!(snapshots.len(), 2);
        snapshots.end(third.id);
        assert!(matches!(snapshots.find(&third), Found::NoScan));
    }

    #[test]
    fn snapshot_expires_after_its_last_use() {
        let db = Db::in_memory().unwrap();
        let life = Duration::from_millis(1);
        let snapshots = Snapshots::new(&Limits { snapshot_life: life, ..Limits::default() }).unwrap();
        let before = db.stats().snapshots;
        let token = keep(&snapshots, &scan(&db), None);
        assert_eq!(db.stats().snapshots, before + 1);
        std::thread::sleep(2 * life);
        snapshots.drop_expired();
        assert_eq!(db.stats().snapshots, before);
        assert!(matches!(snapshots.find(&token), Found::NoScan));
    }

    /// Tokens stay short, and a scan keeps a limited number of long places.
    #[test]
    fn long_places_are_kept_up_to_a_limit() {
        let db = Db::in_memory().unwrap();
        let snapshots = Snapshots::new(&Limits::default()).unwrap();
        let scan = scan(&db);
        let place = |number: u8, len: usize| vec![number; len];
        let first = keep(&snapshots, &scan, None);
        let keep = |place: &[u8]| {
            let text = snapshots.keep(&scan, Some(first.id), place);
            assert!(text.len() < 3000, "a token of {} bytes", text.len());
            Token::parse(text.as_bytes()).unwrap()
        };
        for len in [PLACE_BYTES_MAX, 2 * PLACE_BYTES_MAX, LONGEST_PLACE_BYTES] {
            let tokens: Vec<Token> = (0..200).map(|number| keep(&place(number, len))).collect();
            assert_eq!(keep(&place(199, len)), tokens[199]);
            let found = |number: u8| match snapshots.find(&tokens[usize::from(number)]) {
                Found::Page(_, found) => {
                    assert_eq!(found, place(number, len));
                    true
                }
                Found::NoPlace => false,
                Found::NoScan => panic!("the scan is gone"),
            };
            assert!(found(199) && found(198));
            assert_eq!(found(0), len == PLACE_BYTES_MAX, "{len}");
            assert_eq!(found(197), len < LONGEST_PLACE_BYTES, "{len}");
        }
    }

    #[test]
    fn token_round_trips() {
        let parsed = |text: String| Token::parse(text.as_bytes()).unwrap();
        let inside = |id, place: &[u8]| Token { id, place: Place::Inside(place.to_vec()) };
        assert_eq!(parsed(token(7, IS_INSIDE, b"k\0")), inside(7, b"k\0"));
        assert_eq!(parsed(token(u64::MAX, IS_INSIDE, b"")), inside(u64::MAX, b""));
        assert_eq!(parsed(token(7, IS_KEPT, &[0, 0, 0, 0, 0, 0, 1, 2])), Token { id: 7, place: Place::Kept(258) });
        for wrong in [
            "",
            "00",
            "0000000000000000",
            "000000000000000002",
            "00000000000000000",
            "00000000000000000g",
            "0000000000000000010000000000000",
            "000000000000000001000000000000000000",
            "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}",
        ] {
            assert_eq!(Token::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
