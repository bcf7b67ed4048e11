//! Merge functions and their registry.

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

/// Lowest number of an application's function. Lower numbers are for built-in functions.
pub const FIRST_OWN_FUNCTION: u64 = 64;

/// Function that applies a merge operand to a value.
///
/// Reads, flushes and compactions call it on any thread, perhaps with locks held. It must depend
/// only on its arguments and must not call the database.
pub trait MergeFunction: Send + Sync + Debug + 'static {
    /// Returns the new value of `key` from its old `value` (`None` if absent) and one operand. On
    /// an error, reads of the key fail and the operand is kept.
    fn apply(&self, key: &[u8], value: Option<&[u8]>, operand: &[u8]) -> std::result::Result<Vec<u8>, String>;

    /// Checks an operand before it is written. An error describes valid operands; the merge fails
    /// with [`Error::InvalidArgument`]. The default accepts all operands.
    fn check_operand(&self, operand: &[u8]) -> std::result::Result<(), String> {
        let _ = operand;
        Ok(())
    }

    /// Returns one operand with the effect of `earlier` followed by `later` on every value, to save
    /// space and time. `None` if there is none.
    fn combine(&self, key: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        let _ = (key, earlier, later);
        None
    }
}

#[derive(Debug)]
struct Known {
    name: String,
    function: Option<Arc<dyn MergeFunction>>,
    /// Fast and with small results: commits apply it at once if they have the base value.
    is_eager: bool,
}

#[derive(Debug, Default)]
struct Table {
    by_number: BTreeMap<u64, Arc<Known>>,
    numbers: BTreeMap<String, u64>,
}

#[derive(Debug, Default)]
pub struct MergeFunctions {
    table: RwLock<Table>,
}

impl MergeFunctions {
    pub fn add_eager(&self, number: u64, name: &str, function: Arc<dyn MergeFunction>) {
        self.add_known(number, Known { name: name.to_owned(), function: Some(function), is_eager: true });
    }

    pub fn add(&self, number: u64, name: &str, function: Option<Arc<dyn MergeFunction>>) {
        self.add_known(number, Known { name: name.to_owned(), function, is_eager: false });
    }

    fn add_known(&self, number: u64, known: Known) {
        let mut table = self.table.write();
        table.numbers.insert(known.name.clone(), number);
        table.by_number.insert(number, Arc::new(known));
    }

    pub fn number(&self, name: &str) -> Option<(u64, bool)> {
        let table = self.table.read();
        let number = *table.numbers.get(name)?;
        Some((number, table.by_number.get(&number).is_some_and(|known| known.function.is_some())))
    }

    pub fn next_number(&self) -> u64 {
        self.table
            .read()
            .by_number
            .keys()
            .next_back()
            .map_or(FIRST_OWN_FUNCTION, |last| (last + 1).max(FIRST_OWN_FUNCTION))
    }

    pub fn name(&self, number: u64) -> String {
        self.known(number).name.clone()
    }

    fn known(&self, number: u64) -> Arc<Known> {
        let known = self.table.read().by_number.get(&number).cloned();
        let unknown = || Known { name: format!("number {number}"), function: None, is_eager: false };
        known.unwrap_or_else(|| Arc::new(unknown()))
    }

    pub fn are_eager(&self, operands: &Operands<'_>) -> bool {
        let table = self.table.read();
        operands.iter().all(|operand| table.by_number.get(&operand.function).is_some_and(|known| known.is_eager))
    }

    pub fn check(&self, number: u64, operand: &[u8]) -> Result<()> {
        let known = self.known(number);
        let Some(function) = &known.function else { return Ok(()) };
        let checked = catch_unwind(AssertUnwindSafe(|| function.check_operand(operand)));
        let checked = checked.unwrap_or_else(|panic| Err(panic_text(&*panic)));
        checked.map_err(|reason| {
            Error::InvalidArgument(format!("the merge function {:?} cannot take the operand: {reason}", known.name))
        })
    }

    pub fn can_apply(&self, operands: &Operands<'_>) -> bool {
        operands.iter().all(|operand| self.known(operand.function).function.is_some())
    }

    pub fn apply(&self, key: &[u8], value: Option<&[u8]>, operands: &Operands<'_>) -> Result<Vec<u8>> {
        let mut owned: Option<Vec<u8>> = None;
        for Operand { function, bytes } in operands.iter() {
            let known = self.known(function);
            // The caller fills in the tree.
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
            owned = Some(applied.map_err(|panic| failed(panic_text(&*panic)))?.map_err(failed)?);
        }
        Ok(owned.unwrap_or_else(|| value.unwrap_or_default().to_vec()))
    }

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

    /// Returns the value; `None` if the base is in an older entry.
    pub fn finish(&self, key: &[u8], operands: &Operands<'_>) -> Option<Result<Vec<u8>>> {
        match operands.base {
            Base::Beneath => None,
            Base::Absent => Some(self.apply(key, None, operands)),
            Base::Value(value) => Some(self.apply(key, Some(value), operands)),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", message.unwrap_or("without a message"))
}
