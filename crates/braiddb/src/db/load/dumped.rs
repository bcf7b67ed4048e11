//! Catalogs and entries in the form of dumps.

use crate::{
    base::{Result, SequenceNumber, TreeId, limits},
    db::{
        engine::{
            catalog::{LaterFields, TreeState, check_name},
            settings::TreeOptions,
            tree_options::LiveOptions,
        },
        open::wal_retention as log_kept,
    },
};
use parking_lot::RwLock;
use std::sync::Arc;
use std::{collections::BTreeSet, sync::atomic::AtomicBool};

#[derive(Debug)]
pub struct DumpedTree {
    pub id: u32,
    pub name: String,
    pub multi: bool,
    pub state: Arc<TreeState>,
}

#[derive(Debug, Default)]
pub struct DumpedCatalog {
    pub trees: Vec<DumpedTree>,
    pub functions: Vec<(String, u64)>,
    pub application_cursor: Option<Vec<u8>>,
    /// Upper bound of all tree numbers ever assigned (exclusive).
    pub next_tree: u32,
    /// Log retention: bytes, and microseconds.
    pub retention: Option<(u64, u64)>,
}

impl DumpedCatalog {
    pub fn add_tree(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let state = TreeState::decode(name, value)?;
        let (id, multi) = (state.id.0, state.multi);
        let name = state.name.read().clone();
        self.trees.push(DumpedTree { id, name, multi, state: Arc::new(state) });
        Some(())
    }

    /// Adds a tree whose options are lost.
    pub fn add_unknown_tree(&mut self, id: u32, name: String, multi: bool) {
        let state = TreeState {
            id: TreeId(id),
            home: 0,
            name: RwLock::new(name.clone()),
            multi,
            options: LiveOptions::new(TreeOptions::default()),
            later: LaterFields::default(),
            dropped: AtomicBool::new(false),
        };
        self.trees.push(DumpedTree { id, name, multi, state: Arc::new(state) });
    }

    pub fn add_other(&mut self, tag: u8, name: &[u8], value: &[u8]) -> Option<()> {
        match tag {
            b'i' => self.next_tree = u32::from_le_bytes(value.try_into().ok()?),
            b'f' => {
                let number = u64::from_le_bytes(value.try_into().ok()?);
                self.functions.push((String::from_utf8(name.to_vec()).ok()?, number));
            }
            b'c' => self.application_cursor = Some(value.to_vec()),
            b'r' => self.retention = log_kept::decode(value).map(|limit| Some((limit.bytes, limit.age_us)))?,
            // About the old log.
            _ => {}
        }
        Some(())
    }

    pub fn check(&self) -> std::result::Result<(), String> {
        let mut names = BTreeSet::new();
        for (index, tree) in self.trees.iter().enumerate() {
            let is_after = index == 0 || self.trees[index - 1].id < tree.id;
            if tree.id == TreeId::CATALOG.0 || !is_after || tree.id >= self.next_tree || !names.insert(&tree.name) {
                return Err(format!("the tree {:?} has a number or a name that is taken", tree.name));
            }
            check_name(&tree.name).map_err(|e| e.to_string())?;
        }
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        let is_new = |(name, number)| names.insert(name) && numbers.insert(number);
        if !self.functions.iter().map(|(name, number)| (name, *number)).all(is_new) {
            return Err("merge functions have one name or number".to_owned());
        }
        if self.application_cursor.as_ref().is_some_and(|cursor| cursor.len() > limits::MAX_APPLICATION_CURSOR_LEN) {
            return Err("the application cursor is too long".to_owned());
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpedContent<'a> {
    Value(&'a [u8]),
    /// Of this length; pieces follow.
    LongValue(u64),
    /// Encoded as in an entry's value.
    Operands(&'a [u8]),
    /// Of this length; pieces follow.
    LongOperands(u64),
}

impl DumpedContent<'_> {
    pub fn is_long(&self) -> bool {
        matches!(self, DumpedContent::LongValue(_) | DumpedContent::LongOperands(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpedEntry<'a> {
    /// The user's key.
    pub key: &'a [u8],
    pub sequence: SequenceNumber,
    /// Expiry time in microseconds of the database's time.
    pub expires_us: Option<u64>,
    /// Whether it is the base of the previous operands, which have the same key.
    pub is_beneath: bool,
    pub content: DumpedContent<'a>,
}

pub trait EntrySink {
    fn entry(&mut self, entry: &DumpedEntry<'_>) -> Result<()>;
    /// Receives the next piece of the last entry's long value or operands.
    fn piece(&mut self, bytes: &[u8]) -> Result<()>;
}
