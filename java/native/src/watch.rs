//! The change stream.

use crate::{
    admin::micros_of,
    boundary::{ABSENT, Outcome, free, give, give_handle, give_writer, handle, native, split},
    codec::{Reader, Writer},
    database,
    errors::Failure,
    tree::{AnyTree, TreeCell},
};
use braiddb::watch::{
    Change, ChangeSet, ChangedTree, Gap, MergeBase, ResumeToken, WatchOptions, WatchStopper, Watcher,
};
use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use parking_lot::{Mutex, RwLock};
use std::time::Duration;

/// A watcher until its close.
struct WatcherCell {
    watcher: Mutex<Option<Box<Watcher>>>,
    /// Ends the wait of a thread that holds the watcher.
    stopper: RwLock<Option<WatchStopper>>,
}

native! {
    /// Begins to watch. Numbers below 0 are absent. The buffer has a prefix and a token.
    fn watch_open(database: jlong, tree: jlong, after: jlong, is_from_oldest: jint, is_unsynced: jint, arguments_len: jint) |buffer| {
        let (arguments, _) = split(buffer, arguments_len)?;
        let mut arguments = Reader::new(arguments);
        let (prefix, token) = (arguments.maybe_bytes()?, arguments.maybe_bytes()?);
        let mut options = WatchOptions::new().unsynced(is_unsynced != 0);
        if tree != 0 {
            options = match &handle::<TreeCell>(tree)?.tree {
                AnyTree::Plain(tree) => options.tree(tree),
                AnyTree::Multi(tree) => options.multi_tree(tree),
            };
        }
        if let Some(prefix) = prefix {
            options = options.prefix(prefix);
        }
        if let Some(token) = token {
            options = options.resume(ResumeToken::from_bytes(token)?);
        }
        if let Ok(after) = u64::try_from(after) {
            options = options.after(after);
        }
        if is_from_oldest != 0 {
            options = options.from_oldest();
        }
        let watcher = database::open(database)?.watch(options)?;
        let stopper = RwLock::new(Some(watcher.stopper()));
        give_handle(buffer, WatcherCell { watcher: Mutex::new(Some(Box::new(watcher))), stopper })
    }
}

native! {
    /// Waits for the next commit, for at most so long. Java repeats short waits, so that a thread
    /// can be interrupted.
    fn watch_next(watcher: jlong, timeout_us: jlong) |buffer| {
        let cell = handle::<WatcherCell>(watcher)?;
        let mut watcher = cell.watcher.lock();
        let watcher = watcher.as_mut().ok_or_else(Failure::closed)?;
        let timeout = Duration::from_micros(u64::try_from(timeout_us).unwrap_or(0));
        match watcher.next_timeout(timeout)? {
            Some(set) => give_writer(buffer, change_set(set)?),
            // A stopped watcher returns at once.
            None if cell.stopper.read().is_none() => Err(Failure::closed()),
            None => Ok(ABSENT),
        }
    }
}

native! {
    /// Returns the token of the last returned commit.
    fn watch_token(watcher: jlong) |buffer| {
        let watcher = handle::<WatcherCell>(watcher)?.watcher.lock();
        give(buffer, &watcher.as_ref().ok_or_else(Failure::closed)?.token().to_bytes())
    }
}

native! {
    /// Ends a watcher, and the wait of another thread.
    fn watch_close(watcher: jlong) |_buffer| {
        let cell = handle::<WatcherCell>(watcher)?;
        if let Some(stopper) = cell.stopper.write().take() {
            stopper.stop();
        }
        drop(cell.watcher.lock().take());
        Ok(0)
    }
}

/// Frees a watcher.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn watch_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, watcher: jlong) {
    free::<WatcherCell>(watcher);
}

/// Encodes a commit: number, time or -1, token, changes.
fn change_set(set: ChangeSet) -> Outcome<Writer> {
    let mut result = Writer::new();
    result.long(set.sequence);
    result.long(set.time.map_or(u64::MAX, micros_of));
    result.bytes(&set.token.to_bytes());
    result.count(set.changes.len());
    for change in &set.changes {
        encode(&mut result, change)?;
    }
    Ok(result)
}

/// Encodes a change: its kind, tree, key, value, end of a range, expiry time or -1, operands.
fn encode(result: &mut Writer, change: &Change) -> Outcome<()> {
    let mut streamed = Vec::new();
    let (kind, key, value, end, expires) = match change {
        Change::Put { key, value, expires, .. } => ("PUT", Some(key), Some(value), None, *expires),
        Change::PutStream { key, stream, expires, .. } => {
            stream.copy_to(&mut streamed)?;
            ("PUT", Some(key), Some(&streamed), None, *expires)
        }
        Change::Delete { key, .. } => ("DELETE", Some(key), None, None, None),
        Change::DeleteRange { start, end, .. } => ("DELETE_RANGE", Some(start), None, end.as_ref(), None),
        Change::Gap(Gap::Range { start, end, .. }) => ("GAP", Some(start), None, end.as_ref(), None),
        Change::Merge { key, base: MergeBase::Value(value), .. } => ("MERGE", Some(key), Some(value), None, None),
        Change::Merge { key, .. } => ("MERGE", Some(key), None, None, None),
        Change::Add { key, value, .. } => ("ADD", Some(key), Some(value), None, None),
        Change::DeletePair { key, value, .. } => ("DELETE_PAIR", Some(key), Some(value), None, None),
        Change::CreateTree { .. } => ("CREATE_TREE", None, None, None, None),
        Change::DropTree { .. } => ("DROP_TREE", None, None, None, None),
        Change::SetTreeOptions { .. } => ("SET_TREE_OPTIONS", None, None, None, None),
        Change::RenameTree { .. } => ("RENAME_TREE", None, None, None, None),
        Change::ApplicationCursor { cursor } => ("APPLICATION_CURSOR", None, Some(cursor), None, None),
        Change::Gap(_) => ("GAP", None, None, None, None),
        _ => ("UNKNOWN", None, None, None, None),
    };
    result.text(kind);
    match change.tree() {
        Some(ChangedTree { name, .. }) => result.maybe_bytes(name.as_ref().map(|name| name.as_bytes())),
        None => result.maybe_bytes(None),
    }
    for part in [key, value, end] {
        result.maybe_bytes(part.map(Vec::as_slice));
    }
    result.long(expires.map_or(u64::MAX, micros_of));
    let operands = if let Change::Merge { operands, .. } = change { operands.as_slice() } else { &[] };
    result.bool(matches!(change, Change::Merge { base: MergeBase::Stored, .. }));
    result.count(operands.len());
    for operand in operands {
        result.text(&operand.function);
        result.bytes(&operand.operand);
    }
    Ok(())
}
