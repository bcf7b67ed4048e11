//! The extension module `_braiddb`: BraidDB's handles as Python classes of bytes.
//!
//! The package `braiddb` in `python/braiddb` builds its interface on it: mappings, codecs, caches.
//!
//! INVARIANT P1: every call of the engine that reads or writes a database, or that may wait for a
//! lock, runs detached from the interpreter. A merge function in Python attaches from any thread of
//! the engine, perhaps with locks of the engine held, so a thread that waits for such a lock while
//! attached would never get it. Attached code only builds arguments, copies results, and drops
//! rows; [`handle::Handle`] detaches to drop everything else.
//!
//! INVARIANT P2: nothing relies on the GIL, so the module keeps it off in builds without it. All
//! classes are frozen, and changes inside them are behind locks or atomics. Only `bytes`, which
//! never change, are borrowed while detached; a `bytearray` is copied in its critical section, a
//! memoryview by the interpreter. No thread waits attached for a lock that its holder keeps while
//! it attaches.

mod admin;
mod args;
mod change;
mod commit;
mod db;
mod errors;
mod handle;
mod merge;
mod multi;
mod options;
mod rows;
mod stats;
mod stream;
mod transaction;
mod tree;
mod view;
mod watch;
mod writes;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _braiddb {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::{
        admin::{backups, delete_backup, restore, verify_backups, verify_path},
        change::RawLoggedStream,
        commit::RawCommit,
        db::{RawDb, RawFollower, RawSnapshot, close_all},
        multi::RawMultiTree,
        rows::Rows,
        stream::{RawStreamReader, RawStreamWriter},
        transaction::{RawSavepoint, RawTransaction},
        tree::RawTree,
        watch::RawWatcher,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::handle::watch_forks(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
