//! `braid scan`

use std::ops::Bound;

use anyhow::Result;
use braiddb::{Key, Value};

use super::{
    open::{NamedTree, key_notation, open_for_reading},
    pairs::PairPrinter,
};
use crate::{
    arguments::ScanArguments,
    exit::{NOT_FOUND, OK},
    notation::parse_key,
    output::note,
    transfer::is_of_one_record,
};

pub fn scan(arguments: &ScanArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let notation = key_notation(&db, &arguments.tree, arguments.key_arguments)?;
    let key = |text: &Option<String>| text.as_deref().map(|text| parse_key(text, notation)).transpose();
    let prefix = key(&arguments.prefix)?;
    let from = key(&arguments.from)?.map_or(Bound::Unbounded, Bound::Included);
    let to = key(&arguments.to)?.map_or(Bound::Unbounded, Bound::Excluded);
    let mut printer = PairPrinter::new(arguments.format, notation);
    let failures = match (NamedTree::open(&db, &arguments.tree)?, prefix) {
        (NamedTree::Plain(tree), Some(prefix)) => print_all(tree.prefix(prefix), arguments, &mut printer)?,
        (NamedTree::Plain(tree), None) => print_all(tree.range((from, to)), arguments, &mut printer)?,
        (NamedTree::Multi(tree), Some(prefix)) => print_all(tree.prefix(prefix), arguments, &mut printer)?,
        (NamedTree::Multi(tree), None) => print_all(tree.range((from, to)), arguments, &mut printer)?,
    };
    printer.finish()?;
    Ok(if failures == 0 { OK } else { NOT_FOUND })
}

fn print_all(
    pairs: impl DoubleEndedIterator<Item = braiddb::Result<(Key, Value)>>,
    arguments: &ScanArguments,
    printer: &mut PairPrinter,
) -> Result<u64> {
    let limit = arguments.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut failures = 0;
    let mut print = |pair: braiddb::Result<(Key, Value)>| -> Result<()> {
        match pair {
            Ok((key, value)) => printer.print(&key, &value)?,
            Err(error) if is_of_one_record(&error) => {
                note!("braid: left out: {error}");
                failures += 1;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    };
    if arguments.reverse {
        pairs.rev().take(limit).try_for_each(&mut print)?;
    } else {
        pairs.take(limit).try_for_each(&mut print)?;
    }
    Ok(failures)
}
