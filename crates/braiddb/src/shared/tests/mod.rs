//! Tests of the parts of shared databases. `tests/shared` tests their behaviour.

#![expect(clippy::disallowed_methods, reason = "tests of threads and times")]

mod forward;
mod owner;
mod protocol;
mod role;

use super::{
    SharedDb, SharedOptions,
    frame::{FrameError, FrameReader},
    message::Reply,
    polling::PollingReader,
};
use crate::{
    codec::put_varint,
    db::{Durability, Settings, tests_common::small},
    platform::{LocalStream, SystemRuntime, SystemVfs, Vfs},
};
use std::{path::Path, sync::Arc, time::Duration};

fn settings(vfs: &Arc<dyn Vfs>) -> Settings {
    Settings {
        durability: Durability::Buffered,
        runtime: Arc::new(SystemRuntime::new()),
        background_threads: 1,
        ..small(vfs)
    }
}

fn on_disk() -> Settings {
    let vfs: Arc<dyn Vfs> = Arc::new(SystemVfs::default());
    settings(&vfs)
}

fn open(dir: &Path) -> SharedDb {
    SharedDb::open(on_disk(), SharedOptions::default(), dir).unwrap()
}

fn open_with(settings: &Settings, timeout: Duration, dir: &Path) -> SharedDb {
    SharedDb::open(settings.clone(), SharedOptions::default().with_timeout(timeout), dir).unwrap()
}

/// Waits for a reply, at most some seconds.
fn reply(frames: &mut FrameReader, stream: &LocalStream) -> Result<Option<Reply>, FrameError> {
    let runtime = SystemRuntime::new();
    let mut reader = PollingReader { stream, runtime: &runtime, polling: None, pause: Duration::from_millis(20) };
    let mut pauses = 0;
    let read = frames.read(&mut reader, &mut || {
        pauses += 1;
        pauses > 500
    });
    read.map(Reply::decode)
}

/// A batch of one put, as in the log.
fn put(tree: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 1];
    put_varint(&mut out, 4 + key.len() as u64);
    out.extend_from_slice(&tree.to_be_bytes());
    out.extend_from_slice(key);
    put_varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}
