//! Reads and checks a dump without a database.

use super::{
    format::{Frame, FrameKind, damaged},
    lanes::show,
    load::check_tree,
    reader::FrameReader,
    records::Amount,
};
use crate::{
    base::{Error, Result, SequenceNumber, limits},
    db::{DumpedContent, DumpedEntry, EntrySink},
};
use std::io::Read;

/// The contents of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpInfo {
    /// The last commit in it.
    pub sequence: SequenceNumber,
    /// Time of the dump in microseconds since 1970, by the origin's wall clock.
    pub taken_us: u64,
    /// Bytes of the dump.
    pub dump_bytes: u64,
    /// The trees in order.
    pub trees: Vec<DumpedTreeInfo>,
    /// Names of the application's merge functions in the database.
    pub merge_functions: Vec<String>,
    /// The application cursor.
    pub application_cursor: Option<Vec<u8>>,
}

/// A tree of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpedTreeInfo {
    /// Its name.
    pub name: String,
    /// Whether it is a multi-tree.
    pub multi: bool,
    /// Number of records or pairs.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Reads a dump to its end and checks it like a [load](crate::Builder::load): checksums,
/// completeness and the order of records. Takes time linear in the dump, and some MiB of memory.
///
/// Errors: `DumpDamaged` with the offset; `InvalidArgument` if it is no dump; `Unsupported` if it
/// is from a newer version.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// db.tree("albums")?.put(b"1", b"Ten")?;
/// let mut dump = Vec::new();
/// db.dump(&mut dump, braiddb::dump::DumpOptions::default())?;
/// assert_eq!(braiddb::dump::check_dump(&mut dump.as_slice())?.trees[0].records, 1);
/// dump.pop();
/// assert!(braiddb::dump::check_dump(&mut dump.as_slice()).unwrap_err().is_corruption());
/// # Ok(())
/// # }
/// ```
pub fn check_dump(input: &mut dyn Read) -> Result<DumpInfo> {
    let mut frames = FrameReader::begin(input)?;
    let (source, mut frame) = frames.source()?;
    let mut trees: Vec<DumpedTreeInfo> = Vec::new();
    for tree in &source.catalog.trees {
        trees.push(DumpedTreeInfo { name: tree.name.clone(), multi: tree.multi, records: 0, bytes: 0 });
    }
    let (mut passed, mut order) = (0_u64, Order::default());
    let mut all = Amount::default();
    while frame.kind != FrameKind::End {
        if !matches!(frame.kind, FrameKind::Records | FrameKind::Piece) {
            return Err(damaged(frame.offset, "what it tells of the database goes on between its records"));
        }
        if order.tree != frame.tree {
            order.end().map_err(|detail| damaged(frame.offset, detail))?;
            check_tree(&source, &mut passed, &frame)?;
            let place = usize::try_from(passed - 1).unwrap_or(usize::MAX);
            let multi = trees.get(place).is_some_and(|tree| tree.multi);
            order = Order { tree: frame.tree, multi, sequence_max: frames.sequence, ..Order::default() };
        }
        let amount = show(frame, frames.id, &mut order)?;
        all.add(amount);
        if let Some(tree) = trees.get_mut(usize::try_from(passed - 1).unwrap_or(usize::MAX)) {
            tree.records += amount.records;
            tree.bytes += amount.bytes;
        }
        frame = frames.next()?;
    }
    order.end().map_err(|detail| damaged(frame.offset, detail))?;
    check_totals(&mut frames, frame, trees.len() as u64, all)?;
    let catalog = source.catalog;
    Ok(DumpInfo {
        sequence: frames.sequence,
        taken_us: source.time_us.saturating_sub(source.ahead_us),
        dump_bytes: frames.offset(),
        trees,
        merge_functions: catalog.functions.into_iter().map(|(name, _)| name).collect(),
        application_cursor: catalog.application_cursor,
    })
}

pub fn check_totals(frames: &mut FrameReader<'_>, end: Frame, trees: u64, amount: Amount) -> Result<()> {
    let offset = end.offset;
    let totals = frames.end(end)?;
    if totals.trees != trees || (Amount { records: totals.records, bytes: totals.bytes }) != amount {
        return Err(damaged(offset, "it has other records than its end tells"));
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Order {
    tree: u32,
    multi: bool,
    sequence_max: SequenceNumber,
    key: Vec<u8>,
    value: Vec<u8>,
    last: Option<(SequenceNumber, bool)>,
    left: u64,
}

impl Order {
    fn end(&self) -> std::result::Result<(), &'static str> {
        if self.left > 0 { Err("a long value ends too soon") } else { Ok(()) }
    }
}

fn bad(what: &str) -> Error {
    Error::InvalidArgument(what.to_owned())
}

impl EntrySink for Order {
    fn entry(&mut self, entry: &DumpedEntry<'_>) -> Result<()> {
        self.end().map_err(bad)?;
        let value = match entry.content {
            DumpedContent::Value(value) if self.multi => value,
            _ => b"",
        };
        let is_operands = matches!(entry.content, DumpedContent::Operands(_) | DumpedContent::LongOperands(_));
        if (self.multi && (is_operands || entry.content.is_long() || entry.expires_us.is_some()))
            || (is_operands && entry.expires_us.is_some())
        {
            return Err(bad("a record has what its tree cannot keep"));
        }
        if entry.key.len() > limits::MAX_KEY_LEN || value.len() > limits::MAX_KEY_LEN {
            return Err(bad("a key is too long"));
        }
        let is_next = match self.last {
            None => !entry.is_beneath,
            Some((sequence, has_operands)) if entry.is_beneath => {
                has_operands && entry.key == self.key && entry.sequence < sequence
            }
            Some(_) => (entry.key, value) > (self.key.as_slice(), self.value.as_slice()),
        };
        if !is_next || !(1..=self.sequence_max).contains(&entry.sequence) {
            return Err(bad("records are out of order, or have numbers of commits that are not in the dump"));
        }
        if let DumpedContent::LongValue(len) | DumpedContent::LongOperands(len) = entry.content {
            if len == 0 || len > limits::MAX_VALUE_LEN {
                return Err(bad("a long value has a length that no value has"));
            }
            self.left = len;
        }
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.value.clear();
        self.value.extend_from_slice(value);
        self.last = Some((entry.sequence, is_operands));
        Ok(())
    }

    fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        let left = self.left.checked_sub(bytes.len() as u64).filter(|_| !bytes.is_empty());
        self.left = left.ok_or_else(|| bad("a long value has other pieces than its length says"))?;
        Ok(())
    }
}
