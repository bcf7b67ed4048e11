//! Merge functions: how operands change values, and who knows them.

use super::operands::{Base, Operand, Operands, encode_operands};
use crate::base::{Error, Result};
use parking_lot::RwLock;
use std::{
    any::Any,
    collections::BTreeMap,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// The number that functions of the application's own begin with. Those below are built in.
pub const FIRST_OWN_FUNCTION: u64 = 64;

/// How an operand changes a value. Functions are called when a value is read, by flushes and merges, on any thread, perhaps with
/// locks held: they must depend on nothing but what they are given, and must not call the database.
pub trait MergeFunction: Send + Sync + Debug + 'static {
    /// What becomes of a value, or of none, by an operand. An error is told to whoever reads the key; the operand is kept.
    fn apply(&self, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> std::result::Result<Vec<u8>, String>;

    /// Fails for an operand that can be applied to no value, with what an operand must be. Called where a merge is asked for, before
    /// anything is written, which is refused then with [`Error::InvalidArgument`]. Unless a function says otherwise, it takes all.
    fn check_operand(&self, operand: &[u8]) -> std::result::Result<(), String> {
        let _ = operand;
        Ok(())
    }

    /// One operand that does what two do, one after the other; `None` if there is none. It saves space and time. To apply the
    /// combination must give what applying both gives, on any value.
    fn combine(&self, key: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let _ = (key, earlier, later);
        None
    }
}

#[derive(Debug)]
struct Known {
    name: String,
    /// `None` if the application has not given it.
    function: Option<Arc<dyn MergeFunction>>,
    /// Whether commits apply it at once, where the value is at hand: it is quick and its results are small.
    is_eager: bool,
}

#[derive(Debug, Default)]
struct Table {
    by_number: BTreeMap<u64, Arc<Known>>,
    numbers: BTreeMap<String, u64>,
}

/// The functions of a database, by number.
#[derive(Debug, Default)]
pub struct MergeFunctions {
    table: RwLock<Table>,
}

impl MergeFunctions {
    /// Adds one that commits apply at once.
    pub fn add_eager(&self, number: u64, name: &str, function: Arc<dyn MergeFunction>) {
        self.add_known(number, Known { name: name.to_owned(), function: Some(function), is_eager: true });
    }

    /// Adds one; `None` if it is known by its name alone.
    pub fn add(&self, number: u64, name: &str, function: Option<Arc<dyn MergeFunction>>) {
        self.add_known(number, Known { name: name.to_owned(), function, is_eager: false });
    }

    fn add_known(&self, number: u64, known: Known) {
        let mut table = self.table.write();
        table.numbers.insert(known.name.clone(), number);
        table.by_number.insert(number, Arc::new(known));
    }

    /// The number of a function, if it has one, and whether it can be called.
    pub fn number(&self, name: &str) -> Option<(u64, bool)> {
        let table = self.table.read();
        let number = *table.numbers.get(name)?;
        Some((number, table.by_number.get(&number).is_some_and(|known| known.function.is_some())))
    }

    /// The number for the next function of the application's own.
    pub fn next_number(&self) -> u64 {
        self.table
            .read()
            .by_number
            .keys()
            .next_back()
            .map_or(FIRST_OWN_FUNCTION, |last| (last + 1).max(FIRST_OWN_FUNCTION))
    }

    /// The name of a function.
    pub fn name(&self, number: u64) -> String {
        self.known(number).name.clone()
    }

    fn known(&self, number: u64) -> Arc<Known> {
        let known = self.table.read().by_number.get(&number).cloned();
        let unknown = || Known { name: format!("number {number}"), function: None, is_eager: false };
        known.unwrap_or_else(|| Arc::new(unknown()))
    }

    /// Whether all operands are of functions that commits apply at once.
    pub fn are_eager(&self, operands: &Operands<'_>) -> bool {
        let table = self.table.read();
        operands.iter().all(|operand| table.by_number.get(&operand.function).is_some_and(|known| known.is_eager))
    }

    /// Fails for an operand that a function can apply to no value. One that is not registered takes all.
    pub fn check(&self, number: u64, operand: &[u8]) -> Result<()> {
        let known = self.known(number);
        let Some(function) = &known.function else { return Ok(()) };
        let checked = catch_unwind(AssertUnwindSafe(|| function.check_operand(operand)));
        let checked = checked.unwrap_or_else(|panic| Err(told(&*panic)));
        checked.map_err(|reason| {
            Error::InvalidArgument(format!("the merge function {:?} cannot take the operand: {reason}", known.name))
        })
    }

    /// Whether all functions of some operands are registered.
    pub fn can_apply(&self, operands: &Operands<'_>) -> bool {
        operands.iter().all(|operand| self.known(operand.function).function.is_some())
    }

    /// What becomes of a value, or of none, by operands on top of it. `key` is the user's, for the functions and for errors.
    pub fn apply(&self, key: &[u8], value: Option<&[u8]>, operands: &Operands<'_>) -> Result<Vec<u8>> {
        let mut owned: Option<Vec<u8>> = None;
        for Operand { function, bytes } in operands.iter() {
            let known = self.known(function);
            // The caller knows the tree.
            let failed = |reason: String| Error::MergeFailed {
                tree: String::new(),
                function: known.name.clone(),
                key: key.escape_ascii().to_string(),
                reason,
            };
            let Some(function) = &known.function else {
                return Err(failed(
                    "it is not registered: open the database with `Builder::merge_function`".to_owned(),
                ));
            };
            let before = owned.as_deref().or(value);
            let applied = catch_unwind(AssertUnwindSafe(|| function.apply(key, before, bytes)));
            owned = Some(applied.map_err(|panic| failed(told(&*panic)))?.map_err(failed)?);
        }
        Ok(owned.unwrap_or_else(|| value.unwrap_or_default().to_vec()))
    }

    /// The same operands with fewer of them, as far as neighbours can be combined.
    pub fn condense(&self, key: &[u8], bytes: Vec<u8>) -> Vec<u8> {
        let Some(operands) = Operands::decode(&bytes) else { return bytes };
        let mut condensed: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut count = 0;
        for Operand { function, bytes } in operands.iter() {
            count += 1;
            if let Some((last, earlier)) = condensed.last_mut()
                && *last == function
                && let Some(implementation) = &self.known(function).function
                && let Ok(Some(both)) = catch_unwind(AssertUnwindSafe(|| implementation.combine(key, earlier, bytes)))
            {
                *earlier = both;
                continue;
            }
            condensed.push((function, bytes.to_vec()));
        }
        if condensed.len() == count {
            return bytes;
        }
        let operands_left = condensed.iter().map(|(function, bytes)| Operand { function: *function, bytes });
        encode_operands(operands.base, operands.reach, operands_left)
    }

    /// What a value is, if the operands have their base with them; `None` if that is beneath.
    pub fn finish(&self, key: &[u8], operands: &Operands<'_>) -> Option<Result<Vec<u8>>> {
        match operands.base {
            Base::Beneath => None,
            Base::Absent => Some(self.apply(key, None, operands)),
            Base::Value(value) => Some(self.apply(key, Some(value), operands)),
        }
    }
}

fn told(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", message.unwrap_or("without a message"))
}
