//! Runs commands of the shell on a database.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Result;
use braiddb::{Db, Durability, Follower, Savepoint, Snapshot, Transaction};
use serde_json::json;

use super::{
    help,
    place::{Place, View},
    syntax::{Point, Span, Statement},
};
use crate::{
    arguments::{KeyArguments, PairFormat, StatsOptions, ValueFormat},
    commands::{
        KeyRange, NamedTree, key_notation, refuse_own_tree, tree_line, unix_us, write_explained, write_pair,
        write_stats, write_value,
    },
    exit::{NOT_FOUND, OK, failure, usage},
    import::{IMPORT_TREE, KnownTrees, NewNotation},
    notation::{KeyNotation, parse_key, show_key, show_name, show_time},
    output::note,
    statistics::Seen,
    transfer::is_of_one_record,
    typed::codec_of,
};

/// Records of a scan after which it first shows output.
const FIRST_ROWS: u64 = 50;

pub enum Access {
    Owner(Db),
    /// Shows the commits of the process that has the database open.
    Follower(Follower),
}

pub(super) struct OpenTransaction {
    pub transaction: Transaction,
    pub is_exclusive: bool,
    pub savepoints: Vec<(String, Savepoint)>,
    /// Trees that `put` created. A rollback drops them.
    pub created: Vec<String>,
}

/// A follower's state is another database after each refresh, so a snapshot comes with its own.
struct Held {
    db: Db,
    snapshot: Snapshot,
}

pub struct Session {
    access: Access,
    pub(super) tree: Option<String>,
    pub(super) open: Option<OpenTransaction>,
    snapshots: BTreeMap<String, Held>,
    at: Option<String>,
    /// An `at` of the script failed.
    is_at_unknown: bool,
    pub(super) durability: Durability,
    pub(super) is_json: bool,
    stop: Arc<AtomicBool>,
}

pub enum Outcome {
    Done(u8),
    Quit,
}

impl Session {
    pub fn new(access: Access, durability: Durability, is_json: bool) -> Session {
        Session {
            access,
            tree: None,
            open: None,
            snapshots: BTreeMap::new(),
            at: None,
            is_at_unknown: false,
            durability,
            is_json,
            stop: Arc::default(),
        }
    }

    /// Returns the flag that stops a scan.
    #[cfg_attr(not(unix), allow(dead_code, reason = "no signal is caught there"))]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    pub fn db(&self) -> Db {
        match &self.access {
            Access::Owner(db) => db.clone(),
            Access::Follower(follower) => follower.db(),
        }
    }

    pub fn close(mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            self.discard(open);
        }
        let Session { access, snapshots, .. } = self;
        drop(snapshots);
        match access {
            Access::Owner(db) => Ok(db.close()?),
            Access::Follower(_) => Ok(()),
        }
    }

    /// Forgets the tree or the state that a failed command should have chosen, so that no later
    /// command works on the one before.
    pub fn forget_place_of(&mut self, command: &str) {
        match command {
            "use" => self.tree = None,
            "at" => self.is_at_unknown = true,
            _ => {}
        }
    }

    pub fn current_tree(&self) -> Option<&str> {
        self.tree.as_deref()
    }

    pub fn snapshot_names(&self) -> impl Iterator<Item = &str> {
        self.snapshots.keys().map(String::as_str)
    }

    pub fn savepoint_names(&self) -> impl Iterator<Item = &str> {
        self.open.iter().flat_map(|open| &open.savepoints).map(|(name, _)| name.as_str())
    }

    pub fn has_transaction(&self) -> bool {
        self.open.is_some()
    }

    pub fn snapshot_in_use(&self) -> Option<&str> {
        self.at.as_deref()
    }

    pub fn is_read_only(&self) -> bool {
        matches!(self.access, Access::Follower(_))
    }

    pub fn place(&self) -> Place<'_> {
        let held = self.at.as_ref().and_then(|name| self.snapshots.get(name));
        let (db, view) = match (held, &self.open) {
            (Some(held), _) => (held.db.clone(), View::Snapshot(&held.snapshot)),
            (None, Some(open)) => (self.db(), View::Transaction(&open.transaction)),
            (None, None) => (self.db(), View::Latest),
        };
        Place { db, view, stop: &self.stop }
    }

    pub fn run(&mut self, statement: Statement, out: &mut dyn Write) -> Result<Outcome> {
        self.stop.store(false, Ordering::Relaxed);
        let chooses_state = matches!(statement, Statement::At(_) | Statement::Snapshots { .. } | Statement::Quit);
        if self.is_at_unknown && !chooses_state {
            return Err(usage("the last `at` failed: `at NAME` or `at now` comes first"));
        }
        if let (Access::Follower(follower), None) = (&self.access, &self.at) {
            follower.refresh()?;
        }
        let code = match statement {
            Statement::Get { at, format } => self.get(&at, format, out)?,
            Statement::Ttl { at, is_json } => self.ttl(&at, is_json, out)?,
            Statement::Put { at, value, format, ttl, is_json } => self.put(&at, &value, format, ttl, is_json, out)?,
            Statement::Del { at, value, is_json } => self.del(&at, value.as_deref(), is_json, out)?,
            Statement::DelRange { span, is_json } => self.del_range(&span, is_json, out)?,
            Statement::Scan { span, is_reverse, limit, format } => self.scan(&span, is_reverse, limit, format, out)?,
            Statement::Count { span, is_json } => self.count(&span, is_json, out)?,
            Statement::Explain { at, repeat, is_json } => self.explain(&at, repeat, is_json, out)?,
            Statement::Trees { is_json } => self.trees(is_json, out)?,
            Statement::Use { tree, create, multi, keys } => self.use_tree(tree, create, multi, keys, out)?,
            Statement::Begin { is_exclusive } => self.begin(is_exclusive, out)?,
            Statement::Commit { is_json } => self.commit(is_json, out)?,
            Statement::Rollback { savepoint } => self.rollback(savepoint.as_deref(), out)?,
            Statement::Savepoint(name) => self.savepoint(name, out)?,
            Statement::Snapshot(name) => self.snapshot(name, out)?,
            Statement::Snapshots { is_json } => self.list_snapshots(is_json, out)?,
            Statement::At(name) => self.read_at(name, out)?,
            Statement::Release(name) => self.release(&name, out)?,
            Statement::Stats { partitions, trees, is_json } => {
                let options = StatsOptions { json: is_json || self.is_json, partitions, trees, count: false };
                let seen = if self.is_read_only() { Seen::ByReader { owner: None } } else { Seen::ByOwner };
                write_stats(&self.place().db, &options, seen, out)?;
                OK
            }
            Statement::Help(command) => {
                help::write(command.as_deref(), out)?;
                OK
            }
            Statement::Quit => return Ok(Outcome::Quit),
        };
        Ok(Outcome::Done(code))
    }

    pub(super) fn tree_or_current(&self, tree: Option<&str>) -> Result<String> {
        tree.or(self.tree.as_deref())
            .map(str::to_owned)
            .ok_or_else(|| usage("no tree is in use: choose one with `use TREE`, or name it before the key"))
    }

    /// Returns the tree, its notation, and the key.
    fn find(&self, place: &Place<'_>, at: &Point) -> Result<(String, KeyNotation, Vec<u8>)> {
        let name = self.tree_or_current(at.tree.as_deref())?;
        let notation = key_notation(&place.db, &name, KeyArguments { keys: at.keys })?;
        let key = parse_key(&at.key, notation)?;
        Ok((name, notation, key))
    }

    pub(super) fn span(&self, place: &Place<'_>, span: &Span) -> Result<(String, KeyNotation, KeyRange)> {
        let name = self.tree_or_current(span.tree.as_deref())?;
        let notation = key_notation(&place.db, &name, KeyArguments { keys: span.keys })?;
        let range = span.range.keys(notation)?;
        Ok((name, notation, range))
    }

    fn get(&self, at: &Point, format: Option<ValueFormat>, out: &mut dyn Write) -> Result<u8> {
        let place = self.place();
        let (name, notation, key) = self.find(&place, at)?;
        let values = place.values(&NamedTree::open(&place.db, &name)?, &key)?;
        let default = if self.is_json { ValueFormat::Json } else { ValueFormat::Text };
        let codec = codec_of(&place.db, &name)?;
        for (value, expires) in &values {
            write_value(out, format.unwrap_or(default), (&key, notation), codec, (value, *expires))?;
        }
        if values.is_empty() { missing(&key, notation) } else { Ok(OK) }
    }

    fn ttl(&self, at: &Point, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        let place = self.place();
        let (name, notation, key) = self.find(&place, at)?;
        let tree = NamedTree::open(&place.db, &name)?;
        let Some((_, expires)) = place.values(&tree, &key)?.into_iter().next() else { return missing(&key, notation) };
        if is_json || self.is_json {
            writeln!(out, "{}", json!({"expires_us": expires.and_then(unix_us)}))?;
        } else {
            writeln!(out, "{}", expires.map_or("never".to_owned(), show_time))?;
        }
        Ok(OK)
    }

    fn scan(
        &self,
        span: &Span,
        is_reverse: bool,
        limit: u64,
        format: Option<PairFormat>,
        out: &mut dyn Write,
    ) -> Result<u8> {
        let place = self.place();
        let (name, notation, range) = self.span(&place, span)?;
        let tree = NamedTree::open(&place.db, &name)?;
        let codec = codec_of(&place.db, &name)?;
        let format = format.unwrap_or(PairFormat::Text.or_json(self.is_json));
        let rows = place.rows(&tree, range);
        let rows: Box<dyn Iterator<Item = _>> = if is_reverse { Box::new(rows.rev()) } else { rows };
        let (mut code, mut shown) = (OK, 0);
        for row in rows.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            place.check()?;
            match row {
                Ok((key, value)) => write_pair(out, format, notation, codec, (&key, &value))?,
                Err(error) if is_of_one_record(&error) => {
                    note!("braid: left out: {error}");
                    code = NOT_FOUND;
                }
                Err(error) => return Err(error.into()),
            }
            shown += 1;
            if shown == FIRST_ROWS {
                out.flush()?;
            }
        }
        Ok(code)
    }

    fn count(&self, span: &Span, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        let place = self.place();
        let (name, _, range) = self.span(&place, span)?;
        let count = place.count(&NamedTree::open(&place.db, &name)?, range)?;
        match is_json || self.is_json {
            true => writeln!(out, "{}", json!({"tree": name, "count": count, "exact": true}))?,
            false => writeln!(out, "{count}")?,
        }
        Ok(OK)
    }

    fn explain(&self, at: &Point, repeat: u64, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        let place = self.place();
        let (name, notation, key) = self.find(&place, at)?;
        let tree = NamedTree::open(&place.db, &name)?;
        let explained = place.explain(&tree, (&name, &key), repeat)?;
        write_explained(out, (&name, &key), notation, &explained, is_json || self.is_json)?;
        Ok(OK)
    }

    fn trees(&self, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        for tree in &self.place().db.trees()? {
            writeln!(out, "{}", tree_line(tree, is_json || self.is_json))?;
        }
        Ok(OK)
    }

    fn use_tree(
        &mut self,
        tree: Option<String>,
        create: bool,
        multi: bool,
        keys: Option<KeyNotation>,
        out: &mut dyn Write,
    ) -> Result<u8> {
        let Some(name) = tree else {
            if create {
                return Err(usage("--create needs a tree"));
            }
            match self.is_json {
                true => writeln!(out, "{}", json!({"tree": self.tree}))?,
                false => writeln!(out, "{}", self.tree.as_deref().map_or_else(String::new, show_name))?,
            }
            return Ok(OK);
        };
        let db = self.place().db;
        let is_new = create && NamedTree::find(&db, &name)?.is_none();
        if is_new {
            self.create(&name, multi, keys)?;
        }
        match NamedTree::open(&db, &name)? {
            NamedTree::Plain(_) if multi => {
                return Err(usage(format!("the tree {} has one value per key", show_name(&name))));
            }
            _ => self.tree = Some(name),
        }
        self.answer(json!({"tree": self.tree, "created": is_new}), out)
    }

    /// A tree is created in a commit of its own, also while a transaction is open.
    fn create(&self, name: &str, multi: bool, keys: Option<KeyNotation>) -> Result<()> {
        let db = self.can_create(name)?;
        if keys.is_some_and(|keys| !matches!(keys, KeyNotation::Text | KeyNotation::U64)) {
            return Err(usage("--create takes --keys text or u64"));
        }
        let known = KnownTrees::of(&db)?;
        let created = self.create_tree(&db, name, multi, keys == Some(KeyNotation::U64));
        created.inspect_err(|_| known.drop_new(&db, true))?;
        note!("braid: created tree {}", show_name(name));
        Ok(())
    }

    fn create_tree(&self, db: &Db, name: &str, multi: bool, has_u64_keys: bool) -> Result<()> {
        if multi {
            db.multi_tree(name)?;
        } else {
            db.tree(name)?;
        }
        if has_u64_keys {
            let mut batch = db.batch();
            let imports = db.tree(IMPORT_TREE)?;
            NewNotation::claim(db, name, KeyNotation::U64, "--keys u64")?.store(db, name, &imports, &mut batch)?;
            batch.commit_with(self.durability)?;
        }
        Ok(())
    }

    /// Refuses a tree whose creation would wait for the end of the session's own transaction.
    pub(super) fn can_create(&self, name: &str) -> Result<Db> {
        let db = self.writable()?;
        refuse_own_tree(name)?;
        match self.open.as_ref().is_some_and(|open| open.is_exclusive) {
            true => Err(usage(format!(
                "the exclusive transaction cannot create the tree {}: create it before `begin --exclusive`",
                show_name(name)
            ))),
            false => Ok(db),
        }
    }

    /// Writes the object of a command that has no output as text.
    pub(super) fn answer(&self, object: serde_json::Value, out: &mut dyn Write) -> Result<u8> {
        if self.is_json {
            writeln!(out, "{object}")?;
        }
        Ok(OK)
    }

    /// Refuses a write into a database that is open for reading, or at a snapshot.
    pub(super) fn writable(&self) -> Result<Db> {
        match (&self.access, &self.at) {
            (Access::Follower(_), _) => Err(usage("the database is open for reading: start the shell with --write")),
            (_, Some(name)) => Err(usage(format!("reads are at the snapshot {name}: `at now` comes before a write"))),
            (Access::Owner(db), None) => Ok(db.clone()),
        }
    }

    fn snapshot(&mut self, name: String, out: &mut dyn Write) -> Result<u8> {
        if name == NOW || self.snapshots.contains_key(&name) {
            return Err(usage(format!("there is a snapshot {name}: choose another name, or release it first")));
        }
        if self.open.is_some() {
            return Err(usage("a transaction is open, which reads its own snapshot: commit or roll back first"));
        }
        let db = self.place().db;
        let snapshot = match self.place().view {
            View::Snapshot(snapshot) => snapshot.clone(),
            _ => db.snapshot(),
        };
        let answer = json!({"snapshot": name, "commit": snapshot.sequence()});
        self.snapshots.insert(name, Held { db, snapshot });
        self.answer(answer, out)
    }

    fn list_snapshots(&self, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        for (name, held) in &self.snapshots {
            let commit = held.snapshot.sequence();
            match is_json || self.is_json {
                true => writeln!(out, "{}", json!({"name": name, "commit": commit}))?,
                false => writeln!(out, "{name}\tcommit {commit}")?,
            }
        }
        Ok(OK)
    }

    fn read_at(&mut self, name: String, out: &mut dyn Write) -> Result<u8> {
        if name == NOW {
            (self.at, self.is_at_unknown) = (None, false);
            return self.answer(json!({"at": null}), out);
        }
        if self.open.is_some() {
            return Err(usage("a transaction is open, which reads its own snapshot: commit or roll back first"));
        }
        self.check_snapshot(&name)?;
        (self.at, self.is_at_unknown) = (Some(name), false);
        self.answer(json!({"at": self.at}), out)
    }

    fn release(&mut self, name: &str, out: &mut dyn Write) -> Result<u8> {
        self.check_snapshot(name)?;
        if self.at.as_deref() == Some(name) {
            return Err(usage(format!("reads are at the snapshot {name}: `at now` comes before its release")));
        }
        self.snapshots.remove(name);
        self.answer(json!({"released": name}), out)
    }

    fn check_snapshot(&self, name: &str) -> Result<()> {
        match self.snapshots.contains_key(name) {
            true => Ok(()),
            false => Err(failure(NOT_FOUND, format!("there is no snapshot {name}: `snapshots` lists them"))),
        }
    }
}

/// The name of the latest state.
pub const NOW: &str = "now";

/// An absent key ends no script: it is an answer.
pub(super) fn missing(key: &[u8], notation: KeyNotation) -> Result<u8> {
    note!("braid: no such key: {}", show_key(key, notation));
    Ok(NOT_FOUND)
}
