//! Lists, verifies and deletes the backups of a target.
//!
//! A backup exists if its description does. A damaged description beside its `begun` marker is the
//! remainder of a killed backup, and is removed with all objects of that backup. A damaged
//! description without the marker was damaged later. Its files are unknown, so no file is removed
//! until that backup is deleted by its id.

use super::{
    description::{BackedUpFile, Description, ObjectKind, begun_name, description_name},
    target::{BackupTarget, Object},
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

pub const READ_BYTES: usize = 1 << 20;

/// Enough for some hundred thousand files.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 30;

/// A backup in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// The id; later backups have higher ids.
    pub id: u64,
    /// When the state was taken, by the wall clock.
    pub taken: SystemTime,
    /// The last commit in it. The backup has exactly the commits up to this one.
    pub sequence: SequenceNumber,
    /// The random number of the database's incarnation. Compare only commits of the same one.
    pub incarnation: u64,
    /// Number of its files.
    pub files: u64,
    /// Bytes of its files: the space that a restored database takes.
    pub bytes: u64,
    /// Number of files that no earlier backup had and that were copied for this one.
    pub files_copied: u64,
    /// Bytes of the copied files.
    pub bytes_copied: u64,
}

/// The result of [`Backups::verify`].
#[derive(Debug, Default)]
pub struct BackupReport {
    /// Ids of verified backups without damage.
    pub whole: Vec<u64>,
    /// Ids of damaged backups. They cannot be restored.
    pub damaged: Vec<u64>,
    /// Files read. A shared file is read once.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Problems found; empty without damage.
    pub problems: Vec<Error>,
}

/// Rules for keeping the backups of a database. A backup stays if either rule keeps it; the newest
/// one always stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Keep this number of the newest backups.
    pub keep: Option<usize>,
    /// Keep backups up to this age.
    pub keep_for: Option<Duration>,
}

impl Retention {
    /// Returns the rule that keeps only the newest backup.
    pub fn new() -> Retention {
        Retention::default()
    }

    /// Keeps this number of the newest backups.
    pub fn keep(mut self, backups: usize) -> Retention {
        self.keep = Some(backups);
        self
    }

    /// Keeps backups up to this age.
    pub fn keep_for(mut self, age: Duration) -> Retention {
        self.keep_for = Some(age);
        self
    }
}

/// The backups of a target.
#[derive(Debug)]
pub struct Backups<'a> {
    target: &'a dyn BackupTarget,
}

#[derive(Debug, Default)]
pub struct Inventory {
    pub backups: BTreeMap<u64, Description>,
    pub damaged: BTreeMap<u64, Error>,
    pub begun: BTreeSet<u64>,
    /// Lengths by name.
    pub objects: BTreeMap<String, u64>,
}

impl Inventory {
    pub fn next_id(&self) -> u64 {
        let id_of = |kind| match kind {
            ObjectKind::Description(id) | ObjectKind::Begun(id) | ObjectKind::File(id) => id,
        };
        let last = self.objects.keys().filter_map(|name| ObjectKind::of(name)).map(id_of).max();
        last.unwrap_or(0).saturating_add(1)
    }
}

impl Description {
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
    /// Creates a handle for a target. Reads nothing yet.
    pub fn new(target: &'a dyn BackupTarget) -> Backups<'a> {
        Backups { target }
    }

    /// Lists all backups, oldest first. A damaged description is an error: see [`Backups::verify`]
    /// and [`Backups::delete`].
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        let inventory = self.inventory()?;
        if let Some(error) = inventory.damaged.into_values().next() {
            return Err(error);
        }
        Ok(inventory.backups.values().map(Description::info).collect())
    }

    /// Lists the backups with sound descriptions, oldest first, and the errors of the damaged ones.
    pub fn list_sound(&self) -> Result<(Vec<BackupInfo>, Vec<Error>)> {
        let inventory = self.inventory()?;
        let sound = inventory.backups.values().map(Description::info).collect();
        Ok((sound, inventory.damaged.into_values().collect()))
    }

    /// Lists the objects that a restore of a backup reads, the description last. A target that has
    /// copies of them restores the same.
    pub fn objects_of(&self, id: u64) -> Result<Vec<Object>> {
        let (description, name) = (self.find(Some(id))?, description_name(id));
        let object = |file: &BackedUpFile| Object { name: file.object_name(), len: file.identity.len };
        let mut objects: Vec<Object> = description.files.iter().map(object).collect();
        objects.extend(self.target.list()?.into_iter().filter(|object| object.name == name));
        Ok(objects)
    }

    /// Reads one backup, or all, and compares every checksum. Lists problems instead of returning
    /// them as errors. Returns `NotFound` if the backup does not exist.
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
                // Descriptions that disagree about an object cannot both be valid.
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

    /// Deletes a backup, even with a damaged description, and the files that no other backup has.
    pub fn delete(&self, id: u64) -> Result<()> {
        self.delete_all(&BTreeSet::from([id]))
    }

    /// Deletes the backups that no rule keeps at the time `now`, and returns their ids.
    ///
    /// The rules apply to each [incarnation](BackupInfo::incarnation) separately. A backup with a
    /// damaged description is neither counted nor deleted, and while it exists no file is removed.
    pub fn retain(&self, retention: Retention, now: SystemTime) -> Result<Vec<u64>> {
        let lives: BTreeSet<u64> = self.inventory()?.backups.values().map(|backup| backup.incarnation).collect();
        self.retain_of(&lives, retention, now)
    }

    /// [`Backups::retain`] for the backups of one database. See [`crate::Db::incarnation`].
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
        // Descriptions go first: an existing description implies that all its files exist.
        for id in ids {
            self.target.delete(&description_name(*id))?;
        }
        self.sweep()?;
        Ok(())
    }

    /// Removes objects that no backup refers to, and returns the remaining ones. Needs the lock.
    pub(super) fn sweep(&self) -> Result<Inventory> {
        let mut inventory = self.inventory()?;
        for id in std::mem::take(&mut inventory.begun) {
            // Only the marker was not deleted.
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
        // Markers go last: until then a later sweep can identify the remainders.
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

    /// Reads the list of objects and all descriptions.
    pub(super) fn inventory(&self) -> Result<Inventory> {
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

    /// Reads in pieces of at most 1 MiB. Only `Ok` at the end verifies them.
    pub(super) fn read(&self, file: &BackedUpFile, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
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

    /// `None`: the newest.
    pub(super) fn find(&self, id: Option<u64>) -> Result<Description> {
        let mut inventory = self.inventory()?;
        let newest = inventory.backups.keys().chain(inventory.damaged.keys()).max().copied();
        let id = id
            .or(newest)
            .ok_or_else(|| Error::NotFound(format!("there is no backup in {}", self.target.path_of("").display())))?;
        // An error even for the newest: the caller must ask for an older one.
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
