//! The threads that perform requests. Callers block, also those inside of an async runtime.

use braiddb::{Error, Result};
use std::{future::Future, sync::mpsc};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Enough for the TLS of one network card; requests wait for the network most of the time.
const THREADS: usize = 2;

#[derive(Debug)]
pub struct Threads {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Threads {
    pub fn start() -> Result<Threads> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).thread_name("braiddb-objects").enable_all().build();
        Ok(Threads { runtime: Some(runtime.map_err(|e| Error::io("start threads for", "requests", e))?) })
    }

    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let runtime = self.runtime.as_ref().expect("the runtime is there until the drop");
        runtime.spawn(task)
    }

    /// Runs a task and waits for it. `Runtime::block_on` would panic in a thread of another runtime.
    pub fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = sender.send(task.await);
        });
        receiver.recv().expect("a task for the object store does not panic")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // The drop of a runtime waits for it, which panics in a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
