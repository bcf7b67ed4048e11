//! A reference model of the public interface. [`Model`] keeps every version of every key by commit;
//! [`History`] judges the state after a crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::{Bound, RangeBounds},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Number of a tree, chosen by the test.
pub type TreeNumber = u32;

/// A key or a value.
pub type Bytes = Vec<u8>;

/// Bounds of a range of keys.
pub type Bounds = (Bound<Bytes>, Bound<Bytes>);

/// All rows of a database.
pub type Contents = BTreeMap<(TreeNumber, Bytes), Bytes>;

/// One write of a commit.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// Puts a value.
    Put(TreeNumber, Bytes, Bytes),
    /// Deletes a key.
    Delete(TreeNumber, Bytes),
    /// Deletes all keys of a range.
    DeleteRange(TreeNumber, Bounds),
    /// Appends to the value by a merge function; a missing value is empty.
    Append(TreeNumber, Bytes, Bytes),
    /// Appends to the latest visible value by a stream; a missing value is empty.
    Extend(TreeNumber, Bytes, Bytes),
    /// Puts a value with its expiry in microseconds since 1970. A [`History`] has no clock: there
    /// only values that last until [`FAR_US`] count.
    PutUntil(TreeNumber, Bytes, Bytes, u64),
}

/// Converts microseconds since 1970.
pub fn moment(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

/// Microseconds since 1970 that no test reaches and every system can represent.
pub const FAR_US: u64 = 1 << 59;

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Put(tree, key, value) => {
                write!(f, "put {tree}/{} ({} bytes, {})", short(key), value.len(), short(value))
            }
            Change::PutUntil(tree, key, value, expires_us) => {
                write!(f, "put {tree}/{} ({} bytes, {}) until {expires_us}", short(key), value.len(), short(value))
            }
            Change::Delete(tree, key) => write!(f, "delete {tree}/{}", short(key)),
            Change::Append(tree, key, more) | Change::Extend(tree, key, more) => {
                write!(f, "append {} bytes to {tree}/{}", more.len(), short(key))
            }
            Change::DeleteRange(tree, (from, to)) => {
                write!(f, "delete {tree}/{:?}..{:?}", from.as_ref().map(|k| short(k)), to.as_ref().map(|k| short(k)))
            }
        }
    }
}

/// Returns the first 16 bytes, escaped.
pub fn short(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(16)].escape_ascii().to_string();
    if bytes.len() > 16 { format!("\"{text}\"+{}", bytes.len() - 16) } else { format!("\"{text}\"") }
}

/// Returns true if no key can be within the bounds.
pub fn is_empty_range((from, to): &Bounds) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
    }
}

/// Returns the bounds of a prefix.
pub fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xff) {
        end.pop();
    }
    match end.last_mut() {
        Some(last) => {
            *last += 1;
            (Bound::Included(prefix.to_vec()), Bound::Excluded(end))
        }
        None => (Bound::Included(prefix.to_vec()), Bound::Unbounded),
    }
}

#[derive(Clone, Debug)]
struct Version {
    sequence: u64,
    /// `None` if deleted.
    value: Option<Bytes>,
    /// Expiry in microseconds since 1970, and the value after it.
    then: Option<(u64, Option<Bytes>)>,
}

impl Version {
    fn at(&self, time_us: u64) -> Option<&[u8]> {
        match &self.then {
            Some((expires_us, then)) if *expires_us <= time_us => then.as_deref(),
            _ => self.value.as_deref(),
        }
    }
}

/// A reader's snapshot and time; `None` is the model's time.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The snapshot.
    pub sequence: u64,
    /// Microseconds since 1970.
    pub time_us: Option<u64>,
}

impl From<u64> for At {
    fn from(sequence: u64) -> At {
        At { sequence, time_us: None }
    }
}

/// Every version of every key.
#[derive(Clone, Debug, Default)]
pub struct Model {
    versions: BTreeMap<(TreeNumber, Bytes), Vec<Version>>,
    last: u64,
    /// Microseconds since 1970.
    pub now_us: u64,
}

impl Model {
    /// Returns the model of an empty database.
    pub fn new() -> Model {
        Model::default()
    }

    /// Returns the last commit's sequence number, or 0.
    pub fn last_sequence(&self) -> u64 {
        self.last
    }

    /// Applies changes in order; the last one on a key wins.
    ///
    /// # Panics
    /// If `sequence` is not larger than all before.
    pub fn commit(&mut self, sequence: u64, changes: &[Change]) {
        assert!(sequence > self.last, "commit {sequence} comes after commit {}", self.last);
        self.last = sequence;
        for change in changes {
            match change {
                Change::Put(tree, key, value) => self.set((*tree, key.clone()), sequence, Some(value.clone()), None),
                Change::PutUntil(tree, key, value, expires_us) => {
                    self.set((*tree, key.clone()), sequence, Some(value.clone()), Some((*expires_us, None)));
                }
                Change::Delete(tree, key) => self.set((*tree, key.clone()), sequence, None, None),
                Change::Append(tree, key, more) => {
                    let key = (*tree, key.clone());
                    let longer = |value: Option<&Bytes>| Some([value.map_or(&[][..], |v| v), more].concat());
                    let last = self.versions.get(&key).and_then(|versions| versions.last());
                    let value = longer(last.and_then(|last| last.value.as_ref()));
                    let then = last.and_then(|last| last.then.as_ref());
                    let then = then.map(|(expires_us, then)| (*expires_us, longer(then.as_ref())));
                    self.set(key, sequence, value, then);
                }
                Change::Extend(tree, key, more) => {
                    let key = (*tree, key.clone());
                    let last = self.versions.get(&key).and_then(|versions| versions.last());
                    let value = last.and_then(|last| last.at(self.now_us)).unwrap_or_default();
                    let value = Some([value, more].concat());
                    // The value keeps the expiry of the value below.
                    let then = last.and_then(|last| last.then.as_ref()).map(|(expires_us, _)| (*expires_us, None));
                    let then = then.filter(|(expires_us, _)| *expires_us > self.now_us);
                    self.set(key, sequence, value, then);
                }
                Change::DeleteRange(tree, bounds) => {
                    for (key, _) in self.range(*tree, bounds, sequence) {
                        self.set((*tree, key), sequence, None, None);
                    }
                }
            }
        }
    }

    /// Drops all commits after this one.
    pub fn take_back_to(&mut self, sequence: u64) {
        self.last = self.last.min(sequence);
        self.versions.retain(|_, versions| {
            versions.truncate(versions.partition_point(|version| version.sequence <= sequence));
            !versions.is_empty()
        });
    }

    /// Returns the model at this commit.
    pub fn up_to(&self, sequence: u64) -> Model {
        let mut model = self.clone();
        model.take_back_to(sequence);
        model
    }

    /// Counts versions in a range, deletions included.
    pub fn versions(&self, tree: TreeNumber, bounds: &Bounds) -> usize {
        let of_tree = self.versions.range((tree, Vec::new())..).take_while(|((of, _), _)| *of == tree);
        of_tree.filter(|((_, key), _)| !is_empty_range(bounds) && bounds.contains(key)).map(|(_, v)| v.len()).sum()
    }

    fn set(
        &mut self,
        key: (TreeNumber, Bytes),
        sequence: u64,
        value: Option<Bytes>,
        then: Option<(u64, Option<Bytes>)>,
    ) {
        let versions = self.versions.entry(key).or_default();
        let version = Version { sequence, value, then };
        match versions.last_mut() {
            Some(last) if last.sequence == sequence => *last = version,
            _ => versions.push(version),
        }
    }

    fn as_of<'v>(&self, versions: &'v [Version], at: At) -> Option<&'v [u8]> {
        let after = versions.partition_point(|version| version.sequence <= at.sequence);
        versions[..after].last().and_then(|version| version.at(at.time_us.unwrap_or(self.now_us)))
    }

    /// Returns the value of a key.
    pub fn get(&self, tree: TreeNumber, key: &[u8], at: impl Into<At>) -> Option<&[u8]> {
        let at = at.into();
        self.versions.get(&(tree, key.to_vec())).and_then(|versions| self.as_of(versions, at))
    }

    /// Returns the rows of a range.
    pub fn range(&self, tree: TreeNumber, bounds: &Bounds, at: impl Into<At>) -> Vec<(Bytes, Bytes)> {
        let at = at.into();
        if is_empty_range(bounds) {
            return Vec::new();
        }
        self.versions
            .range((tree, Vec::new())..)
            .take_while(|((of, _), _)| *of == tree)
            .filter(|((_, key), _)| bounds.contains(key))
            .filter_map(|((_, key), versions)| Some((key.clone(), self.as_of(versions, at)?.to_vec())))
            .collect()
    }

    /// Returns the latest rows of a range with their expiry.
    pub fn range_with_ends(&self, tree: TreeNumber, bounds: &Bounds) -> Vec<(Bytes, Bytes, Option<u64>)> {
        let end_of = |key: &Bytes| {
            let last = self.versions.get(&(tree, key.clone())).and_then(|versions| versions.last());
            let end = last.and_then(|last| last.then.as_ref()).map(|(expires_us, _)| *expires_us);
            end.filter(|expires_us| *expires_us > self.now_us)
        };
        let rows = self.range(tree, bounds, u64::MAX).into_iter();
        rows.map(|(key, value)| (key.clone(), value, end_of(&key))).collect()
    }

    /// Returns the rows of all trees.
    pub fn contents(&self, at: impl Into<At>) -> Contents {
        let at = at.into();
        let seen = |(key, versions): (&(TreeNumber, Bytes), &Vec<Version>)| {
            Some((key.clone(), self.as_of(versions, at)?.to_vec()))
        };
        self.versions.iter().filter_map(seen).collect()
    }
}

/// A model of a multi-tree, latest state only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultiModel {
    pairs: BTreeSet<(Bytes, Bytes)>,
}

impl MultiModel {
    /// Adds a value to a key.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.pairs.insert((key.to_vec(), value.to_vec()));
    }

    /// Removes a value of a key.
    pub fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.pairs.remove(&(key.to_vec(), value.to_vec()));
    }

    /// Removes all values of a key.
    pub fn remove_all(&mut self, key: &[u8]) {
        self.pairs.retain(|(of, _)| of != key);
    }

    /// Returns all pairs.
    pub fn pairs(&self) -> Vec<(Bytes, Bytes)> {
        self.pairs.iter().cloned().collect()
    }

    /// Returns the values of a key.
    pub fn values(&self, key: &[u8]) -> Vec<Bytes> {
        self.pairs.iter().filter(|(of, _)| of == key).map(|(_, value)| value.clone()).collect()
    }

    /// Returns the pairs of a range.
    pub fn range(&self, bounds: &Bounds) -> Vec<(Bytes, Bytes)> {
        self.pairs.iter().filter(|(key, _)| !is_empty_range(bounds) && bounds.contains(key)).cloned().collect()
    }
}

/// The states that a crash may leave of a sequence of commits. Moments are numbers of disk
/// operations.
#[derive(Clone, Debug)]
pub struct History {
    states: Vec<Contents>,
    submitted: Vec<usize>,
    changes: Vec<Vec<Change>>,
    /// (moment, count): from then on `count` commits must survive. Both rise.
    promises: Vec<(usize, usize)>,
}

impl History {
    /// Begins a history with these contents, all durable.
    pub fn new(contents: Contents) -> History {
        History { states: vec![contents], submitted: Vec::new(), changes: Vec::new(), promises: Vec::new() }
    }

    /// Notes that a commit begins.
    pub fn submit(&mut self, moment: usize, changes: Vec<Change>) {
        let mut contents = self.latest().clone();
        apply(&mut contents, &changes);
        self.states.push(contents);
        self.submitted.push(moment);
        self.changes.push(changes);
    }

    /// Notes that all submitted commits are durable.
    pub fn promise(&mut self, moment: usize) {
        self.promises.push((moment, self.submitted.len()));
    }

    /// Drops the last commit.
    pub fn take_back(&mut self) {
        self.states.pop();
        self.submitted.pop();
        self.changes.pop();
    }

    /// Returns the last contents.
    pub fn latest(&self) -> &Contents {
        self.states.last().expect("there is always a first state")
    }

    /// Returns the contents before the last commit, or the first.
    pub fn before_latest(&self) -> &Contents {
        &self.states[self.states.len().saturating_sub(2)]
    }

    /// Returns the number of commits that must survive a crash at `moment`, and that may.
    pub fn bounds(&self, moment: usize) -> (usize, usize) {
        let must = self.promises.iter().filter(|(at, _)| *at <= moment).map(|(_, count)| *count).max().unwrap_or(0);
        (must, self.submitted.iter().filter(|at| **at <= moment).count())
    }

    /// Judges the contents after a crash at `moment`; returns the number of commits in them.
    pub fn judge(&self, moment: usize, recovered: &Contents) -> Result<usize, String> {
        let (must, may) = self.bounds(moment);
        if let Some(count) = (must..=may).rev().find(|count| self.states[*count] == *recovered) {
            return Ok(count);
        }
        let other = (0..self.states.len()).find(|count| self.states[*count] == *recovered);
        let found = match other {
            Some(count) => format!("the state after {count} commits"),
            None => format!("no prefix at all; against {may} commits: {}", difference(&self.states[may], recovered)),
        };
        Err(format!("{must} to {may} commits should survive, found {found}; commits: {:?}", self.changes))
    }

    /// Returns the contents after `commits` commits.
    pub fn state(&self, commits: usize) -> &Contents {
        &self.states[commits]
    }
}

/// Applies changes to contents.
pub fn apply(contents: &mut Contents, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(tree, key, value) => {
                contents.insert((*tree, key.clone()), value.clone());
            }
            Change::PutUntil(tree, key, value, expires_us) if *expires_us >= FAR_US => {
                contents.insert((*tree, key.clone()), value.clone());
            }
            Change::Delete(tree, key) | Change::PutUntil(tree, key, ..) => {
                contents.remove(&(*tree, key.clone()));
            }
            Change::Append(tree, key, more) | Change::Extend(tree, key, more) => {
                contents.entry((*tree, key.clone())).or_default().extend_from_slice(more);
            }
            Change::DeleteRange(tree, bounds) => {
                contents.retain(|(of, key), _| of != tree || is_empty_range(bounds) || !bounds.contains(key));
            }
        }
    }
}

/// Describes the first differences.
pub fn difference(expected: &Contents, found: &Contents) -> String {
    let mut texts = Vec::new();
    for (key, value) in expected {
        match found.get(key) {
            None => texts.push(format!("{}/{} is missing", key.0, short(&key.1))),
            Some(other) if other != value => {
                texts.push(format!("{}/{} is {} instead of {}", key.0, short(&key.1), short(other), short(value)));
            }
            Some(_) => {}
        }
    }
    let extra = found.keys().filter(|key| !expected.contains_key(key));
    texts.extend(extra.map(|key| format!("{}/{} should not be there", key.0, short(&key.1))));
    let count = texts.len();
    texts.truncate(5);
    if count > 5 {
        texts.push(format!("and {} more", count - 5));
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Change {
        Change::Put(1, key.into(), value.into())
    }

    #[test]
    fn model_read_at_each_commit_returns_its_state() {
        let mut model = Model::new();
        model.commit(3, &[put("a", "1"), put("b", "1")]);
        let all = (Bound::Unbounded, Bound::Unbounded);
        model.commit(5, &[put("c", "gone"), Change::DeleteRange(1, all.clone()), put("b", "2"), put("b", "3")]);
        model.commit(9, &[Change::Delete(1, "b".into())]);
        assert_eq!(model.get(1, b"a", 2), None);
        assert_eq!(model.range(1, &all, 4).len(), 2);
        assert_eq!(model.range(1, &all, 5), [("b".into(), "3".into())]);
        assert_eq!(model.contents(9).len(), 0);
        assert_eq!((model.versions(1, &all), model.up_to(8).versions(1, &all)), (6, 5));
        assert_eq!(model.up_to(8).contents(9), model.contents(5));
        assert_eq!(model.up_to(4).last_sequence(), 4);
        assert_eq!(model.range(2, &all, 4), []);
        let backwards = (Bound::Included("z".into()), Bound::Excluded("a".into()));
        assert_eq!(model.range(1, &backwards, 4), []);
        assert_eq!(prefix_bounds(b"a\xff\xff").1, Bound::Excluded("b".into()));
        assert_eq!(prefix_bounds(b"\xff").1, Bound::Unbounded);
    }

    #[test]
    fn model_read_after_expiry_hides_expired_value() {
        let mut model = Model::new();
        model.now_us = 10;
        model.commit(1, &[Change::PutUntil(1, "a".into(), "1".into(), 20)]);
        model.commit(2, &[Change::Append(1, "a".into(), "2".into())]);
        let at = |sequence, time_us| At { sequence, time_us: Some(time_us) };
        assert_eq!(model.get(1, b"a", 1), Some(&b"1"[..]));
        assert_eq!(model.get(1, b"a", at(1, 20)), None);
        assert_eq!(model.get(1, b"a", 2), Some(&b"12"[..]));
        model.now_us = 20;
        assert_eq!(model.get(1, b"a", 2), Some(&b"2"[..]));
        assert_eq!(model.get(1, b"a", at(2, 19)), Some(&b"12"[..]));
        assert_eq!((model.contents(1).len(), model.contents(2).len()), (0, 1));
    }

    #[test]
    fn history_after_crash_accepts_only_permitted_losses() {
        let mut history = History::new(Contents::new());
        history.submit(10, vec![put("a", "1")]);
        history.promise(15);
        history.submit(15, vec![put("b", "1")]);
        history.submit(20, vec![Change::Delete(1, "a".into())]);
        history.promise(30);
        assert_eq!(history.bounds(9), (0, 0));
        assert_eq!(history.bounds(12), (0, 1));
        assert_eq!(history.bounds(16), (1, 2));
        assert_eq!(history.bounds(40), (3, 3));
        let b_only = history.latest().clone();
        assert_eq!(history.judge(25, &b_only), Ok(3));
        assert!(history.judge(16, &b_only).unwrap_err().contains("after 3 commits"));
        assert!(history.judge(30, &Contents::new()).unwrap_err().contains("after 0 commits"));
        let hole = Contents::from([((1, b"c".to_vec()), b"1".to_vec())]);
        assert!(history.judge(25, &hole).unwrap_err().contains("no prefix"));
    }
}
