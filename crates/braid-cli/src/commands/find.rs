//! `braid find`

use std::collections::HashSet;

use anyhow::Result;

use super::{
    open::{key_notation, open_for_reading},
    pairs::PairPrinter,
};
use crate::{
    arguments::FindArguments,
    exit::{NOT_FOUND, OK, usage},
    import::{IndexSpec, Indexes, index_key},
    notation::show_name,
    output::note,
};

pub fn find(arguments: &FindArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let tree = db.open_tree(&arguments.tree)?;
    let index = db.open_multi_tree(&arguments.by)?;
    let specs = Indexes::stored_specs(&db, &arguments.tree)?;
    let spec = specs.into_iter().find(|spec| spec.name == arguments.by);
    if let Some(spec) = spec.as_ref().filter(|spec| spec.unfinished) {
        let (name, tree, written) = (show_name(&spec.name), show_name(&arguments.tree), spec.written());
        return Err(usage(format!(
            "the index {name} is unfinished, and may lack records: finish it with `braid index add DB {tree} {written}`"
        )));
    }
    let wanted = Wanted::new(arguments, spec);
    let keys: Box<dyn Iterator<Item = _>> = match &wanted.number {
        _ if wanted.is_prefix => Box::new(index.prefix(index_key(&wanted.text).as_bytes()).map(|pair| Ok(pair?.1))),
        None => Box::new(index.values(index_key(&wanted.text).as_bytes())),
        Some(number) if *number == wanted.text => Box::new(index.values(number.as_bytes())),
        Some(number) => {
            Box::new(index.values(index_key(&wanted.text).as_bytes()).chain(index.values(number.as_bytes())))
        }
    };
    let mut printer = PairPrinter::new(
        arguments.format.or_json(arguments.json),
        key_notation(&db, &arguments.tree, arguments.key_arguments)?,
        None,
    );
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let (mut found, mut seen) = (0, HashSet::new());
    for key in keys {
        if found == limit {
            break;
        }
        let key = key?;
        // A record can have several matching entries.
        if (wanted.is_prefix || wanted.number.is_some()) && !seen.insert(key.to_vec()) {
            continue;
        }
        match tree.get(&key)? {
            Some(value) if wanted.holds(&value) => {
                printer.print(&key, &value)?;
                found += 1;
            }
            Some(_) => {}
            None => note!(
                "braid: the index {} has an entry for a record that does not exist: run `braid index rebuild`",
                arguments.by
            ),
        }
    }
    printer.finish()?;
    Ok(if found > 0 || limit == 0 { OK } else { NOT_FOUND })
}

struct Wanted {
    text: String,
    /// The normalized number, if `text` is one: `1.50` also finds 1.5.
    number: Option<String>,
    is_prefix: bool,
    /// The index to check records against, if an index entry alone does not decide.
    check: Option<IndexSpec>,
}

impl Wanted {
    fn new(arguments: &FindArguments, spec: Option<IndexSpec>) -> Wanted {
        let (text, is_prefix) = match (&arguments.eq, &arguments.prefix) {
            (Some(text), _) => (text, false),
            (None, Some(text)) => (text, true),
            (None, None) => unreachable!("clap demands one of the two"),
        };
        let number = spec.as_ref().filter(|_| !is_prefix).and_then(|spec| spec.number_text(text));
        let text = spec.as_ref().map_or(text.clone(), |spec| spec.normalize(text));
        // Index entries are cut up to 4 bytes before the maximum length; a text of about that
        // length may share its entry with longer texts.
        let cut = text.len() + 4 > crate::import::INDEX_KEY_BYTES_MAX;
        // The text "1.5" and the number 1.5 share an entry, but 1.50 may only find the number.
        let is_written_otherwise = number.as_ref().is_some_and(|number| *number != text);
        Wanted { text, number, is_prefix, check: spec.filter(|_| cut || is_written_otherwise) }
    }

    fn holds(&self, record: &[u8]) -> bool {
        let Some(spec) = &self.check else { return true };
        let Ok(record) = serde_json::from_slice(record) else { return false };
        if self.number.as_ref().is_some_and(|number| spec.has_number(&record, number)) {
            return true;
        }
        spec.texts(&record)
            .iter()
            .any(|text| if self.is_prefix { text.starts_with(&self.text) } else { *text == self.text })
    }
}
