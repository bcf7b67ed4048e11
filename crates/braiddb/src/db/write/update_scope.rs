//! Refuses writes that bypass the transaction of `Db::update`.
//!
//! A `Tree::put` inside the closure of [`Db::update`](crate::db::handles::database::Db::update)
//! would commit at once, outside the transaction, and again at each retry. So would a nested
//! `Db::update`. The closure runs on one thread. So each thread lists the databases whose closures
//! it runs, and its direct commits and nested updates of them fail. A transaction of `Db::begin` is
//! allowed: its author wrote the commit.
//!
//! Commits read the list only while a closure runs: the count of closures shares a word with the
//! flag of exclusive transactions, which each commit loads anyway.

use crate::{
    base::{Error, Result},
    db::engine::{parts::commits::NOTICE_UPDATE, root::Engine},
};
use std::{
    cell::{Cell, RefCell},
    ptr,
    sync::atomic::Ordering,
};

std::thread_local! {
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// Set while this thread makes an intended separate commit.
    static IS_MEANT: Cell<bool> = const { Cell::new(false) };
}

/// A closure of `Db::update` on this thread. It must be dropped on the same thread.
#[derive(Debug)]
pub struct UpdateScope<'a> {
    engine: &'a Engine,
}

impl UpdateScope<'_> {
    pub fn begin(engine: &Engine) -> UpdateScope<'_> {
        RUNNING.with_borrow_mut(|running| running.push(ptr::from_ref(engine).addr()));
        engine.commits.exclusivity.notices.fetch_add(NOTICE_UPDATE, Ordering::Relaxed);
        UpdateScope { engine }
    }
}

impl Drop for UpdateScope<'_> {
    fn drop(&mut self) {
        self.engine.commits.exclusivity.notices.fetch_sub(NOTICE_UPDATE, Ordering::Relaxed);
        RUNNING.with_borrow_mut(|running| _ = running.pop());
    }
}

/// Runs `work` with intended separate commits: another transaction, or a new tree.
pub fn meant<R>(work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_MEANT.set(self.0);
        }
    }
    let _before = Before(IS_MEANT.replace(true));
    work()
}

fn is_running(engine: &Engine) -> bool {
    let address = ptr::from_ref(engine).addr();
    RUNNING.with_borrow(|running| running.contains(&address))
}

/// Fails inside a closure of `Db::update` of this database on this thread.
pub fn check_not_nested(engine: &Engine) -> Result<()> {
    // A thread sees its own increment, so a relaxed load suffices.
    if engine.commits.exclusivity.notices.load(Ordering::Relaxed) < NOTICE_UPDATE || !is_running(engine) {
        return Ok(());
    }
    Err(Error::InvalidArgument(
        "Db::update, or a write that uses it, inside Db::update of the same database: it would commit at once, and \
         again with each retry; write through the transaction that the closure is given (a typed tree: `in_tx`), or \
         begin a separate one with Db::begin"
            .to_owned(),
    ))
}

pub fn check_outside(engine: &Engine) -> Result<()> {
    if IS_MEANT.get() || !is_running(engine) {
        return Ok(());
    }
    Err(Error::InvalidArgument(
        "a write inside Db::update that bypasses its transaction: it would take effect at once, and again with each \
         retry; write through the transaction that the closure is given, or outside of the closure"
            .to_owned(),
    ))
}
