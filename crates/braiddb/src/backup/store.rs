//! All backups of a target: which there are, whether they are whole, and which may go.
//!
//! A backup is there when its description is. While one is made, an object says that it is begun; a description
//! that is not whole beside such an object is what a killed process has left, and goes with all that it has put. One that is not
//! whole without that object was damaged later. Nobody knows then what it refers to: so no file is removed before that
//! backup is deleted by name.

use super::{
    description::{BackedUpFile, Description, ObjectKind, begun_name, description_name},
    target::BackupTarget,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    codec::Checksummer,
    platform::{SystemTime, moment_of},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// So much is read of an object at once.
pub const READ_BYTES: usize = 1 << 20;

/// No description is longer: it is for some hundred thousand files.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 30;

/// A backup, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number; later ones have higher ones.
    pub id: u64,
    /// When the state was taken, by the wall clock.
    pub taken: SystemTime,
    /// The last commit in it: all commits up to it are there, and no other.
    pub sequence: SequenceNumber,
    /// The random number of the database's life: commits of another one are not comparable.
    pub incarnation: u64,
    /// Its files, and their bytes: what a restored database takes.
    pub files: u64,
    /// The bytes of its files.
    pub bytes: u64,
    /// The files among them that no backup before had, and that were copied for this one.
    pub files_copied: u64,
    /// The bytes of those.
    pub bytes_copied: u64,
}

/// What was found by [`Backups::verify`].
#[derive(Debug, Default)]
pub struct BackupReport {
    /// The backups that were looked at, and are whole.
    pub whole: Vec<u64>,
    /// Those that are not: restoring them is refused.
    pub damaged: Vec<u64>,
    /// Files read; each once, however many backups share it.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// What is wrong. Empty if all is well.
    pub problems: Vec<Error>,
}

/// Which backups of a database are to be kept. A backup that either rule keeps stays, and so does the newest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// So many of the newest.
    pub keep: Option<usize>,
    /// Those that are not older.
    pub keep_for: Option<Duration>,
}

/// The backups of a target.
#[derive(Debug)]
pub struct Backups<'a> {
    target: &'a dyn BackupTarget,
}

/// What a target holds.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Backups that have a whole description, by number.
    pub backups: BTreeMap<u64, Description>,
    /// Those whose description is damaged.
    pub damaged: BTreeMap<u64, Error>,
    /// Those that a killed process has left.
    pub begun: BTreeSet<u64>,
    /// All objects, with their lengths.
    pub objects: BTreeMap<String, u64>,
}

impl Inventory {
    /// A number that nothing in the target has had a part in.
    pub fn next_id(&self) -> u64 {
        let id_of = |kind| match kind {
            ObjectKind::Description(id) | ObjectKind::Begun(id) | ObjectKind::File(id) => id,
        };
        let last = self.objects.keys().filter_map(|name| ObjectKind::of(name)).map(id_of).max();
        last.unwrap_or(0).saturating_add(1)
    }
}

impl Description {
    /// What is told of it.
    pub fn info(&self) -> BackupInfo {
        let copied = self.files.iter().filter(|file| file.put_by == self.id);
        BackupInfo {
            id: self.id,
            taken: moment_of(self.taken_us),
            sequence: self.sequence,
            incarnation: self.incarnation,
            files: self.files.len() as u64,
            bytes: self.files.iter().map(|file| file.identity.len).sum(),
            files_copied: copied.clone().count() as u64,
            bytes_copied: copied.map(|file| file.identity.len).sum(),
        }
    }
}

impl<'a> Backups<'a> {
    /// Those of this target. Nothing is read yet.
    pub fn new(target: &'a dyn BackupTarget) -> Backups<'a> {
        Backups { target }
    }

    /// All backups, oldest first. One whose description is damaged is an error: [`Backups::verify`] tells of all, and
    /// [`Backups::delete`] takes its number.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let inventory = self.inventory()?;
        if let Some(error) = inventory.damaged.into_values().next() {
            return Err(error);
        }
        Ok(inventory.backups.values().map(Description::info).collect())
    }

    /// Reads a backup, or all, and compares every checksum. What is wrong is listed, not returned as an error; `NotFound` if there
    /// is no such backup.
    pub fn verify(&self, id: Option<u64>) -> Result<BackupReport> {
        let mut inventory = self.inventory()?;
        if let Some(id) = id {
            inventory.backups.retain(|other, _| *other == id);
            inventory.damaged.retain(|other, _| *other == id);
            if inventory.backups.is_empty() && inventory.damaged.is_empty() {
                return Err(self.no_backup(id));
            }
        }
        let mut report = BackupReport::default();
        let mut is_sound: BTreeMap<(String, u64, u64), bool> = BTreeMap::new();
        for (id, description) in &inventory.backups {
            let mut is_whole = true;
            for file in &description.files {
                // Backups that tell something else of an object cannot both be right.
                let key = (file.object_name(), file.identity.len, file.checksum);
                let sound = is_sound.entry(key).or_insert_with(|| self.verify_file(file, &mut report));
                is_whole &= *sound;
            }
            if is_whole { report.whole.push(*id) } else { report.damaged.push(*id) }
        }
        report.damaged.extend(inventory.damaged.keys());
        report.damaged.sort_unstable();
        report.problems.extend(inventory.damaged.into_values());
        Ok(report)
    }

    fn verify_file(&self, file: &BackedUpFile, report: &mut BackupReport) -> bool {
        match self.read(file, &mut |_| Ok(())) {
            Ok(()) => {
                report.files += 1;
                report.bytes += file.identity.len;
                true
            }
            Err(e) => {
                report.problems.push(e);
                false
            }
        }
    }

    /// Deletes a backup, and the files that no other one has. One whose description is damaged can be deleted too.
    pub fn delete(&self, id: u64) -> Result<()> {
        self.delete_all(&BTreeSet::from([id]))
    }

    /// Deletes the backups that are not to be kept as of `now`, and returns their numbers. The rules hold for each database by
    /// itself, that is, for each [incarnation](BackupInfo::incarnation). A backup whose description is damaged is neither
    /// counted nor deleted, and keeps all files.
    pub fn retain(&self, retention: Retention, now: SystemTime) -> Result<Vec<u64>> {
        let lives: BTreeSet<u64> = self.inventory()?.backups.values().map(|backup| backup.incarnation).collect();
        self.retain_of(&lives, retention, now)
    }

    /// [`Backups::retain`] for one database: backups of others stay, whatever their number and age. See [`crate::Db::incarnation`].
    pub fn retain_one(&self, incarnation: u64, retention: Retention, now: SystemTime) -> Result<Vec<u64>> {
        self.retain_of(&BTreeSet::from([incarnation]), retention, now)
    }

    fn retain_of(&self, lives: &BTreeSet<u64>, retention: Retention, now: SystemTime) -> Result<Vec<u64>> {
        let inventory = self.inventory()?;
        let keep = retention.keep.unwrap_or(if retention.keep_for.is_none() { usize::MAX } else { 0 }).max(1);
        let is_young = |description: &Description| {
            let age = now.duration_since(description.info().taken).unwrap_or_default();
            retention.keep_for.is_some_and(|keep_for| age <= keep_for)
        };
        let mut ids = BTreeSet::new();
        for life in lives {
            let newest_first = inventory.backups.values().rev().filter(|backup| backup.incarnation == *life);
            ids.extend(newest_first.skip(keep).filter(|backup| !is_young(backup)).map(|backup| backup.id));
        }
        if !ids.is_empty() {
            self.delete_all(&ids)?;
        }
        Ok(ids.into_iter().collect())
    }

    fn delete_all(&self, ids: &BTreeSet<u64>) -> Result<()> {
        let _lock = self.target.lock()?;
        let inventory = self.inventory()?;
        for id in ids {
            if !inventory.backups.contains_key(id) && !inventory.damaged.contains_key(id) {
                return Err(self.no_backup(*id));
            }
        }
        // The descriptions go first: a backup that is there is whole.
        for id in ids {
            self.target.delete(&description_name(*id))?;
        }
        self.sweep()?;
        Ok(())
    }

    /// Removes what no backup refers to, and returns what is there then. The caller has the lock.
    pub fn sweep(&self) -> Result<Inventory> {
        let mut inventory = self.inventory()?;
        for id in std::mem::take(&mut inventory.begun) {
            // It is complete if its description is whole: only that it is done was not noted any more.
            if !inventory.backups.contains_key(&id) {
                self.remove(&mut inventory, &description_name(id))?;
            }
        }
        let is_used: BTreeSet<String> =
            inventory.backups.values().flat_map(|d| &d.files).map(BackedUpFile::object_name).collect();
        let unused =
            |name: &&String| matches!(ObjectKind::of(name), Some(ObjectKind::File(_))) && !is_used.contains(*name);
        let unused: Vec<String> = inventory.objects.keys().filter(unused).cloned().collect();
        if inventory.damaged.is_empty() {
            unused.iter().try_for_each(|name| self.remove(&mut inventory, name))?;
        }
        // Last: until then the next one knows what is left of which.
        let is_begun = |name: &&String| matches!(ObjectKind::of(name), Some(ObjectKind::Begun(_)));
        let begun: Vec<String> = inventory.objects.keys().filter(is_begun).cloned().collect();
        begun.iter().try_for_each(|name| self.remove(&mut inventory, name))?;
        Ok(inventory)
    }

    fn remove(&self, inventory: &mut Inventory, name: &str) -> Result<()> {
        if inventory.objects.remove(name).is_some() {
            self.target.delete(name)?;
        }
        Ok(())
    }

    /// What the target holds.
    pub fn inventory(&self) -> Result<Inventory> {
        let objects: BTreeMap<String, u64> = self.target.list()?.into_iter().map(|o| (o.name, o.len)).collect();
        let mut inventory = Inventory::default();
        for (name, len) in &objects {
            match ObjectKind::of(name) {
                Some(ObjectKind::Begun(id)) => {
                    inventory.begun.insert(id);
                }
                Some(ObjectKind::Description(id)) => match self.description(id, *len) {
                    Ok(description) => {
                        inventory.backups.insert(id, description);
                    }
                    Err(e) if e.is_corruption() && !objects.contains_key(&begun_name(id)) => {
                        inventory.damaged.insert(id, e);
                    }
                    Err(e) if e.is_corruption() => {}
                    // Somebody else has deleted it meanwhile.
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e),
                },
                _ => {}
            }
        }
        inventory.objects = objects;
        Ok(inventory)
    }

    fn description(&self, id: u64, len: u64) -> Result<Description> {
        let name = description_name(id);
        let path = self.target.path_of(&name);
        if len > DESCRIPTION_BYTES_MAX {
            let detail = format!("the description has {len} bytes, the most is {DESCRIPTION_BYTES_MAX}");
            return Err(Error::BackupDamaged { path, detail });
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        let (mut reader, mut filled) = (self.target.get(&name)?, 0);
        while filled < bytes.len() {
            match reader.read(&mut bytes[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        Description::decode(&bytes[..filled], id, &path)
    }

    /// Reads a file piece by piece. It has been as it should be only if this returns `Ok`.
    pub fn read(&self, file: &BackedUpFile, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let name = file.object_name();
        let damaged = |detail: String| Error::BackupDamaged { path: self.target.path_of(&name), detail };
        let mut reader = self.target.get(&name).map_err(|e| match e {
            Error::NotFound(_) => damaged("it is missing".to_owned()),
            other => other,
        })?;
        let (mut buffer, mut sum, mut len) = (vec![0; READ_BYTES], Checksummer::new(), 0);
        loop {
            let piece = match reader.read(&mut buffer)? {
                0 => break,
                read => &buffer[..read],
            };
            len += piece.len() as u64;
            if len > file.identity.len {
                return Err(damaged(format!("it is longer than its {} bytes", file.identity.len)));
            }
            sum.add(piece);
            take(piece)?;
        }
        if len < file.identity.len {
            return Err(damaged(format!("it has {len} bytes of {}", file.identity.len)));
        }
        if sum.finish() != file.checksum {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        Ok(())
    }

    /// The backup of this number, or the newest.
    pub fn find(&self, id: Option<u64>) -> Result<Description> {
        let mut inventory = self.inventory()?;
        let newest = inventory.backups.keys().chain(inventory.damaged.keys()).max().copied();
        let id = id
            .or(newest)
            .ok_or_else(|| Error::NotFound(format!("there is no backup in {}", self.target.path_of("").display())))?;
        // The newest one, too: an older one in its place must be asked for.
        if let Some(error) = inventory.damaged.remove(&id) {
            return Err(error);
        }
        inventory.backups.remove(&id).ok_or_else(|| self.no_backup(id))
    }

    fn no_backup(&self, id: u64) -> Error {
        let place = self.target.path_of("");
        Error::NotFound(format!("there is no backup {id} in {}: see `braid backup list`", place.display()))
    }
}
