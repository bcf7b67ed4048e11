//! Reads an object in ranges, several at the same time, in constant memory.

use crate::{
    remote::Remote,
    target::{State, verify},
    threads::Threads,
};
use braiddb::{Error, Result, backup::ObjectReader};
use bytes::{Buf, Bytes};
use std::{collections::VecDeque, sync::Arc};
use tokio::{sync::Mutex, task::JoinHandle};

#[derive(Debug)]
pub struct Reader {
    remote: Arc<Remote>,
    threads: Arc<Threads>,
    held: Arc<Mutex<State>>,
    name: Arc<str>,
    len: u64,
    /// Offset of the next range to ask for.
    asked: u64,
    /// Ranges pending, in order.
    pending: VecDeque<JoinHandle<Result<Bytes>>>,
    current: Bytes,
}

impl Reader {
    pub fn new(remote: Arc<Remote>, threads: Arc<Threads>, held: Arc<Mutex<State>>, name: &str, len: u64) -> Reader {
        let (pending, current) = (VecDeque::new(), Bytes::new());
        Reader { remote, threads, held, name: name.into(), len, asked: 0, pending, current }
    }

    fn ask(&mut self) {
        while self.asked < self.len && self.pending.len() < self.remote.options.parallel {
            let end = self.len.min(self.asked + self.remote.options.part_bytes as u64);
            let (remote, name, range) = (Arc::clone(&self.remote), Arc::clone(&self.name), self.asked..end);
            let held = Arc::clone(&self.held);
            self.pending.push_back(self.threads.spawn(async move {
                match remote.get_range(&name, range).await {
                    // See P2 in `publish.rs`.
                    Err(e @ Error::NotFound(_)) => verify(&remote, &held).await.and(Err(e)),
                    other => other,
                }
            }));
            self.asked = end;
        }
    }
}

impl ObjectReader for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.current.is_empty() {
            self.ask();
            let Some(next) = self.pending.pop_front() else { return Ok(0) };
            self.current = self.threads.run(next).expect("a read is neither aborted nor panics")?;
            self.ask();
        }
        let read = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..read]);
        Ok(read)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.pending.iter().for_each(JoinHandle::abort);
    }
}
