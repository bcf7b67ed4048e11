//! Transactions on registers whose order can be checked.
//!
//! Each transaction reads two registers and writes one. A register's value is the number of its
//! writes and the name of its last writer. So the order of all writes to a register is known, and
//! each journal has the versions that a transaction read. A history is serializable if these
//! relations, and the order within each process, have no cycle.

use braiddb::{
    Error, Tree,
    shared::{SharedDb, SharedTree},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::Write,
};

pub const REGISTERS: usize = 6;

/// Reads and the write of the transaction `n` of process `name`, and a journal's line for each try.
pub fn transact(
    db: &SharedDb,
    registers: &SharedTree,
    mut journal: &File,
    name: &str,
    n: u64,
    seen: &mut [u64; REGISTERS],
) -> braiddb::Result<()> {
    let seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(std::process::id()) << 7);
    let written = (seed >> 8) as usize % REGISTERS;
    let read = (written + 1 + (seed >> 24) as usize % (REGISTERS - 1)) % REGISTERS;
    db.update(|tx| {
        let tree = registers.in_transaction(tx)?;
        let version = |register: usize| {
            let value = tx.get(&tree, register_key(register))?;
            Ok::<_, Error>(value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap())))
        };
        let versions = [version(read)?, version(written)?];
        for (register, version) in [read, written].into_iter().zip(versions) {
            assert!(version >= seen[register], "register {register} went back from {} to {version}", seen[register]);
            seen[register] = version;
        }
        journal
            .write_all(format!("try register {n} {read} {} {written} {}\n", versions[0], versions[1]).as_bytes())
            .unwrap();
        let version = versions[1] + 1;
        let writer = format!("{name} {n}");
        tx.put(&tree, register_key(written), [&version.to_le_bytes()[..], writer.as_bytes()].concat())?;
        tx.put(&tree, write_key(written, version), &writer)?;
        tx.put(&tree, call_key(name, n), "")
    })
}

fn register_key(register: usize) -> String {
    format!("register {register}")
}

fn write_key(register: usize, version: u64) -> String {
    format!("write {register} {version:010}")
}

fn call_key(name: &str, n: u64) -> String {
    format!("call {name} {n:010}")
}

/// Returns the numbers of a process's transactions that were applied.
pub fn calls_of(registers: &Tree, name: &str) -> BTreeSet<u64> {
    let prefix = format!("call {name} ");
    let number = |row: braiddb::Result<(braiddb::Key, braiddb::Value)>| {
        std::str::from_utf8(&row.unwrap().0[prefix.len()..]).unwrap().parse().unwrap()
    };
    registers.prefix(&prefix).map(number).collect()
}

/// The last try of a transaction: only this one can have been applied.
#[derive(Clone, Copy, Debug)]
struct Try {
    read: (usize, u64),
    written: (usize, u64),
}

#[derive(Default)]
pub struct History {
    tries: BTreeMap<(String, u64), Try>,
}

impl History {
    pub fn add_journal(&mut self, name: &str, journal: &str) {
        for line in journal.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let Some(tried) = line.strip_prefix("try register ") else { continue };
            let numbers: Vec<u64> = tried.split(' ').map(|word| word.parse().unwrap()).collect();
            let [n, read, read_version, written, version] = numbers[..] else { panic!("{line}") };
            let tried = Try { read: (read as usize, read_version), written: (written as usize, version) };
            self.tries.insert((name.to_owned(), n), tried);
        }
    }

    /// Fails if a write is missing or there twice, or if there is no serial order. Returns the number
    /// of transactions.
    pub fn check(&self, registers: &Tree) -> usize {
        let mut transactions: Vec<(&(String, u64), Try)> = Vec::new();
        let mut writers: HashMap<(usize, u64), usize> = HashMap::new();
        for register in 0..REGISTERS {
            let mut last = 0;
            for row in registers.prefix(format!("write {register} ")) {
                let (_, writer) = row.unwrap();
                last += 1;
                let writer = std::str::from_utf8(&writer).unwrap().to_owned();
                let (name, n) = writer.split_once(' ').unwrap();
                let key = (name.to_owned(), n.parse().unwrap());
                let (call, tried) = self.tries.get_key_value(&key).unwrap_or_else(|| panic!("no journal has {writer}"));
                assert_eq!(tried.written, (register, last - 1), "the write {last} of register {register}, by {writer}");
                let before = writers.insert((register, last), transactions.len());
                assert!(before.is_none());
                transactions.push((call, *tried));
            }
            let value = registers.get(register_key(register)).unwrap();
            let version = value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()));
            assert_eq!(version, last, "the writes of register {register}");
        }
        assert!(is_acyclic(&edges(&transactions, &writers)), "the transactions have no serial order");
        transactions.len()
    }
}

/// Lists for each transaction those that a serial order has after it.
fn edges(transactions: &[(&(String, u64), Try)], writers: &HashMap<(usize, u64), usize>) -> Vec<Vec<usize>> {
    let mut after = vec![Vec::new(); transactions.len()];
    for (at, (_, Try { read, written })) in transactions.iter().enumerate() {
        for (register, version) in [*read, *written] {
            if version > 0 {
                after[writers[&(register, version)]].push(at);
            }
        }
        // The next write of the register that it only read.
        if let Some(next) = writers.get(&(read.0, read.1 + 1)) {
            after[at].push(*next);
        }
    }
    let mut in_order: Vec<usize> = (0..transactions.len()).collect();
    in_order.sort_unstable_by_key(|at| transactions[*at].0);
    for pair in in_order.windows(2) {
        if transactions[pair[0]].0.0 == transactions[pair[1]].0.0 {
            after[pair[0]].push(pair[1]);
        }
    }
    after
}

fn is_acyclic(after: &[Vec<usize>]) -> bool {
    let mut before = vec![0_u32; after.len()];
    after.iter().flatten().for_each(|at| before[*at] += 1);
    let mut free: Vec<usize> = (0..after.len()).filter(|at| before[*at] == 0).collect();
    let mut done = 0;
    while let Some(at) = free.pop() {
        done += 1;
        for next in &after[at] {
            before[*next] -= 1;
            if before[*next] == 0 {
                free.push(*next);
            }
        }
    }
    done == after.len()
}

/// Two transactions that each missed the write of the other: write skew.
#[test]
fn write_skew_has_no_serial_order() {
    let names = [("p".to_owned(), 1), ("q".to_owned(), 1), ("q".to_owned(), 2)];
    let skew = [(&names[0], Try { read: (0, 0), written: (1, 0) }), (&names[1], Try { read: (1, 0), written: (0, 0) })];
    let writers = HashMap::from([((1, 1), 0), ((0, 1), 1)]);
    assert!(!is_acyclic(&edges(&skew, &writers)));
    let serial = [skew[0], (&names[1], Try { read: (1, 1), written: (0, 0) })];
    assert!(is_acyclic(&edges(&serial, &writers)));
    // The second transaction of a process misses the write of its first.
    let stale =
        [(&names[1], Try { read: (2, 0), written: (1, 0) }), (&names[2], Try { read: (1, 0), written: (0, 0) })];
    assert!(!is_acyclic(&edges(&stale, &writers)));
}
