//! Requests to a store under one prefix, repeated after failures for a bounded time.

use crate::{TargetOptions, failure};
use braiddb::{Error, Result};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, PutMode, PutOptions, PutResult, UpdateVersion,
    path::Path as Key,
};
use std::{future::Future, ops::Range, path::PathBuf, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

pub type StoreResult<T> = std::result::Result<T, StoreError>;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Bytes per second that an attempt is expected to reach at least.
const SLOWEST_BYTES_PER_SECOND: u64 = 1 << 20;

#[derive(Debug)]
pub struct Remote {
    pub store: Arc<dyn ObjectStore>,
    pub prefix: Key,
    /// The store's name in messages: "s3://bucket".
    pub shown: String,
    pub options: TargetOptions,
}

/// Time and pauses of a request with its attempts.
pub struct Attempts {
    until: Instant,
    pause: Duration,
}

impl Attempts {
    /// Waits before the next attempt, a longer time after each. Returns false if time is up.
    pub async fn next(&mut self) -> bool {
        if Instant::now() + self.pause > self.until {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

impl Remote {
    pub fn key(&self, name: &str) -> Key {
        self.prefix.clone().join(name)
    }

    pub fn path_of(&self, name: &str) -> PathBuf {
        let mut shown = self.shown.clone();
        for part in [self.prefix.as_ref(), name].into_iter().filter(|part| !part.is_empty()) {
            shown.push('/');
            shown.push_str(part);
        }
        PathBuf::from(shown)
    }

    pub fn error(&self, action: &'static str, name: &str, error: &StoreError) -> Error {
        failure::to_error(action, &self.path_of(name), error)
    }

    pub fn attempts(&self) -> Attempts {
        self.attempts_for(self.options.request_time)
    }

    pub fn attempts_for(&self, time: Duration) -> Attempts {
        Attempts { until: Instant::now() + time, pause: PAUSE_MIN.min(self.options.request_time / 100) }
    }

    /// Performs one attempt that moves up to `bytes`, in bounded time.
    pub async fn once<T>(&self, bytes: u64, attempt: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let time = self.options.attempt_time + Duration::from_secs(bytes / SLOWEST_BYTES_PER_SECOND);
        timeout(time, attempt).await.unwrap_or_else(|_| {
            Err(StoreError::Generic { store: "braiddb", source: format!("no reply within {time:?}").into() })
        })
    }

    async fn repeat<T, F: Future<Output = StoreResult<T>>>(
        &self,
        bytes: u64,
        mut attempt: impl FnMut() -> F,
    ) -> StoreResult<T> {
        let mut attempts = self.attempts();
        loop {
            match self.once(bytes, attempt()).await {
                Err(e) if failure::is_transient(&e) => {
                    tracing::debug!(error = %e, "a request to the object store failed");
                    if !attempts.next().await {
                        return Err(e);
                    }
                }
                done => return done,
            }
        }
    }

    /// Lists the objects directly under the prefix.
    pub async fn list(&self) -> Result<Vec<ObjectMeta>> {
        let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
        let listed = self.repeat(0, || self.store.list_with_delimiter(prefix)).await;
        Ok(listed.map_err(|e| self.error("list", "", &e))?.objects)
    }

    pub async fn len(&self, name: &str) -> Result<u64> {
        let key = self.key(name);
        let found = self.repeat(0, || self.store.get_opts(&key, GetOptions { head: true, ..GetOptions::default() }));
        Ok(found.await.map_err(|e| self.error("open", name, &e))?.meta.size)
    }

    /// Reads a whole object; `None` if there is none.
    pub async fn get(&self, name: &str) -> Result<Option<(Bytes, UpdateVersion)>> {
        let key = self.key(name);
        let found = self.repeat(0, || async {
            let found = self.store.get_opts(&key, GetOptions::default()).await?;
            let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
            Ok((found.bytes().await?, version))
        });
        match found.await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.error("read", name, &e)),
        }
    }

    pub async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let key = self.key(name);
        let wanted = range.end - range.start;
        let found = self.repeat(wanted, || async {
            let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
            let bytes = self.store.get_opts(&key, options).await?.bytes().await?;
            if bytes.len() as u64 != wanted {
                let text = format!("{} bytes came instead of {wanted}", bytes.len());
                return Err(StoreError::Generic { store: "braiddb", source: text.into() });
            }
            Ok(bytes)
        });
        found.await.map_err(|e| self.error("read", name, &e))
    }

    /// Performs one attempt of a conditional put.
    pub async fn put_once(&self, name: &str, bytes: &Bytes, mode: PutMode) -> StoreResult<PutResult> {
        let key = self.key(name);
        let options = PutOptions { mode, ..PutOptions::default() };
        self.once(bytes.len() as u64, self.store.put_opts(&key, bytes.clone().into(), options)).await
    }

    /// Creates an object in one request. An attempt whose reply was lost is recognized by the
    /// contents.
    pub async fn create(&self, name: &str, bytes: Bytes) -> Result<()> {
        if !self.options.conditional_writes {
            let key = self.key(name);
            let put = self
                .repeat(bytes.len() as u64, || self.store.put_opts(&key, bytes.clone().into(), PutOptions::default()));
            return put.await.map(drop).map_err(|e| self.error("write", name, &e));
        }
        let mut attempts = self.attempts();
        loop {
            let error = match self.put_once(name, &bytes, PutMode::Create).await {
                Ok(_) => return Ok(()),
                // S3 also answers so while another create is in progress, which may fail.
                Err(e @ StoreError::AlreadyExists { .. }) => match self.get(name).await? {
                    Some((found, _)) if found == bytes => return Ok(()),
                    Some(_) => return Err(self.error("write", name, &e)),
                    None => e,
                },
                Err(e) if failure::is_transient(&e) => e,
                Err(e) => return Err(self.error("write", name, &e)),
            };
            if !attempts.next().await {
                return Err(self.error("write", name, &error));
            }
        }
    }

    /// Deletes an object. S3 does not report a missing one.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let key = self.key(name);
        let mut is_repeated = false;
        let deleted = self.repeat(0, || {
            let again = std::mem::replace(&mut is_repeated, true);
            let mut deleting = self.store.delete_stream(stream::iter([Ok(key.clone())]).boxed());
            async move {
                match deleting.next().await {
                    // An attempt whose reply was lost.
                    Some(Err(StoreError::NotFound { .. })) if again => Ok(()),
                    Some(Err(e)) => Err(e),
                    Some(Ok(_)) | None => Ok(()),
                }
            }
        });
        deleted.await.map_err(|e| self.error("remove", name, &e))
    }
}
