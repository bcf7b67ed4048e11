//! How many keys a range has: counted where that can be done by views, and walked where not. See `read/count.rs`.

use super::{catalog::TreeState, cursor::Cursor, database::Db, snapshot::Hold};
use crate::{
    base::{ReaderKind, Result},
    read::{self, Counted},
};
use std::sync::Arc;

/// The same of the keys from `start` to the one that differs from it in its last byte, which is `end` there, if that is known already.
#[inline]
pub(super) fn count_kept(db: &Db, start: &[u8], end: u8, hold: Option<&Hold>) -> Result<Option<u64>> {
    let core = db.core();
    core.check_open()?;
    let (state, snapshot) = core.state_for(hold)?;
    // What a damaged view says is found out by who reads more of it.
    Ok(read::count_kept(&state, start, end, snapshot).unwrap_or_default())
}

/// Counts the internal keys of `start..end`, within a tree, that exist for a hold, or now.
pub(super) fn count(db: &Db, tree: &Arc<TreeState>, start: &[u8], end: &[u8], hold: Option<&Hold>) -> Result<u64> {
    let core = db.core();
    core.check_open()?;
    let counted = |hold: Option<&Hold>| -> Result<Counted> {
        core.healing(|| {
            let (state, snapshot) = core.state_for(hold)?;
            read::count(&state, start, end, snapshot)
        })
    };
    let mut found = counted(hold)?;
    if found.left.is_empty() {
        return Ok(found.keys);
    }
    // What is walked is to be of the same moment as what is counted.
    let hold = match hold {
        Some(hold) => hold.clone(),
        None => {
            let hold = Hold::now(core, ReaderKind::Iterator);
            found = counted(Some(&hold))?;
            hold
        }
    };
    let mut cursor = Cursor::new(db, tree, Some(hold));
    for (start, end) in &found.left {
        let mut is_there = cursor.begin_at(true, start)?;
        while is_there && cursor.internal_key() < end.as_slice() {
            found.keys += 1;
            is_there = cursor.next()?;
        }
    }
    Ok(found.keys)
}
