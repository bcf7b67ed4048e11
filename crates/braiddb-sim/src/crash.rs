//! The fault model of a power failure, and the crash images made by it.
//!
//! # The fault model
//!
//! No policy ever loses **durable** operations:
//! - of a file: every write, length and reservation done before the start of a successful sync of
//!   that file; and every write that lies wholly within pages whose bytes were synced;
//! - of a directory: every name given, removed or moved in it before the start of a successful sync
//!   of that directory. A rename between directories belongs to the directory of the new name.
//!   Syncing a file makes none of its names durable, syncing a directory no contents. A directory
//!   is itself a name in its parent: if that name is lost, everything below is gone.
//!
//! All other operations are **unsynced**; each piece of them is kept or lost on its own:
//! - a write is cut at sectors of 512 bytes or 4 KiB, or, in files with few unsynced bytes, at any
//!   byte. Pieces are kept or lost independently, so a later write may survive an earlier one. Or
//!   each sector shows the state at its own random moment since the last sync;
//! - a length, set or grown by a write, is that of the kept pieces, or that of any moment since the
//!   last sync. A length may survive without its data, and data without its length, which truncates
//!   it. Bytes inside the length whose data was lost read as zeros or, past the last durable
//!   length, as stale bytes: those of an earlier write to any file, or noise;
//! - names are kept or lost one by one; a rename is atomic.
//!
//! After a **failed sync** of a file, its operations stay unsynced forever. A later successful sync
//! covers only later writes, as on systems that mark pages clean after reporting the error. Reads
//! see the lost bytes until the crash. After a failed sync of a directory its names stay unsynced
//! until a sync succeeds: file systems journal names as metadata.
//!
//! Not modelled: a torn sector that takes neighbouring bytes with it, and lost acknowledged writes.
//!
//! # How images are made
//!
//! A replay of the journal gives the durable state and the unsynced operations of each file and
//! directory. It is cached: images of rising moments cost only the operations in between. A policy
//! then decides on each piece in journal order. Images share pages with the original.

use crate::{
    contents::{Contents, PAGE_LEN},
    journal::{FileIndex, Name, Operation, parent_of},
    random::{Random, mix},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// The unsynced operations that a crash keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// Keeps nothing.
    LoseAllUnsynced,
    /// Keeps everything, like the death of a process.
    KeepAll,
    /// Keeps names and lengths but no data: files end in zeros or stale bytes.
    LengthsOnly {
        /// Stale bytes instead of zeros.
        stale: bool,
    },
    /// Keeps names only.
    NamesOnly,
    /// Keeps data and lengths, but no names.
    ContentsOnly,
    /// Keeps everything except the end of a last write.
    TornLast {
        /// Kept bytes of the last write.
        bytes: u64,
    },
    /// Decides on each piece at random, from this seed.
    Random(u64),
}

impl CrashPolicy {
    /// Returns the fixed policies and `random` random ones.
    pub fn some(random: u64, seed: u64) -> Vec<CrashPolicy> {
        let mut policies = vec![
            CrashPolicy::LoseAllUnsynced,
            CrashPolicy::KeepAll,
            CrashPolicy::LengthsOnly { stale: false },
            CrashPolicy::LengthsOnly { stale: true },
            CrashPolicy::NamesOnly,
            CrashPolicy::ContentsOnly,
        ];
        policies.extend((0..random).map(|i| CrashPolicy::Random(mix(seed, i))));
        policies
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) names: BTreeMap<Name, FileIndex>,
    pub(crate) directories: BTreeSet<Name>,
    pub(crate) files: BTreeMap<FileIndex, Contents>,
}

impl Image {
    pub(crate) fn is_directory(&self, name: &Name) -> bool {
        name.parent().is_none() || self.directories.contains(name)
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Write { file, .. } | Operation::SetLength { file, .. } | Operation::Reserve { file, .. } => {
                apply_to(self.files.entry(*file).or_default(), operation);
            }
            Operation::Link { name, file } => {
                self.files.entry(*file).or_default();
                self.names.insert(name.clone(), *file);
            }
            Operation::Unlink { name } => {
                self.names.remove(name);
            }
            Operation::Rename { from, to, file } => {
                self.names.remove(from);
                self.names.insert(to.clone(), *file);
            }
            Operation::MakeDirectory { name } => {
                self.directories.insert(name.clone());
            }
            Operation::Damage(inner) => self.apply(inner),
            Operation::Sync { .. }
            | Operation::SyncBytes { .. }
            | Operation::SyncFailed { .. }
            | Operation::SyncDirectory { .. }
            | Operation::SyncDirectoryFailed { .. } => {}
        }
    }
}

fn apply_to(contents: &mut Contents, operation: &Operation) {
    match operation {
        Operation::Write { offset, bytes, .. } => contents.write(bytes, *offset),
        Operation::SetLength { len, .. } => contents.set_len(*len),
        Operation::Reserve { len, .. } => contents.reserve(*len),
        Operation::Damage(inner) => apply_to(contents, inner),
        _ => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Unsynced,
    /// A sync failed on it.
    MaybeLost,
    /// Synced, but an earlier operation of the list is not.
    Durable,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    index: usize,
    fate: Fate,
}

#[derive(Debug)]
pub(crate) struct Replay {
    at: usize,
    durable: Image,
    /// Operations not yet in the durable state.
    files: BTreeMap<FileIndex, Vec<Pending>>,
    directories: BTreeMap<Name, Vec<Pending>>,
}

impl Replay {
    pub(crate) fn new(base: Image) -> Replay {
        Replay { at: 0, durable: base, files: BTreeMap::new(), directories: BTreeMap::new() }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn advance(&mut self, journal: &[Operation], to: usize) {
        for (index, operation) in journal.iter().enumerate().take(to).skip(self.at) {
            match operation {
                Operation::Sync { file, upto } => self.settle_file(journal, *file, *upto, Fate::Durable),
                Operation::SyncBytes { file, offset, len, upto } => {
                    self.settle_bytes(journal, *file, *offset..offset + len, *upto);
                }
                Operation::SyncFailed { file, upto } => self.settle_file(journal, *file, *upto, Fate::MaybeLost),
                Operation::SyncDirectory { name, upto } => self.settle_directory(journal, name, *upto, Fate::Durable),
                Operation::SyncDirectoryFailed { .. } => {}
                Operation::Damage(inner) => {
                    let pending = self.pending_of(inner);
                    pending.push(Pending { index, fate: Fate::Durable });
                    match inner.place() {
                        Place::File(file) => self.settle_file(journal, file, 0, Fate::Durable),
                        Place::Directory(name) => self.settle_directory(journal, &name, 0, Fate::Durable),
                    }
                }
                change => self.pending_of(change).push(Pending { index, fate: Fate::Unsynced }),
            }
        }
        self.at = self.at.max(to);
    }

    fn pending_of(&mut self, operation: &Operation) -> &mut Vec<Pending> {
        match operation.place() {
            Place::File(file) => self.files.entry(file).or_default(),
            Place::Directory(name) => self.directories.entry(name).or_default(),
        }
    }

    fn settle_file(&mut self, journal: &[Operation], file: FileIndex, upto: usize, fate: Fate) {
        if let Some(pending) = self.files.get_mut(&file) {
            settle(pending, upto, fate, |index| self.durable.apply(&journal[index]));
        }
    }

    fn settle_bytes(&mut self, journal: &[Operation], file: FileIndex, bytes: Range<u64>, upto: usize) {
        let page = PAGE_LEN as u64;
        let pages = bytes.start / page * page..bytes.end.next_multiple_of(page);
        let is_inside = |index: usize| match &journal[index] {
            Operation::Write { offset, bytes, .. } => {
                pages.start <= *offset && offset + bytes.len() as u64 <= pages.end
            }
            _ => false,
        };
        let Some(pending) = self.files.get_mut(&file) else { return };
        for one in pending.iter_mut().filter(|one| one.index < upto && one.fate == Fate::Unsynced) {
            if is_inside(one.index) {
                one.fate = Fate::Durable;
            }
        }
        settle(pending, 0, Fate::Durable, |index| self.durable.apply(&journal[index]));
    }

    fn settle_directory(&mut self, journal: &[Operation], name: &Name, upto: usize, fate: Fate) {
        if let Some(pending) = self.directories.get_mut(name) {
            settle(pending, upto, fate, |index| self.durable.apply(&journal[index]));
        }
    }

    pub(crate) fn image(&self, journal: &[Operation], policy: CrashPolicy, seed: u64) -> Image {
        let seed = match policy {
            CrashPolicy::Random(own) => mix(own, self.at as u64),
            _ => mix(seed, self.at as u64),
        };
        let mut image = Image {
            names: self.durable.names.clone(),
            directories: self.durable.directories.clone(),
            files: BTreeMap::new(),
        };
        let names_kept_of_8 = match policy {
            CrashPolicy::LoseAllUnsynced | CrashPolicy::ContentsOnly => 0,
            CrashPolicy::Random(_) => [0, 2, 4, 6, 8][Random::new(mix(seed, 1)).index(5)],
            _ => 8,
        };
        for pending in self.directories.values().flatten() {
            if pending.fate == Fate::Durable || mix(seed, pending.index as u64) % 8 < names_kept_of_8 {
                image.apply(&journal[pending.index]);
            }
        }
        drop_orphans(&mut image);
        image.files.clear();
        for file in image.names.values() {
            let empty = Contents::default();
            let base = self.durable.files.get(file).unwrap_or(&empty);
            let contents = match self.files.get(file) {
                Some(pending) if !pending.is_empty() => {
                    FilePlan::new(policy, mix(seed, file ^ (1 << 40)), pending, journal, self.at)
                        .contents(base, pending, journal)
                }
                _ => base.clone(),
            };
            image.files.insert(*file, contents);
        }
        image
    }
}

fn settle(pending: &mut Vec<Pending>, upto: usize, fate: Fate, mut apply: impl FnMut(usize)) {
    for one in pending.iter_mut().filter(|one| one.index < upto && one.fate == Fate::Unsynced) {
        one.fate = fate;
    }
    let durable = pending.iter().take_while(|one| one.fate == Fate::Durable).count();
    pending.drain(..durable).for_each(|one| apply(one.index));
}

fn drop_orphans(image: &mut Image) {
    let mut kept = BTreeSet::new();
    for name in &image.directories {
        let parent = parent_of(name);
        if name.parent().is_none() || parent.parent().is_none() || kept.contains(&parent) {
            kept.insert(name.clone());
        }
    }
    image.directories = kept;
    let directories = &image.directories;
    image.names.retain(|name, _| {
        let parent = parent_of(name);
        parent.parent().is_none() || directories.contains(&parent)
    });
}

enum Place {
    File(FileIndex),
    Directory(Name),
}

impl Operation {
    fn place(&self) -> Place {
        match self {
            Operation::Write { file, .. }
            | Operation::SetLength { file, .. }
            | Operation::Reserve { file, .. }
            | Operation::Sync { file, .. }
            | Operation::SyncBytes { file, .. }
            | Operation::SyncFailed { file, .. } => Place::File(*file),
            Operation::Link { name, .. } | Operation::Unlink { name } | Operation::MakeDirectory { name } => {
                Place::Directory(parent_of(name))
            }
            Operation::Rename { to, .. } => Place::Directory(parent_of(to)),
            Operation::SyncDirectory { name, .. } | Operation::SyncDirectoryFailed { name } => {
                Place::Directory(name.clone())
            }
            Operation::Damage(inner) => inner.place(),
        }
    }
}

struct FilePlan {
    seed: u64,
    tear: Tear,
    kept_of_8: u64,
    lengths: Lengths,
    stale: bool,
    torn: Option<(usize, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tear {
    /// Sectors of this many bytes, each kept or lost.
    Sectors(u64),
    /// Sectors of this many bytes, each in the state of its own moment.
    Moments(u64),
    /// Cut at one byte; either the start or the end is kept.
    Byte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    OfData,
    AtMoment,
    Last,
}

/// Maximum unsynced bytes of a file that is also torn at single bytes.
const SMALL_UNSYNCED_LEN: u64 = 4 * PAGE_LEN as u64;

impl FilePlan {
    fn new(policy: CrashPolicy, seed: u64, pending: &[Pending], journal: &[Operation], at: usize) -> FilePlan {
        let plan = |kept_of_8, lengths, stale| FilePlan {
            seed,
            tear: Tear::Sectors(512),
            kept_of_8,
            lengths,
            stale,
            torn: None,
        };
        match policy {
            CrashPolicy::LoseAllUnsynced | CrashPolicy::NamesOnly => plan(0, Lengths::OfData, false),
            CrashPolicy::KeepAll | CrashPolicy::ContentsOnly => plan(8, Lengths::OfData, false),
            CrashPolicy::LengthsOnly { stale } => plan(0, Lengths::Last, stale),
            CrashPolicy::TornLast { bytes } => {
                FilePlan { torn: at.checked_sub(1).map(|last| (last, bytes)), ..plan(8, Lengths::OfData, false) }
            }
            CrashPolicy::Random(_) => {
                let mut random = Random::new(seed);
                let unsynced: u64 = pending.iter().map(|one| written_by(&journal[one.index])).sum();
                let tear = match random.below(16) {
                    0..4 => Tear::Sectors(512),
                    4..7 => Tear::Sectors(4096),
                    7..9 => Tear::Moments(512),
                    9..12 => Tear::Moments(4096),
                    _ if unsynced <= SMALL_UNSYNCED_LEN => Tear::Byte,
                    _ => Tear::Sectors(512),
                };
                let kept_of_8 = [0, 1, 4, 4, 7, 8][random.index(6)];
                let lengths = [Lengths::OfData, Lengths::OfData, Lengths::AtMoment, Lengths::Last][random.index(4)];
                FilePlan { tear, ..plan(kept_of_8, lengths, random.chance(1, 2)) }
            }
        }
    }

    fn contents(&self, base: &Contents, pending: &[Pending], journal: &[Operation]) -> Contents {
        let mut contents = base.clone();
        let (mut length, mut kept_length) = (base.len(), base.len());
        let (mut lengths, mut durable_length) = (vec![length], length);
        for (order, one) in pending.iter().enumerate() {
            let operation = &journal[one.index];
            let durable = one.fate == Fate::Durable;
            length = length_after(operation, length);
            match operation {
                Operation::Write { offset, bytes, .. } if !durable => {
                    self.pieces(order, pending.len(), one.index, *offset, bytes.len() as u64, |from, to, kept| {
                        let piece = &bytes[(from - offset) as usize..(to - offset) as usize];
                        if kept {
                            contents.write(piece, from);
                            kept_length = kept_length.max(to);
                        } else if self.stale && to > durable_length {
                            let from = from.max(durable_length);
                            contents.write(&self.stale_bytes(journal, one.index, from, to - from), from);
                        }
                    });
                }
                Operation::SetLength { len, .. } => {
                    if durable || self.keeps(order as u64) {
                        contents.set_len(*len);
                        kept_length = *len;
                    }
                }
                Operation::Reserve { len, .. } => {
                    if durable || self.keeps(order as u64) {
                        contents.reserve(*len);
                        kept_length = kept_length.max(*len);
                    }
                }
                other => apply_to(&mut contents, other),
            }
            if durable {
                (kept_length, durable_length) = (length, length);
                lengths.clear();
            }
            lengths.push(length);
        }
        contents.set_len(match self.lengths {
            Lengths::OfData => kept_length,
            Lengths::Last => length,
            Lengths::AtMoment => lengths[Random::new(mix(self.seed, 3)).index(lengths.len())],
        });
        contents
    }

    fn keeps(&self, number: u64) -> bool {
        mix(self.seed ^ (1 << 41), number) % 8 < self.kept_of_8
    }

    fn pieces(
        &self,
        order: usize,
        count: usize,
        index: usize,
        offset: u64,
        len: u64,
        mut piece: impl FnMut(u64, u64, bool),
    ) {
        let end = offset + len;
        match (self.torn, self.tear) {
            (Some((torn, bytes)), _) if torn == index => {
                let cut = offset + bytes.min(len);
                piece(offset, cut, true);
                piece(cut, end, false);
            }
            (Some(_), _) => piece(offset, end, true),
            (None, _) if self.kept_of_8 == 0 || self.kept_of_8 == 8 => piece(offset, end, self.kept_of_8 == 8),
            (None, Tear::Byte) => {
                let cut = offset + mix(self.seed, index as u64) % (len + 1);
                let start_kept = !mix(self.seed, !(index as u64)).is_multiple_of(4);
                piece(offset, cut, start_kept);
                piece(cut, end, !start_kept);
            }
            (None, Tear::Sectors(sector) | Tear::Moments(sector)) => {
                let mut from = offset;
                while from < end {
                    let number = from / sector;
                    let to = end.min((number + 1) * sector);
                    let kept = match self.tear {
                        Tear::Moments(_) => (order as u64) < mix(self.seed, number) % (count as u64 + 1),
                        _ => self.keeps(mix(index as u64, number)),
                    };
                    piece(from, to, kept);
                    from = to;
                }
            }
        }
    }

    fn stale_bytes(&self, journal: &[Operation], index: usize, from: u64, len: u64) -> Vec<u8> {
        let mut random = Random::new(mix(self.seed, mix(index as u64, from)));
        let len = len as usize;
        if index > 0
            && let Operation::Write { offset, bytes, .. } = &journal[random.index(index)]
            && !bytes.is_empty()
        {
            // Aligned within the sector, so that old records lie where recovery looks for records.
            let start = (from.wrapping_sub(*offset) % 512) as usize % bytes.len();
            return bytes.iter().skip(start).chain(bytes.iter().cycle()).take(len).copied().collect();
        }
        random.bytes(len)
    }
}

fn length_after(operation: &Operation, length: u64) -> u64 {
    match operation {
        Operation::Write { offset, bytes, .. } => length.max(offset + bytes.len() as u64),
        Operation::SetLength { len, .. } => *len,
        Operation::Reserve { len, .. } => length.max(*len),
        Operation::Damage(inner) => length_after(inner, length),
        _ => length,
    }
}

fn written_by(operation: &Operation) -> u64 {
    match operation {
        Operation::Write { bytes, .. } => bytes.len() as u64,
        _ => 0,
    }
}
