//! Writes an object: in one request if it is short, otherwise as a multipart upload with several
//! parts at the same time, in constant memory. Only a finished object is visible.

use crate::{failure, remote::Remote, threads::Threads};
use braiddb::{Error, Result, backup::ObjectWriter};
use object_store::{Error as StoreError, MultipartUpload, PutMultipartOptions};
use std::{collections::VecDeque, sync::Arc};
use tokio::task::JoinHandle;

/// Limit of S3.
const PARTS_MAX: usize = 10_000;

#[derive(Debug)]
pub struct Writer {
    remote: Arc<Remote>,
    threads: Arc<Threads>,
    name: String,
    buffer: Vec<u8>,
    /// `None` until the first part is full.
    upload: Option<Box<dyn MultipartUpload>>,
    parts: usize,
    len: u64,
    /// Parts pending, in order.
    pending: VecDeque<JoinHandle<object_store::Result<()>>>,
}

impl Writer {
    pub fn new(remote: Arc<Remote>, threads: Arc<Threads>, name: &str) -> Writer {
        let (buffer, pending) = (Vec::new(), VecDeque::new());
        Writer { remote, threads, name: name.to_owned(), buffer, upload: None, parts: 0, len: 0, pending }
    }

    fn begin(&mut self) -> Result<()> {
        let (remote, key) = (Arc::clone(&self.remote), self.remote.key(&self.name));
        let begun = self.threads.run(async move {
            let mut attempts = remote.attempts();
            loop {
                let begin = remote.store.put_multipart_opts(&key, PutMultipartOptions::default());
                match remote.once(0, begin).await {
                    Err(e) if failure::is_transient(&e) && attempts.next().await => {}
                    begun => return begun,
                }
            }
        });
        self.upload = Some(begun.map_err(|e| self.remote.error("write", &self.name, &e))?);
        Ok(())
    }

    fn send_part(&mut self) -> Result<()> {
        if self.parts == PARTS_MAX {
            let (path, bytes) = (self.remote.path_of(&self.name), self.remote.options.part_bytes);
            return Err(Error::InvalidArgument(format!(
                "{} needs more than {PARTS_MAX} parts of {bytes} bytes: raise TargetOptions::part_bytes",
                path.display()
            )));
        }
        if self.upload.is_none() {
            self.begin()?;
        }
        self.wait(self.remote.options.parallel - 1)?;
        let part = std::mem::take(&mut self.buffer);
        self.len += part.len() as u64;
        let upload = self.upload.as_mut().expect("the upload was begun");
        // Only the store can repeat a part: see `RetryConfig`.
        let sending = upload.put_part(part.into());
        self.pending.push_back(self.threads.spawn(sending));
        self.parts += 1;
        Ok(())
    }

    /// Waits until at most `left` parts are pending.
    fn wait(&mut self, left: usize) -> Result<()> {
        while self.pending.len() > left {
            let Some(part) = self.pending.pop_front() else { break };
            let sent = self.threads.run(part).expect("an upload is neither aborted nor panics");
            sent.map_err(|e| self.remote.error("write", &self.name, &e))?;
        }
        Ok(())
    }
}

impl ObjectWriter for Writer {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let part_bytes = self.remote.options.part_bytes;
        while !bytes.is_empty() {
            let taken = bytes.len().min(part_bytes - self.buffer.len());
            self.buffer.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.buffer.len() == part_bytes {
                self.send_part()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        if self.upload.is_none() {
            let (remote, name, bytes) = (Arc::clone(&self.remote), self.name.clone(), std::mem::take(&mut self.buffer));
            return self.threads.run(async move { remote.create(&name, bytes.into()).await });
        }
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        self.wait(0)?;
        let Some(mut upload) = self.upload.take() else { return Ok(()) };
        let (remote, name, len) = (Arc::clone(&self.remote), self.name.clone(), self.len);
        self.threads.run(async move {
            match remote.once(0, upload.complete()).await {
                Ok(_) => Ok(()),
                // The reply may be lost. The name is new, so an object of this length is this one.
                Err(e) if remote.len(&name).await.is_ok_and(|found| found == len) => {
                    tracing::debug!(error = %e, "a finished upload reported an error");
                    Ok(())
                }
                Err(e) => {
                    abort(&mut *upload).await;
                    Err(remote.error("write", &name, &e))
                }
            }
        })
    }
}

async fn abort(upload: &mut dyn MultipartUpload) {
    match upload.abort().await {
        Ok(()) | Err(StoreError::NotFound { .. }) => {}
        Err(e) => tracing::warn!(error = %e, "parts of an unfinished upload stay: a lifecycle rule can remove them"),
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.pending.iter().for_each(JoinHandle::abort);
        if let Some(mut upload) = self.upload.take() {
            self.threads.run(async move { abort(&mut *upload).await });
        }
    }
}
