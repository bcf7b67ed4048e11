//! A prefix of an object store as a backup target.

use crate::{
    TargetOptions,
    lease::{self, Held, LEASE_NAME},
    publish,
    reader::Reader,
    remote::Remote,
    threads::Threads,
    writer::Writer,
};
use braiddb::{
    Error, Result,
    backup::{BackupTarget, Object, ObjectReader, ObjectWriter, TargetLock},
};
use bytes::Bytes;
use object_store::{ObjectStore, path::Path as Key};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{sync::Mutex, task::JoinHandle};

/// A prefix of an object store that holds backups.
///
/// Its [lock](BackupTarget::lock) is a lease in the object `lease`, which a crashed process loses
/// after [`TargetOptions::lease_time`]. The store must have conditional writes, as S3 and its
/// common replacements do. A process that lost the lease without noticing, since it was suspended
/// or cut off, cannot publish a backup, and deletes nothing that a later backup needs.
///
/// The objects have the names and contents of the files of a
/// [`DirectoryTarget`](braiddb::backup::DirectoryTarget), so that copies of them in a directory are
/// backups too.
///
/// Calls block until the store replies, up to [`TargetOptions::request_time`]. They may be made
/// inside of an async runtime.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::{Builder, backup::Backups, platform::MemVfs};
/// use braiddb_object_store::{ObjectStoreTarget, TargetOptions};
/// use std::sync::Arc;
///
/// let store = Arc::new(object_store::memory::InMemory::new());
/// let target = ObjectStoreTarget::open(store, "backups/music", TargetOptions::new())?;
/// let vfs = Arc::new(MemVfs::new());
/// let db = Builder::new().vfs(vfs.clone()).open("/music.db")?;
/// db.tree("albums")?.put(b"1", b"Ten")?;
/// let backup = db.backup(&target)?;
/// assert_eq!(Backups::new(&target).list()?, [backup]);
///
/// Builder::new().vfs(vfs.clone()).restore(&target, None, "/restored.db")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ObjectStoreTarget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    remote: Arc<Remote>,
    threads: Arc<Threads>,
    held: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
pub enum State {
    #[default]
    Free,
    Held(Held),
    /// A renewal failed since another process has the lease.
    Lost,
}

impl ObjectStoreTarget {
    /// Opens the prefix, such as `backups/music`, of a store. Reads nothing yet.
    pub fn open(store: Arc<dyn ObjectStore>, prefix: &str, options: TargetOptions) -> Result<ObjectStoreTarget> {
        let shown = store.to_string();
        ObjectStoreTarget::open_as(store, prefix, &shown, options)
    }

    /// [`ObjectStoreTarget::open`] with a name of the store for messages, such as `s3://bucket`.
    pub fn open_as(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        shown: &str,
        options: TargetOptions,
    ) -> Result<ObjectStoreTarget> {
        options.check()?;
        let prefix = Key::parse(prefix.trim_matches('/'))
            .map_err(|e| Error::InvalidArgument(format!("{prefix:?} cannot be a prefix of object names: {e}")))?;
        let remote = Remote { store, prefix, shown: shown.to_owned(), options };
        let (threads, held) = (Arc::new(Threads::start()?), Arc::default());
        Ok(ObjectStoreTarget { shared: Arc::new(Shared { remote: Arc::new(remote), threads, held }) })
    }

    fn run<T, F>(&self, task: impl FnOnce(Arc<Remote>, Arc<Mutex<State>>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.shared.threads.run(task(Arc::clone(&self.shared.remote), Arc::clone(&self.shared.held)))
    }
}

/// Fails if this process had the lease and lost it.
pub async fn verify(remote: &Remote, held: &Mutex<State>) -> Result<()> {
    let held = match &*held.lock().await {
        State::Free => return Ok(()),
        State::Lost => return Err(lease::lost(remote, None)),
        State::Held(held) => held.clone(),
    };
    held.verify(remote).await
}

impl BackupTarget for ObjectStoreTarget {
    fn put(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        let (remote, threads) = (Arc::clone(&self.shared.remote), Arc::clone(&self.shared.threads));
        Ok(Box::new(Writer::new(remote, threads, name)))
    }

    fn publish(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (name, bytes) = (name.to_owned(), Bytes::copy_from_slice(bytes));
        self.run(|remote, held| async move {
            let held = match &*held.lock().await {
                State::Held(held) => held.clone(),
                State::Lost => return Err(lease::lost(&remote, None)),
                State::Free => return remote.create(&name, bytes).await,
            };
            publish::publish(&remote, &held, &name, bytes).await
        })
    }

    fn get(&self, name: &str) -> Result<Box<dyn ObjectReader>> {
        let (remote, threads) = (Arc::clone(&self.shared.remote), Arc::clone(&self.shared.threads));
        let opened = name.to_owned();
        let len = self.run(|remote, held| async move {
            match remote.len(&opened).await {
                Err(e @ Error::NotFound(_)) => verify(&remote, &held).await.and(Err(e)),
                other => other,
            }
        })?;
        Ok(Box::new(Reader::new(remote, threads, Arc::clone(&self.shared.held), name, len)))
    }

    fn list(&self) -> Result<Vec<Object>> {
        self.run(|remote, held| async move {
            let mut objects = Vec::new();
            for object in remote.list().await? {
                let Some(name) = object.location.filename().filter(|name| *name != LEASE_NAME) else { continue };
                if !publish::is_hidden(&remote, &object).await? {
                    objects.push(Object { name: name.to_owned(), len: object.size });
                }
            }
            verify(&remote, &held).await?;
            Ok(objects)
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run(|remote, held| async move {
            if matches!(&*held.lock().await, State::Lost) {
                return Err(lease::lost(&remote, None));
            }
            remote.delete(&name).await
        })
    }

    fn lock(&self) -> Result<Box<dyn TargetLock>> {
        if !self.shared.remote.options.conditional_writes {
            return Ok(Box::new(()));
        }
        let renewal = self.run(|remote, held| async move {
            let mut state = held.lock().await;
            if !matches!(*state, State::Free) {
                return Err(lease::locked(&remote, "this process".to_owned()));
            }
            *state = State::Held(lease::acquire(&remote).await?);
            drop(state);
            if let Err(e) = publish::close_placeholders(&remote).await {
                release(&remote, &held).await;
                return Err(e);
            }
            Ok(tokio::spawn(renew(remote, Arc::clone(&held))))
        })?;
        Ok(Box::new(LeaseLock { target: self.clone(), renewal }))
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.shared.remote.path_of(name)
    }
}

#[derive(Debug)]
struct LeaseLock {
    target: ObjectStoreTarget,
    renewal: JoinHandle<()>,
}

impl TargetLock for LeaseLock {
    fn reserve(&self, at_least: u64) -> Result<u64> {
        self.target.run(|remote, held| async move {
            match &mut *held.lock().await {
                State::Held(held) => {
                    let attempts = remote.attempts();
                    held.write(&remote, attempts, |lease| lease.next_id = lease.next_id.max(at_least) + 1).await?;
                    Ok(held.lease.next_id - 1)
                }
                State::Free | State::Lost => Err(lease::lost(&remote, None)),
            }
        })
    }
}

impl Drop for LeaseLock {
    fn drop(&mut self) {
        self.renewal.abort();
        self.target.run(|remote, held| async move { release(&remote, &held).await });
    }
}

/// After a failure the lease expires by itself.
async fn release(remote: &Remote, held: &Mutex<State>) {
    if let State::Held(mut held) = std::mem::take(&mut *held.lock().await) {
        let attempts = remote.attempts_for(remote.options.request_time / 10);
        if let Err(e) = held.write(remote, attempts, |lease| lease.until_us = 0).await {
            tracing::warn!(error = %e, "the lock of backups could not be released and expires by itself");
        }
    }
}

async fn renew(remote: Arc<Remote>, held: Arc<Mutex<State>>) {
    let period: Duration = remote.options.lease_time / 3;
    loop {
        tokio::time::sleep(period).await;
        let mut state = held.lock().await;
        let State::Held(held) = &mut *state else { return };
        match held.write(&remote, remote.attempts_for(period), |_| ()).await {
            Err(e) if lease::is_lost(&e) => {
                tracing::warn!(error = %e, "the lock of backups was lost");
                *state = State::Lost;
                return;
            }
            Err(e) => tracing::warn!(error = %e, "the lock of backups could not be renewed"),
            Ok(()) => {}
        }
    }
}
