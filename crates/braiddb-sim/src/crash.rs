//! What a power failure leaves.
//!
//! # The fault model
//!
//! **Durable** is, and no policy ever loses:
//! - of a file: every write, length and reservation that was done before the start of a sync of that file that
//!   succeeded; and every write that lies wholly within pages of bytes that were synced so;
//! - of a directory: every name given, removed or moved in it before the start of a sync of that directory that
//!   succeeded. A rename between directories counts for the one that holds the new name. Syncing a file makes none of
//!   its names durable, and syncing a directory makes no contents durable. A directory is itself a name in its parent:
//!   when that is lost, all that is below is gone.
//!
//! Everything else is **unsynced**, and each piece of it is kept or lost on its own:
//! - a write is cut at sectors of 512 bytes or 4 KiB, or, in files with few unsynced bytes, at any one byte. Pieces
//!   are kept or lost independently (so a later write may survive an earlier one), or each sector shows the state of
//!   some moment since the last sync, the moments being independent;
//! - a length, set or grown by a write, is that of the pieces that were kept, or that of any moment since the last
//!   sync: a length may survive without its data, and data without its length, which cuts it off. What is inside the
//!   length without its data reads as zeros, or, past the last durable length, as stale bytes: those of some earlier
//!   write to any file, or noise;
//! - names are kept or lost one by one; a rename is one step, either done or not.
//!
//! After a **failed sync**, what it should have synced stays unsynced for ever: a later sync that succeeds covers only
//! what was written since, as on systems that mark pages clean after reporting the error. Reads go on to see it until
//! the crash. After a failed sync of a directory its names stay unsynced until a sync succeeds: names are metadata,
//! which file systems keep in a journal of their own.
//!
//! Not modelled: a torn sector that takes bytes with it that were not being written; a device that loses what it
//! acknowledged; a rotting disk (there are calls that flip bits and cut files for that).
//!
//! # How images are made
//!
//! The journal is replayed up to the crash into the durable state and, for each file and directory, the list of
//! unsynced operations behind it. The replay is remembered, so that images of rising moments cost only the steps
//! between. A policy then decides on each piece in the order of the journal. Pages are shared with the original.

use crate::{
    contents::{Contents, PAGE_LEN},
    journal::{FileIndex, Name, Operation, parent_of},
    random::{Random, mix},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What is kept of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// Nothing.
    LoseAllUnsynced,
    /// All, as after the death of the process alone.
    KeepAll,
    /// Names and lengths, but no data: files end in zeros, or in stale bytes.
    LengthsOnly {
        /// Whether in stale bytes.
        stale: bool,
    },
    /// Names, but neither data nor lengths.
    NamesOnly,
    /// Data and lengths, but no names.
    ContentsOnly,
    /// All but the end of the last operation, if that was a write: of it, this many bytes are kept.
    TornLast {
        /// The bytes that are kept.
        bytes: u64,
    },
    /// Each piece by chance, from this seed.
    Random(u64),
}

impl CrashPolicy {
    /// The fixed policies, and so many random ones.
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

/// The state of a whole disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) names: BTreeMap<Name, FileIndex>,
    pub(crate) directories: BTreeSet<Name>,
    pub(crate) files: BTreeMap<FileIndex, Contents>,
}

impl Image {
    /// Whether there is such a directory. Roots and the current directory always are.
    pub(crate) fn is_directory(&self, name: &Name) -> bool {
        name.parent().is_none() || self.directories.contains(name)
    }

    /// Carries out an operation; syncs change nothing here.
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
    /// Synced, but behind something that is not.
    Durable,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    index: usize,
    fate: Fate,
}

/// The journal, replayed up to some moment.
#[derive(Debug)]
pub(crate) struct Replay {
    at: usize,
    durable: Image,
    /// What stands behind the durable state, in order.
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

    /// Goes on to the moment before operation `to`.
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

    /// Makes those writes durable that lie wholly within the pages of `bytes`.
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

    /// What a crash at this moment leaves.
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
                // Contents are seen to below.
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

/// Gives the unsynced operations before `upto` their fate, and applies the durable ones that nothing unsynced precedes.
fn settle(pending: &mut Vec<Pending>, upto: usize, fate: Fate, mut apply: impl FnMut(usize)) {
    for one in pending.iter_mut().filter(|one| one.index < upto && one.fate == Fate::Unsynced) {
        one.fate = fate;
    }
    let durable = pending.iter().take_while(|one| one.fate == Fate::Durable).count();
    pending.drain(..durable).for_each(|one| apply(one.index));
}

/// Drops what stands below a directory that is not there.
fn drop_orphans(image: &mut Image) {
    // A directory sorts before what is below it, so that a parent is settled before its children.
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
    /// Whose sync makes it durable.
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

/// How the unsynced operations of one file fare.
struct FilePlan {
    seed: u64,
    tear: Tear,
    /// How many pieces in eight are kept.
    kept_of_8: u64,
    lengths: Lengths,
    stale: bool,
    /// The torn last write: its index, and the bytes of it that are kept.
    torn: Option<(usize, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tear {
    /// Sectors of this many bytes, each kept or lost.
    Sectors(u64),
    /// Sectors of this many bytes, each as of some moment.
    Moments(u64),
    /// At one byte: the start or the end is kept.
    Byte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// Those of the data that was kept.
    OfData,
    /// That of a moment.
    AtMoment,
    /// The last one.
    Last,
}

/// Files with no more unsynced bytes than this are torn at single bytes too.
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
        // The length that the file had, that of the kept data, and the lengths of all moments since it was durable.
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
                // A sync makes the length durable as it is, even where an earlier one failed on the data.
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

    /// Cuts a write into pieces, and says of each whether it is kept.
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

    /// What stood on the disk where a write should have gone: an earlier write of any file, or noise.
    fn stale_bytes(&self, journal: &[Operation], index: usize, from: u64, len: u64) -> Vec<u8> {
        let mut random = Random::new(mix(self.seed, mix(index as u64, from)));
        let len = len as usize;
        if index > 0
            && let Operation::Write { offset, bytes, .. } = &journal[random.index(index)]
            && !bytes.is_empty()
        {
            // At the same place within a sector, so that old records stand where records are looked for.
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
