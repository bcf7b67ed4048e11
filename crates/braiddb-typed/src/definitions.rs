//! The definitions of a tree's indexes: the record under the key FF 00, JSON in every tree:
//!
//! ```text
//! {"version":1,"indexes":[{"name":"email","unique":true,"ready":true}]}
//! ```
//!
//! It is absent without indexes. INVARIANT D1: each write of a typed tree reads the definitions in
//! its transaction and compares them with its own. So a handle without an index that another handle
//! adds cannot commit once the index is defined, and no write misses an index.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The key of the definitions: FF, then the tuple (null).
pub const DEFINITIONS_KEY: [u8; 2] = [0xff, 0x00];

const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    pub name: String,
    pub unique: bool,
    /// False until each record has its entries.
    pub ready: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definitions {
    pub version: u32,
    pub indexes: Vec<Definition>,
}

impl Default for Definitions {
    fn default() -> Definitions {
        Definitions { version: VERSION, indexes: Vec::new() }
    }
}

impl Definitions {
    /// Decodes the stored record.
    pub fn decode(tree: &str, stored: Option<&[u8]>) -> Result<Definitions> {
        let Some(bytes) = stored else { return Ok(Definitions::default()) };
        let found: Definitions =
            serde_json::from_slice(bytes).map_err(|error| Error::value(tree, &DEFINITIONS_KEY, error.into()))?;
        if found.version != VERSION {
            let reason = format!("its indexes have version {}, and this build knows {VERSION}", found.version);
            return Err(Error::value(tree, &DEFINITIONS_KEY, reason.into()));
        }
        Ok(found)
    }

    /// Encodes the record; `None`: there is none.
    pub fn encode(&self) -> Option<Vec<u8>> {
        (!self.indexes.is_empty()).then(|| serde_json::to_vec(self).unwrap_or_else(|_| unreachable!("plain fields")))
    }

    pub fn find(&self, name: &str) -> Option<&Definition> {
        self.indexes.iter().find(|index| index.name == name)
    }

    pub fn set_ready(&mut self, name: &str) {
        for index in self.indexes.iter_mut().filter(|index| index.name == name) {
            index.ready = true;
        }
    }

    /// Returns whether `other` defines the same indexes, ready or not.
    pub fn is_like(&self, other: &Definitions) -> bool {
        let contains = |index: &Definition| other.find(&index.name).is_some_and(|found| found.unique == index.unique);
        self.indexes.len() == other.indexes.len() && self.indexes.iter().all(contains)
    }
}
