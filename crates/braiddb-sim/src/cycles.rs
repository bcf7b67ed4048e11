//! Checks a history for serializability from its values alone.
//!
//! Some keys hold lists, to which transactions append unique numbers. A list shows its writers in
//! order; its reader came after the last and before the next one. This orders transactions by ww
//! (append after append), wr (read of an append), rw (append after a read) and time. A cycle of
//! these edges means that no serial order exists. The method is Elle's (Kingsbury and Alvaro, VLDB
//! '20).
//!
//! Transactions that did not commit count as readers.

use crate::{
    history::{Coverage, Outcome, Record, Step, Taken, Writes, Wrong},
    model::{Bytes, Change, Contents, TreeNumber, short},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
};

/// A list key with its tree.
pub type ListKey = (TreeNumber, Bytes);

#[derive(Clone, Debug, Default)]
struct Lists {
    /// Lists of other transactions, as seen.
    reads: Vec<(ListKey, Vec<u64>)>,
    /// Lists it left; empty unless it committed.
    writes: BTreeMap<ListKey, Vec<u64>>,
    began: u64,
    ended: u64,
}

/// Decodes the list of a value.
pub fn decode(value: &[u8]) -> Vec<u64> {
    value.as_chunks().0.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect()
}

/// Encodes a list as a value.
pub fn encode(list: &[u64]) -> Bytes {
    list.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Checks a history by its lists; `finally` is the database at the end. Returns the number of
/// transactions that share lists.
pub fn check_lists(
    records: &[Record],
    finally: &Contents,
    is_list: impl Fn(TreeNumber, &[u8]) -> bool,
) -> Result<u64, Wrong> {
    let mut history = History::of(records, &is_list);
    let last = finally.iter().filter(|((tree, key), _)| is_list(*tree, key));
    let reads = last.map(|(key, value)| (key.clone(), decode(value))).collect();
    history.lists.push(Lists { reads, writes: BTreeMap::new(), began: u64::MAX, ended: u64::MAX });
    history.check_elements()?;
    let orders = history.orders()?;
    history.check_kept(&orders)?;
    let graph = history.graph(&orders);
    match graph.cycle() {
        Some(cycle) => Err(history.wrong_cycle(&graph, &cycle)),
        None => Ok(graph.bound()),
    }
}

struct History {
    lists: Vec<Lists>,
    /// The transaction and key of each number.
    owners: HashMap<u64, (usize, ListKey)>,
}

impl History {
    fn of(records: &[Record], is_list: &impl Fn(TreeNumber, &[u8]) -> bool) -> History {
        let mut owners = HashMap::new();
        let mut keys = BTreeSet::new();
        for (index, record) in records.iter().enumerate() {
            for step in &record.steps {
                if let Step::Write(Change::Put(tree, key, value)) = step
                    && is_list(*tree, key)
                    && let Some(number) = decode(value).last()
                {
                    owners.insert(*number, (index, (*tree, key.clone())));
                    keys.insert((*tree, key.clone()));
                }
            }
        }
        let lists = records.iter().map(|record| lists_of(record, &keys, is_list)).collect();
        History { lists, owners }
    }

    /// A committed transaction left each number read, and the read shows all that it left.
    fn check_elements(&self) -> Result<(), Wrong> {
        for (reader, lists) in self.lists.iter().enumerate() {
            for (key, list) in lists.reads.iter().map(|(key, list)| (key, list)).chain(&lists.writes) {
                self.check_list(reader, key, list)?;
            }
        }
        Ok(())
    }

    fn check_list(&self, reader: usize, key: &ListKey, list: &[u64]) -> Result<(), Wrong> {
        let mut seen = BTreeSet::new();
        for number in list {
            let whose = self.owners.get(number).filter(|(_, of)| of == key);
            let Some((writer, _)) = whose else {
                return Err(self.wrong(format!("{} holds {number}, which no transaction wrote", name(key)), [reader]));
            };
            let involved = [*writer, reader];
            if !seen.insert(number) {
                return Err(self.wrong(format!("{} holds {number} twice", name(key)), involved));
            }
            let Some(left) = self.lists[*writer].writes.get(key).filter(|left| left.contains(number)) else {
                let text = format!("aborted read: {number} in {} was not committed, or rolled back", name(key));
                return Err(self.wrong(text, involved));
            };
            let is_own = |n: &&u64| self.owners.get(*n).is_some_and(|(of, _)| of == writer);
            if left.iter().filter(is_own).any(|own| !list.contains(own)) {
                return Err(
                    self.wrong(format!("intermediate read: only a part of the writes to {}", name(key)), involved)
                );
            }
        }
        Ok(())
    }

    /// The longest list of each key; all read lists must be prefixes of it.
    fn orders(&self) -> Result<BTreeMap<&ListKey, &[u64]>, Wrong> {
        let mut orders: BTreeMap<&ListKey, (&[u64], usize)> = BTreeMap::new();
        for (index, key, list) in self.all() {
            let (longest, by) = orders.entry(key).or_insert((list, index));
            let (shorter, longer) = if list.len() < longest.len() { (list, *longest) } else { (*longest, list) };
            if !longer.starts_with(shorter) {
                let text = format!("{} was seen as {longest:?} and as {list:?}: an update was lost", name(key));
                return Err(self.wrong(text, [*by, index]));
            }
            if list.len() > longest.len() {
                (*longest, *by) = (list, index);
            }
        }
        Ok(orders.into_iter().map(|(key, (list, _))| (key, list)).collect())
    }

    fn all(&self) -> impl Iterator<Item = (usize, &ListKey, &[u64])> {
        self.lists.iter().enumerate().flat_map(|(index, lists)| {
            let reads = lists.reads.iter().map(|(key, list)| (key, list));
            reads.chain(&lists.writes).map(move |(key, list)| (index, key, list.as_slice()))
        })
    }

    fn check_kept(&self, orders: &BTreeMap<&ListKey, &[u64]>) -> Result<(), Wrong> {
        let Some(last) = self.lists.last() else { return Ok(()) };
        let last: BTreeMap<&ListKey, &[u64]> = last.reads.iter().map(|(key, list)| (key, list.as_slice())).collect();
        for (key, list) in orders {
            let kept = last.get(key).copied().unwrap_or_default();
            if kept.len() < list.len() {
                let lost = list[kept.len()];
                let involved = self.owners.get(&lost).map(|(owner, _)| *owner);
                let text = format!("{lost} in {} was committed, but is missing at the end", name(key));
                return Err(self.wrong(text, involved.into_iter().collect::<Vec<_>>()));
            }
        }
        Ok(())
    }

    fn graph<'a>(&'a self, orders: &BTreeMap<&'a ListKey, &'a [u64]>) -> Graph<'a> {
        let mut graph = Graph { edges: vec![Vec::new(); self.lists.len()], transactions: self.lists.len() };
        let owner = |number: &u64| self.owners.get(number).map_or(usize::MAX, |(index, _)| *index);
        for (key, list) in orders {
            for pair in list.windows(2) {
                graph.add(owner(&pair[0]), owner(&pair[1]), Edge::Ww(key));
            }
        }
        for (reader, lists) in self.lists.iter().enumerate() {
            for (key, list) in &lists.reads {
                if let Some(number) = list.last() {
                    graph.add(owner(number), reader, Edge::Wr(key));
                }
                if let Some(next) = orders.get(key).and_then(|order| order.get(list.len())) {
                    graph.add(reader, owner(next), Edge::Rw(key));
                }
            }
        }
        graph.add_times(self.lists.iter().map(|lists| (lists.began, lists.ended)).collect());
        graph
    }

    fn wrong(&self, text: String, involved: impl Into<Vec<usize>>) -> Wrong {
        // The reader of the final contents has no record.
        let involved: Vec<usize> = involved.into().into_iter().filter(|index| index + 1 < self.lists.len()).collect();
        Wrong::new(text, involved)
    }

    fn wrong_cycle(&self, graph: &Graph, cycle: &[(usize, Edge)]) -> Wrong {
        let count = |of: fn(&Edge) -> bool| cycle.iter().filter(|(_, edge)| of(edge)).count();
        let reads = count(|edge| matches!(edge, Edge::Rw(_)));
        let sort = match (reads, count(|edge| matches!(edge, Edge::Wr(_)))) {
            (0, 0) => "G0",
            (0, _) => "G1c",
            (1, _) => "G-single",
            _ => "G2",
        };
        let is_timed = count(|edge| matches!(edge, Edge::Time)) > 0;
        let mut text = format!("a cycle ({sort}{}):", if is_timed { ", in real time" } else { "" });
        let transactions: Vec<usize> =
            cycle.iter().map(|(node, _)| *node).filter(|node| *node < graph.transactions).collect();
        let place = |node: &usize| transactions.iter().position(|of| of == node).map(|at| format!(" [{}]", at + 1));
        for (node, edge) in cycle {
            text.push_str(&format!("{} -{edge}->", place(node).unwrap_or_default()));
        }
        text.push_str(" [1]");
        self.wrong(text, transactions)
    }
}

fn lists_of(record: &Record, keys: &BTreeSet<ListKey>, is_list: &impl Fn(TreeNumber, &[u8]) -> bool) -> Lists {
    let mut lists = Lists { began: record.began, ended: record.ended, ..Lists::default() };
    let mut own = Writes::default();
    for step in &record.steps {
        let is_foreign = |key: &ListKey| is_list(key.0, &key.1) && !is_written(&own, key);
        match step {
            Step::Get(tree, key, found) => {
                let key = (*tree, key.clone());
                if is_foreign(&key) {
                    lists.reads.push((key, found.as_deref().map(decode).unwrap_or_default()));
                }
            }
            Step::Contains(tree, key, false) if is_foreign(&(*tree, key.clone())) => {
                lists.reads.push(((*tree, key.clone()), Vec::new()));
            }
            Step::Range(tree, _, taken) => {
                let shown: BTreeMap<ListKey, Vec<u64>> = rows_of(*tree, taken);
                let absent = covered(step, keys).filter(|key| is_foreign(key) && !shown.contains_key(*key));
                lists.reads.extend(absent.map(|key| (key.clone(), Vec::new())));
                lists.reads.extend(shown.into_iter().filter(|(key, _)| is_foreign(key)));
            }
            _ => {}
        }
        own.follow(step);
    }
    if matches!(record.outcome, Outcome::Committed(_)) {
        for change in own.changes {
            match change {
                Change::Put(tree, key, value) if is_list(tree, &key) => {
                    lists.writes.insert((tree, key), decode(&value));
                }
                _ => {}
            }
        }
    }
    lists
}

fn is_written(own: &Writes, key: &ListKey) -> bool {
    let mut itself = Coverage::default();
    itself.keys.insert(key.clone());
    own.changes.iter().any(|change| itself.meets(change))
}

fn rows_of(tree: TreeNumber, taken: &[Taken]) -> BTreeMap<ListKey, Vec<u64>> {
    let rows = taken.iter().filter_map(|taken| taken.row.as_ref());
    rows.map(|(key, value)| ((tree, key.clone()), decode(value))).collect()
}

fn covered<'a>(step: &Step, keys: &'a BTreeSet<ListKey>) -> impl Iterator<Item = &'a ListKey> {
    let mut coverage = Coverage::default();
    coverage.read(&Writes::default(), step);
    keys.iter().filter(move |(tree, key)| coverage.meets(&Change::Delete(*tree, key.clone())))
}

fn name((tree, key): &ListKey) -> String {
    format!("{tree}/{}", short(key))
}

#[derive(Clone, Copy, Debug)]
enum Edge<'a> {
    Ww(&'a ListKey),
    Wr(&'a ListKey),
    Rw(&'a ListKey),
    Time,
}

impl fmt::Display for Edge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edge::Ww(key) => write!(f, "ww {}", name(key)),
            Edge::Wr(key) => write!(f, "wr {}", name(key)),
            Edge::Rw(key) => write!(f, "rw {}", name(key)),
            Edge::Time => write!(f, "time"),
        }
    }
}

/// Transactions first, then moments.
struct Graph<'a> {
    edges: Vec<Vec<(usize, Edge<'a>)>>,
    transactions: usize,
}

impl<'a> Graph<'a> {
    fn add(&mut self, from: usize, to: usize, edge: Edge<'a>) {
        if from != to && from < self.transactions && to < self.transactions {
            self.edges[from].push((to, edge));
        }
    }

    /// An ended transaction precedes each that began later. Ends form a chain, so the number of
    /// edges is linear.
    fn add_times(&mut self, times: Vec<(u64, u64)>) {
        let mut ends: Vec<(u64, usize)> = times
            .iter()
            .enumerate()
            .map(|(index, (_, ended))| (*ended, index))
            .filter(|(e, _)| *e < u64::MAX)
            .collect();
        ends.sort_unstable();
        let first = self.edges.len();
        for (place, (_, transaction)) in ends.iter().enumerate() {
            self.edges.push(Vec::new());
            self.edges[*transaction].push((first + place, Edge::Time));
            if place > 0 {
                self.edges[first + place - 1].push((first + place, Edge::Time));
            }
        }
        for (transaction, (began, _)) in times.iter().enumerate() {
            let before = ends.partition_point(|(ended, _)| ended < began);
            if before > 0 {
                self.edges[first + before - 1].push((transaction, Edge::Time));
            }
        }
    }

    fn bound(&self) -> u64 {
        let mut bound = BTreeSet::new();
        for (from, edges) in self.edges.iter().enumerate() {
            for (to, _) in edges.iter().filter(|(_, edge)| !matches!(edge, Edge::Time)) {
                bound.extend([from, *to]);
            }
        }
        bound.len() as u64
    }

    /// Returns a shortest cycle through some node: each node with the edge that leaves it, a
    /// transaction first.
    fn cycle(&self) -> Option<Vec<(usize, Edge<'a>)>> {
        let rest = self.knotted();
        let begins = (0..self.transactions).filter(|node| rest[*node]);
        begins.filter_map(|begin| self.cycle_through(begin, &rest)).min_by_key(Vec::len)
    }

    /// Marks the nodes left after repeated removal of nodes without incoming or outgoing edges
    /// (Kahn).
    fn knotted(&self) -> Vec<bool> {
        let mut backwards = vec![Vec::new(); self.edges.len()];
        for (from, edges) in self.edges.iter().enumerate() {
            edges.iter().for_each(|(to, _)| backwards[*to].push(from));
        }
        let forwards: Vec<Vec<usize>> = self.edges.iter().map(|e| e.iter().map(|(to, _)| *to).collect()).collect();
        let mut rest = vec![true; self.edges.len()];
        for (out, into) in [(&forwards, &backwards), (&backwards, &forwards)] {
            let mut ways: Vec<usize> =
                into.iter().map(|from| from.iter().filter(|from| rest[**from]).count()).collect();
            let mut free: Vec<usize> = (0..ways.len()).filter(|node| rest[*node] && ways[*node] == 0).collect();
            while let Some(node) = free.pop() {
                rest[node] = false;
                for to in out[node].iter().filter(|to| rest[**to]) {
                    ways[*to] -= 1;
                    if ways[*to] == 0 {
                        free.push(*to);
                    }
                }
            }
        }
        rest
    }

    fn cycle_through(&self, begin: usize, among: &[bool]) -> Option<Vec<(usize, Edge<'a>)>> {
        let mut from: HashMap<usize, (usize, Edge)> = HashMap::new();
        let mut next = VecDeque::from([begin]);
        while let Some(node) = next.pop_front() {
            for (to, edge) in self.edges[node].iter().filter(|(to, _)| among[*to]) {
                if from.contains_key(to) {
                    continue;
                }
                from.insert(*to, (node, *edge));
                if *to == begin {
                    let mut cycle = Vec::new();
                    let mut at = begin;
                    while cycle.is_empty() || at != begin {
                        let (before, edge) = from[&at];
                        cycle.push((before, edge));
                        at = before;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                next.push_back(*to);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
