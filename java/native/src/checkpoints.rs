//! Checkpoints in a directory or a bucket, published by the latest claimant.

use crate::{
    admin::backup_info,
    boundary::{ABSENT, Outcome, free, give_handle, give_writer, handle, native, split, text},
    codec::{Reader, Writer},
    database,
    errors::Failure,
};
use braiddb::{Error, backup::DirectoryTarget, platform::SystemVfs};
use braiddb_object_store::{CheckpointInfo, Checkpoints};
use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc::{self, Receiver, Sender},
};

const TAKEN: jlong = 0;
const PUBLISHED: jlong = 1;
const SUPERSEDED: jlong = 2;

/// Opens a place: `s3://BUCKET/PREFIX`, or a directory, which is created if the place is to be
/// written. `None` if there is no such directory.
fn open(place: &str, is_written: bool) -> Outcome<Option<Checkpoints>> {
    if place.starts_with("s3://") {
        return s3(place).map(Some);
    }
    let target = if is_written {
        DirectoryTarget::open(place)
    } else {
        DirectoryTarget::existing_in(Arc::new(SystemVfs::new()), place)
    };
    match target {
        Err(Error::NotFound(_)) => Ok(None),
        target => Ok(Some(Checkpoints::new(target?))),
    }
}

#[cfg(feature = "s3")]
fn s3(url: &str) -> Outcome<Checkpoints> {
    use braiddb_object_store::{S3, TargetOptions};
    Ok(Checkpoints::new(S3::parse(url)?.open(TargetOptions::new())?))
}

#[cfg(not(feature = "s3"))]
fn s3(url: &str) -> Outcome<Checkpoints> {
    let advice = "this build of BraidDB's library has no S3: scripts/build-java.sh makes one that has";
    Err(Failure::argument(format!("{url} cannot be opened: {advice}")))
}

fn open_to_write(place: &str) -> Outcome<Checkpoints> {
    open(place, true)?.ok_or_else(|| Failure::internal("a directory was not created".to_owned()))
}

native! {
    /// Returns the newest checkpoint, or that there is none.
    fn checkpoints_newest(place_len: jint) |buffer| {
        let newest = open(text(buffer, place_len)?, false)?.map(|checkpoints| checkpoints.newest()).transpose()?;
        match newest.flatten() {
            Some(info) => give_info(buffer, &info),
            None => Ok(ABSENT),
        }
    }
}

fn give_info(buffer: &mut [u8], info: &CheckpointInfo) -> Outcome {
    let mut result = Writer::new();
    backup_info(&mut result, info);
    give_writer(buffer, result)
}

native! {
    /// Installs a checkpoint. The buffer has the place and the path.
    fn checkpoints_install(id: jlong, arguments_len: jint) |buffer| {
        let (arguments, _) = split(buffer, arguments_len)?;
        let mut arguments = Reader::new(arguments);
        let (place, path) = (arguments.text()?, arguments.text()?);
        let none = || Error::NotFound(format!("there is no {place}"));
        open(place, false)?.ok_or_else(none)?.install(id as u64, path)?;
        Ok(0)
    }
}

native! {
    /// Claims a place. The buffer has the place and the claimant. Returns the epoch.
    fn checkpoints_claim(arguments_len: jint) |buffer| {
        let (arguments, _) = split(buffer, arguments_len)?;
        let mut arguments = Reader::new(arguments);
        Ok(open_to_write(arguments.text()?)?.claim(arguments.text()?)? as jlong)
    }
}

enum Event {
    Taken,
    Ended(Result<Option<CheckpointInfo>, Error>),
}

/// A publication, which a thread of its own does.
struct PublicationCell {
    events: Mutex<Receiver<Event>>,
    info: Mutex<Option<CheckpointInfo>>,
    is_cancelled: Arc<AtomicBool>,
}

impl Drop for PublicationCell {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Release);
    }
}

native! {
    /// Begins to publish the latest state.
    fn publication_begin(database: jlong, epoch: jlong, place_len: jint) |buffer| {
        let checkpoints = open_to_write(text(buffer, place_len)?)?;
        let db = database::open(database)?.clone();
        let (sender, events) = mpsc::channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = Arc::clone(&is_cancelled);
        let publish = move || {
            let taken: &(dyn Fn() + Sync) = &|| drop(sender.send(Event::Taken));
            let published = checkpoints.publish_as(epoch as u64, &db, taken, &cancelled);
            // The database must not outlive the publication that Java knows of.
            drop(db);
            let sender: &Sender<Event> = &sender;
            let _ = sender.send(Event::Ended(published));
        };
        let thread = std::thread::Builder::new().name("braiddb-checkpoint".to_owned());
        thread.spawn(publish).map_err(|e| Error::io("start a thread for", "a checkpoint", e))?;
        give_handle(buffer, PublicationCell { events: Mutex::new(events), info: Mutex::new(None), is_cancelled })
    }
}

native! {
    /// Waits until the state is taken, then until the publication ended.
    fn publication_next(publication: jlong) |_buffer| {
        let cell = handle::<PublicationCell>(publication)?;
        let event = cell.events.lock().recv();
        match event.map_err(|_| Failure::internal("the publication ended with a fault".to_owned()))? {
            Event::Taken => Ok(TAKEN),
            Event::Ended(published) => match published? {
                Some(info) => {
                    *cell.info.lock() = Some(info);
                    Ok(PUBLISHED)
                }
                None => Ok(SUPERSEDED),
            },
        }
    }
}

native! {
    /// Returns the published checkpoint.
    fn publication_info(publication: jlong) |buffer| {
        match &*handle::<PublicationCell>(publication)?.info.lock() {
            Some(info) => give_info(buffer, info),
            None => Ok(ABSENT),
        }
    }
}

native! {
    /// Makes the publication fail unless it is visible already. Does not wait.
    fn publication_cancel(publication: jlong) |_buffer| {
        handle::<PublicationCell>(publication)?.is_cancelled.store(true, Ordering::Release);
        Ok(0)
    }
}

/// Frees a publication, and cancels it.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn publication_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, publication: jlong) {
    free::<PublicationCell>(publication);
}
