//! Tests of the protocol of shared databases. `tests/shared` tests their behaviour.

mod protocol;

use super::{SharedDb, SharedOptions};
use crate::{
    db::{Durability, Settings, tests_common::small},
    platform::{SystemRuntime, SystemVfs, Vfs},
};
use std::{path::Path, sync::Arc};

fn open(dir: &Path) -> SharedDb {
    let vfs: Arc<dyn Vfs> = Arc::new(SystemVfs::default());
    let settings = Settings {
        durability: Durability::Buffered,
        runtime: Arc::new(SystemRuntime::new()),
        background_threads: 1,
        ..small(&vfs)
    };
    SharedDb::open(settings, SharedOptions::default(), dir).unwrap()
}
