//! Eight processes share a database, and the owner is killed again and again, and now and
//! then another process.
//!
//! Each process writes a journal: a line before each call and a line after it. In the end the
//! database must have each acknowledged call exactly once, and each other call at most once. The
//! transactions on registers must have a serial order (`history.rs`).
//! `BRAIDDB_SHARED_SECONDS=600` runs it for ten minutes.

use super::history::{self, History, REGISTERS};
use braiddb::{
    Builder, Durability, Error,
    shared::{SharedDb, SharedTree},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Environment of a child: the directory, and its name.
const PLACE: &str = "BRAIDDB_SHARED_DIR";
const NAME: &str = "BRAIDDB_SHARED_NAME";

/// Environment of the test: how long it runs.
const SECONDS: &str = "BRAIDDB_SHARED_SECONDS";

const PROCESSES: usize = 8;
const ACCOUNTS: u64 = 10;
const START_BALANCE: u64 = 1000;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Time beyond the timeout for a thread that waits for a processor.
const GRACE: Duration = Duration::from_secs(5);

/// Threads of a child whose writes share a request.
const THREADS: u64 = 3;

fn open(place: &Path) -> braiddb::Result<SharedDb> {
    let options = Builder::new().memory(16 << 20).durability(Durability::Buffered).background_threads(1);
    options.shared_timeout(TIMEOUT).open_shared(place.join("db"))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The calls of a child: `put`, `add`, `transfer`, `solo`, `stream`, `register`
/// or `group`, each with a number.
struct Journal {
    file: File,
    slowest: Duration,
    unknown: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    Refused,
    Unknown,
}

fn outcome(of: braiddb::Result<()>, call: &str) -> Outcome {
    match of {
        Ok(()) => Outcome::Done,
        Err(e) if e.is_outcome_unknown() => Outcome::Unknown,
        // Nothing was written.
        Err(e) if e.is_conflict() || matches!(e, Error::NoOwner { .. }) => Outcome::Refused,
        Err(e) => panic!("{call}: {e}"),
    }
}

impl Journal {
    fn line(&mut self, line: &str) {
        self.file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn end(&mut self, outcome: Outcome, call: &str, took: Duration) {
        assert!(took < TIMEOUT + GRACE, "{call} took {took:?}");
        self.slowest = self.slowest.max(took);
        self.unknown += u32::from(outcome == Outcome::Unknown);
        let word = match outcome {
            Outcome::Done => "done",
            Outcome::Refused => "refused",
            Outcome::Unknown => "unknown",
        };
        self.line(&format!("{word} {call}"));
    }

    /// Runs a call between its two lines.
    fn run(&mut self, kind: &str, n: u64, call: impl FnOnce() -> braiddb::Result<()>) -> Outcome {
        let name = format!("{kind} {n}");
        self.line(&format!("begin {name}"));
        let began = Instant::now();
        let outcome = outcome(call(), &name);
        self.end(outcome, &name, began.elapsed());
        outcome
    }

    /// Runs puts of several threads, which share requests.
    fn run_group(&mut self, lists: &SharedTree, name: &str, n: u64) {
        let calls: Vec<_> = (0..THREADS).map(|thread| THREADS * n + thread).collect();
        calls.iter().for_each(|call| self.line(&format!("begin group {call}")));
        let began = Instant::now();
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let put = |call: u64| {
                let done = lists.put(group_key(name, call), call.to_le_bytes()).map(drop);
                outcome(done, &format!("group {call}"))
            };
            let puts: Vec<_> = calls.iter().map(|call| scope.spawn(move || put(*call))).collect();
            puts.into_iter().map(|put| put.join().unwrap()).collect()
        });
        for (call, outcome) in calls.iter().zip(outcomes) {
            self.end(outcome, &format!("group {call}"), began.elapsed());
            let read = lists.get(group_key(name, *call)).unwrap();
            check_read("group", *call, outcome, read.map(|value| number(&value)));
        }
    }
}

fn put_key(name: &str, n: u64) -> String {
    format!("put {name}/{n:08}")
}

fn group_key(name: &str, n: u64) -> String {
    format!("group {name}/{n:08}")
}

/// Checks the read of a key that only one call puts, after that call.
fn check_read(kind: &str, n: u64, outcome: Outcome, read: Option<u64>) {
    match outcome {
        Outcome::Done => assert_eq!(read, Some(n), "the read after the acknowledged {kind} {n}"),
        Outcome::Refused => assert_eq!(read, None, "the read after the refused {kind} {n}"),
        Outcome::Unknown => assert!(read.is_none_or(|value| value == n), "the read after {kind} {n}"),
    }
}

/// The program of a child.
#[test]
fn child() {
    let (Ok(place), Ok(name)) = (std::env::var(PLACE), std::env::var(NAME)) else { return };
    let place = PathBuf::from(place);
    let db = open(&place).unwrap();
    let [lists, sums, bank, registers] = ["lists", "sums", "bank", "registers"].map(|tree| db.tree(tree).unwrap());
    let file = File::options().create_new(true).append(true).open(place.join(format!("journal-{name}"))).unwrap();
    let tries = file.try_clone().unwrap();
    let mut journal = Journal { file, slowest: Duration::ZERO, unknown: 0 };
    let (mut n, mut added) = (0, 0);
    let mut seen = [0; REGISTERS];
    while !place.join("stop").exists() {
        n += 1;
        let durability = if n % 16 == 0 { Durability::Sync } else { Durability::Buffered };
        let key = put_key(&name, n);
        let outcome = journal.run("put", n, || lists.put_with(&key, n.to_le_bytes(), durability).map(drop));
        check_read("put", n, outcome, lists.get(&key).unwrap().map(|value| number(&value)));
        if journal.run("add", n, || sums.merge(&name, "add", 1_u64.to_le_bytes()).map(drop)) == Outcome::Done {
            added += 1;
        }
        if journal.unknown == 0 {
            let sum = sums.get(&name).unwrap().map_or(0, |value| number(&value));
            assert_eq!(sum, added, "the acknowledged additions after add {n}");
        }
        journal.run("transfer", n, || transfer(&db, &bank, &name, n, durability));
        if n % 4 == 0 {
            journal.run("solo", n, || count_alone(&db, &bank, &name));
        }
        if n % 16 == 8 {
            let key = format!("stream {name}");
            let written = journal.run("stream", n, || put_long(&db, &lists, &key, n));
            if written == Outcome::Done {
                assert_eq!(lists.get(&key).unwrap().unwrap(), long(n), "the stream {n} after its acknowledgement");
            }
        }
        journal.run("register", n, || history::transact(&db, &registers, &tries, &name, n, &mut seen));
        if n % 8 == 0 {
            check_bank(&db, &bank);
            journal.run_group(&lists, &name, n);
        }
    }
    assert_eq!(journal.unknown, 0, "an owner was killed, but another one replied in time");
    fs::write(place.join(format!("slowest-{name}")), journal.slowest.as_micros().to_string()).unwrap();
    db.close().unwrap();
}

/// Moves an amount between two accounts, and counts the transfer in the same transaction.
fn transfer(db: &SharedDb, bank: &SharedTree, name: &str, n: u64, durability: Durability) -> braiddb::Result<()> {
    let seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id());
    let (from, to, amount) = (seed % ACCOUNTS, (seed >> 20) % ACCOUNTS, (seed >> 40) % 10);
    db.update_with(durability, |tx| {
        let bank = bank.in_transaction(tx)?;
        let balance = |account: u64| {
            let value = tx.get(&bank, account.to_be_bytes())?;
            Ok::<_, Error>(value.map_or(START_BALANCE, |value| number(&value)))
        };
        let moved = amount.min(balance(from)?);
        tx.put(&bank, from.to_be_bytes(), (balance(from)? - moved).to_le_bytes())?;
        tx.put(&bank, to.to_be_bytes(), (balance(to)? + moved).to_le_bytes())?;
        let counter = format!("transfers of {name}");
        let count = tx.get(&bank, &counter)?.map_or(0, |value| number(&value));
        tx.put(&bank, &counter, (count + 1).to_le_bytes())
    })
}

/// A value of several parts.
fn long(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(80_000)
}

/// Puts a long value as a stream, alone or in a transaction.
fn put_long(db: &SharedDb, lists: &SharedTree, key: &str, n: u64) -> braiddb::Result<()> {
    if n % 32 == 8 {
        return lists.put_stream(key, &*long(n)).map(drop);
    }
    let tx = db.begin()?;
    tx.put_stream(lists, key, &*long(n))?;
    tx.commit().map(drop)
}

/// Counts a call in an exclusive transaction, which ends with its owner.
fn count_alone(db: &SharedDb, bank: &SharedTree, name: &str) -> braiddb::Result<()> {
    let tx = db.begin_exclusive()?;
    let bank = bank.in_transaction(&tx)?;
    for counter in [format!("solos of {name}"), "solos".to_owned()] {
        let count = tx.get(&bank, &counter)?.map_or(0, |value| number(&value));
        tx.put(&bank, &counter, (count + 1).to_le_bytes())?;
    }
    tx.commit().map(drop)
}

fn check_bank(db: &SharedDb, bank: &SharedTree) {
    let Ok(snapshot) = db.snapshot() else { return };
    let bank = bank.in_snapshot(&snapshot).unwrap();
    let balance = |account: u64| bank.get(account.to_be_bytes()).unwrap().map_or(START_BALANCE, |value| number(&value));
    assert_eq!((0..ACCOUNTS).map(balance).sum::<u64>(), ACCOUNTS * START_BALANCE, "the sum of all accounts");
}

struct Family {
    place: PathBuf,
    children: Vec<Child>,
    born: u32,
}

impl Family {
    fn spawn(&mut self) {
        self.born += 1;
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "processes::child", "--nocapture"])
            .env(PLACE, &self.place)
            .env(NAME, format!("p{:04}", self.born))
            .stdout(Stdio::null());
        self.children.push(start(&mut child));
    }

    /// Kills a member, perhaps within an exclusive transaction.
    fn kill_member(&mut self) {
        let owner = self.owner();
        let Some(at) = self.children.iter().position(|child| Some(child.id()) != owner) else { return };
        let mut child = self.children.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
        self.spawn();
    }

    fn owner(&self) -> Option<u32> {
        let lock = fs::read_to_string(self.place.join("db/LOCK")).unwrap_or_default();
        lock.strip_prefix("process ").and_then(|id| id.trim().parse().ok())
    }

    /// Kills the owner, which the lock file names. Returns false if there is none now.
    fn kill_owner(&mut self) -> bool {
        let Some(owner) = self.owner() else { return false };
        let Some(at) = self.children.iter().position(|child| child.id() == owner) else { return false };
        let mut child = self.children.swap_remove(at);
        let is_alive = child.try_wait().unwrap();
        assert!(is_alive.is_none(), "child {owner} ended by itself: {is_alive:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        true
    }
}

/// Starts a process. Wine fails to start one of a few hundred, with this error.
fn start(command: &mut Command) -> Child {
    const ERROR_INTERNAL_ERROR: i32 = 1359;
    const TRIES_MAX: u32 = 3;
    let mut tries = 1;
    loop {
        match command.spawn() {
            Err(e) if cfg!(windows) && e.raw_os_error() == Some(ERROR_INTERNAL_ERROR) && tries < TRIES_MAX => {
                tries += 1
            }
            started => return started.unwrap(),
        }
    }
}

impl Drop for Family {
    /// A failed test must not leave processes behind.
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The calls of a journal by kind: acknowledged, and of unknown outcome.
#[derive(Default)]
struct Calls {
    done: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
}

fn calls(journal: &str) -> BTreeMap<&str, Calls> {
    let mut calls: BTreeMap<&str, Calls> = BTreeMap::new();
    for line in journal.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let mut words = line.split(' ');
        let (word, kind) = (words.next().unwrap(), words.next().unwrap());
        let n = words.next().unwrap().parse().unwrap();
        let of_kind = calls.entry(kind).or_default();
        match word {
            "begin" => _ = of_kind.unknown.insert(n),
            "done" => _ = (of_kind.unknown.remove(&n), of_kind.done.insert(n)),
            "refused" => _ = of_kind.unknown.remove(&n),
            _ => {}
        }
    }
    calls
}

/// Checks that the calls of one process and kind that `found` lists are all acknowledged ones, and
/// no refused one.
fn check_calls(name: &str, kind: &str, calls: &Calls, found: &BTreeSet<u64>) {
    let lost: Vec<_> = calls.done.difference(found).collect();
    assert!(lost.is_empty(), "{name} lost {kind} {lost:?}");
    let refused: Vec<_> = found.iter().filter(|n| !calls.done.contains(n) && !calls.unknown.contains(n)).collect();
    assert!(refused.is_empty(), "{name}: {kind} {refused:?} are there, but were refused or never called");
}

/// Checks that a key which one process overwrites has its last acknowledged value, or that of a later
/// call of unknown outcome.
fn check_last(name: &str, calls: &Calls, found: Option<&[u8]>) {
    let n = found.map(|value| number(&value[..8]));
    assert!(found.is_none_or(|value| value == long(number(&value[..8]))), "{name}: a stream has parts of several");
    assert!(n >= calls.done.last().copied(), "{name} lost the stream after {n:?}");
    let is_called = n.is_none_or(|n| calls.done.contains(&n) || calls.unknown.contains(&n));
    assert!(is_called, "{name}: the stream {n:?} was refused or never called");
}

/// Kills the owner every fraction of a second. Returns the number of kills.
fn kill_owners(family: &mut Family, seconds: u64) -> u32 {
    let began = Instant::now();
    let mut kills = 0_u32;
    while began.elapsed() < Duration::from_secs(seconds) {
        // Long runs leave the processes some seconds of work between two kills.
        let pause_ms =
            if seconds < 60 { 200 + 37 * u64::from(kills) % 300 } else { 500 + 137 * u64::from(kills) % 4000 };
        std::thread::sleep(Duration::from_millis(pause_ms));
        if family.kill_owner() {
            kills += 1;
            family.spawn();
            if kills.is_multiple_of(3) {
                family.kill_member();
            }
        }
    }
    kills
}

#[test]
fn acknowledged_calls_survive_kills_of_the_owner_exactly_once() {
    let seconds = std::env::var(SECONDS).map_or(6, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut family = Family { place: dir.path().to_owned(), children: Vec::new(), born: 0 };
    (0..PROCESSES).for_each(|_| family.spawn());
    let kills = kill_owners(&mut family, seconds);
    fs::write(dir.path().join("stop"), "").unwrap();
    for child in &mut family.children {
        let status = child.wait().unwrap();
        assert!(status.success(), "a child ended with {status}");
    }
    let (mut done, mut unknown, mut solos) = (0, 0, 0);
    let db = Builder::new().open(dir.path().join("db")).unwrap();
    let [lists, sums, bank, registers] = ["lists", "sums", "bank", "registers"].map(|tree| db.tree(tree).unwrap());
    let mut history = History::default();
    for born in 1..=family.born {
        let name = format!("p{born:04}");
        let Ok(journal) = fs::read_to_string(dir.path().join(format!("journal-{name}"))) else { continue };
        history.add_journal(&name, &journal);
        for (kind, calls) in calls(&journal) {
            let Calls { done: acknowledged, unknown: doubtful } = &calls;
            let range = acknowledged.len() as u64..=(acknowledged.len() + doubtful.len()) as u64;
            let listed =
                |prefix: String| -> BTreeSet<u64> { lists.prefix(prefix).map(|row| number(&row.unwrap().1)).collect() };
            match kind {
                "put" => check_calls(&name, kind, &calls, &listed(format!("put {name}/"))),
                "group" => check_calls(&name, kind, &calls, &listed(format!("group {name}/"))),
                "stream" => check_last(&name, &calls, lists.get(format!("stream {name}")).unwrap().as_deref()),
                "register" => check_calls(&name, kind, &calls, &history::calls_of(&registers, &name)),
                _ => {
                    let counted = match kind {
                        "add" => sums.get(&name).unwrap(),
                        "solo" => bank.get(format!("solos of {name}")).unwrap(),
                        _ => bank.get(format!("transfers of {name}")).unwrap(),
                    };
                    let counted = counted.map_or(0, |value| number(&value));
                    solos += if kind == "solo" { counted } else { 0 };
                    assert!(range.contains(&counted), "{name} {kind}: {counted} applied, {range:?} expected");
                }
            }
            done += acknowledged.len();
            unknown += doubtful.len();
        }
    }
    let balance = |account: u64| bank.get(account.to_be_bytes()).unwrap().map_or(START_BALANCE, |value| number(&value));
    assert_eq!((0..ACCOUNTS).map(balance).sum::<u64>(), ACCOUNTS * START_BALANCE);
    let counted = bank.get("solos").unwrap().map_or(0, |value| number(&value));
    assert_eq!(counted, solos, "each process counted its exclusive transactions, and all of them together");
    let transactions = history.check(&registers);
    let slowest = (1..=family.born).filter_map(|born| {
        let text = fs::read_to_string(dir.path().join(format!("slowest-p{born:04}"))).ok()?;
        text.parse::<u64>().ok().map(Duration::from_micros)
    });
    let slowest = slowest.max().unwrap_or_default();
    println!(
        "{kills} kills, {done} calls acknowledged, {unknown} cut off, {transactions} transactions in a serial order, \
         slowest call {slowest:?}"
    );
    assert!(kills >= 3 && done > 100 && transactions > 20, "{kills} kills, {done} calls: the test tested nothing");
    assert!(db.verify().unwrap().is_sound());
}
