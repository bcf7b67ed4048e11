//! Reads and changes the options of a tree.

use crate::{
    base::{EntryKind, Error, Result, SequenceNumber},
    commit::RawBatch,
    db::{
        engine::{
            catalog::catalog_key,
            settings::TreeOptions,
            tree_options::{check_options, kept_codec},
        },
        handles::tree::Tree,
        write::{conflict_window, pipeline},
    },
};

impl Tree {
    /// Returns the current options.
    pub fn options(&self) -> TreeOptions {
        self.state().options.get()
    }

    /// Replaces all options but the codec in one commit. They apply to later writes: records keep their expiry
    /// time and merge operands. Merges use the new compression, but values stay in their blob
    /// files; [`Db::compact`](crate::Db::compact) rewrites the tree's other files.
    ///
    /// A tree without a codec gets that of `options`. A codec stays: `None` keeps it, and another one is
    /// refused with `InvalidArgument`, since the records have the first.
    ///
    /// Followers and copies receive the change; a watcher receives
    /// [`Change::SetTreeOptions`](crate::watch::Change::SetTreeOptions).
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use std::time::Duration;
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let sessions = db.tree("sessions")?;
    /// sessions.set_options(sessions.options().ttl(Duration::from_secs(1800)))?;
    /// sessions.put(b"7f3a", b"ann")?;
    /// assert!(sessions.get_with_expiry(b"7f3a")?.unwrap().1.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_options(&self, options: TreeOptions) -> Result<SequenceNumber> {
        let (engine, state) = (self.db().engine(), self.state());
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        // Wait before locking the catalog: see `Db::open_or_create`.
        drop(conflict_window::await_no_exclusive(engine)?);
        check_options(&state.name.read(), &options)?;
        let _change = engine.catalog.next_id.lock();
        state.check()?;
        let codec = kept_codec(&state.name.read(), state.options.get().codec, options.codec)?;
        let options = TreeOptions { codec, ..options };
        let key = catalog_key(b'n', state.name.read().as_bytes());
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Value, &[&key], &state.encode_with(options));
        let committed = pipeline::commit(engine, batch.prepare()?, engine.settings.durability);
        // This process sees the commit even if its durability is unknown.
        if committed.is_ok() || committed.as_ref().is_err_and(Error::is_commit_unknown) {
            state.options.set(options);
            let mut compressions = engine.catalog.compressions.write();
            match options.compression {
                Some(compression) => _ = compressions.insert(state.id, compression),
                None => _ = compressions.remove(&state.id),
            }
        }
        committed
    }
}
