//! `braid scan`

use std::time::Instant;

use anyhow::Result;
use braiddb::{Key, Value};

use super::{
    count::RangeArguments,
    open::{NamedTree, key_notation, open_for_reading},
    pairs::PairPrinter,
};
use crate::{
    arguments::ScanArguments,
    exit::{NOT_FOUND, OK},
    logging,
    output::note,
    transfer::is_of_one_record,
    typed::codec_of,
};

pub fn scan(arguments: &ScanArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let notation = key_notation(&db, &arguments.tree, arguments.key_arguments)?;
    let ScanArguments { from, to, prefix, .. } = arguments;
    let range = RangeArguments { from: from.clone(), to: to.clone(), prefix: prefix.clone() }.keys(notation)?;
    let mut printer =
        PairPrinter::new(arguments.format.or_json(arguments.json), notation, codec_of(&db, &arguments.tree)?);
    let begun = Instant::now();
    let (shown, failures) = match NamedTree::open(&db, &arguments.tree)? {
        NamedTree::Plain(tree) => print_all(tree.range(range), arguments, &mut printer)?,
        NamedTree::Multi(tree) => print_all(tree.range(range), arguments, &mut printer)?,
    };
    printer.finish()?;
    logging::note_rate("printed", shown, begun.elapsed());
    Ok(if failures == 0 { OK } else { NOT_FOUND })
}

fn print_all(
    pairs: impl DoubleEndedIterator<Item = braiddb::Result<(Key, Value)>>,
    arguments: &ScanArguments,
    printer: &mut PairPrinter,
) -> Result<(u64, u64)> {
    let limit = arguments.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let (mut shown, mut failures) = (0, 0);
    let mut print = |pair: braiddb::Result<(Key, Value)>| -> Result<()> {
        match pair {
            Ok((key, value)) => {
                printer.print(&key, &value)?;
                shown += 1;
            }
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
    Ok((shown, failures))
}
