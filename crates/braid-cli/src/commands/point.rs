//! One key: `get`, `put`, `del`.

use std::{
    io::{Read, Write},
    time::Duration,
};

use anyhow::Result;

use super::open::{NamedTree, key_notation, open_for_reading, open_for_writing};
use crate::{
    arguments::{DelArguments, GetArguments, PutArguments, ValueFormat},
    exit::{NOT_FOUND, OK, usage},
    import::Indexes,
    notation::{parse_key, to_hex, to_printable},
};

/// `braid get`
pub fn get(arguments: &GetArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let key = parse_key(&arguments.key, key_notation(&db, &arguments.tree, arguments.key_arguments)?)?;
    let values = match NamedTree::open(&db, &arguments.tree)? {
        NamedTree::Plain(tree) => tree.get(&key)?.into_iter().collect(),
        NamedTree::Multi(tree) => {
            tree.values(&key).map(|item| item.map(|(_, value)| value)).collect::<braiddb::Result<Vec<_>>>()?
        }
    };
    let mut out = std::io::stdout().lock();
    for value in &values {
        match arguments.format {
            ValueFormat::Text => writeln!(out, "{}", to_printable(value))?,
            ValueFormat::Hex => writeln!(out, "{}", to_hex(value))?,
            ValueFormat::Raw => out.write_all(value)?,
        }
    }
    out.flush()?;
    if values.is_empty() {
        eprintln!("braid: no such key: {}", arguments.key);
        return Ok(NOT_FOUND);
    }
    Ok(OK)
}

/// `braid put`
pub fn put(arguments: &PutArguments) -> Result<u8> {
    let value = match arguments.value.as_str() {
        "-" => {
            let mut value = Vec::new();
            std::io::stdin().read_to_end(&mut value)?;
            value
        }
        text => text.as_bytes().to_vec(),
    };
    let db = open_for_writing(&arguments.db, &arguments.open, true)?;
    let key = parse_key(&arguments.key, key_notation(&db, &arguments.tree, arguments.key_arguments)?)?;
    let mut batch = db.batch();
    match NamedTree::find(&db, &arguments.tree)? {
        Some(NamedTree::Multi(_)) if arguments.ttl.is_some() => {
            return Err(usage(format!("the tree {} has many values to a key: they cannot expire", arguments.tree)));
        }
        Some(NamedTree::Multi(tree)) => {
            batch.add(&tree, &key, &value);
        }
        _ => {
            let tree = db.tree(&arguments.tree)?;
            let indexes = Indexes::load(&db, &arguments.tree)?;
            if arguments.ttl.is_some() && !indexes.specs.is_empty() {
                let reason = "the tree has indexes, whose records would stay: it cannot have values that expire";
                return Err(usage(reason.to_owned()));
            }
            let old = tree.get(&key)?.map(|stored| indexes.keys_of_stored(&stored)).unwrap_or_default();
            indexes.replace(&mut batch, &key, &old, &indexes.keys_of_stored(&value));
            match arguments.ttl {
                None => batch.put(&tree, &key, &value),
                Some(seconds) => batch.put_with_ttl(&tree, &key, &value, Duration::from_secs(seconds)),
            };
        }
    }
    db.write(batch, arguments.durability.into())?;
    db.close()?;
    Ok(OK)
}

/// `braid del`
pub fn del(arguments: &DelArguments) -> Result<u8> {
    let db = open_for_writing(&arguments.db, &arguments.open, false)?;
    let key = parse_key(&arguments.key, key_notation(&db, &arguments.tree, arguments.key_arguments)?)?;
    let mut batch = db.batch();
    match NamedTree::open(&db, &arguments.tree)? {
        NamedTree::Plain(tree) => {
            if arguments.value.is_some() {
                return Err(usage(format!("the tree {} has one value to a key: leave --value out", arguments.tree)));
            }
            if let Some(stored) = tree.get(&key)? {
                let indexes = Indexes::load(&db, &arguments.tree)?;
                indexes.replace(&mut batch, &key, &indexes.keys_of_stored(&stored), &[]);
                batch.delete(&tree, &key);
            }
        }
        NamedTree::Multi(tree) => {
            for item in tree.values(&key) {
                let (_, value) = item?;
                if arguments.value.as_ref().is_none_or(|wanted| wanted.as_bytes() == &*value) {
                    batch.remove(&tree, &key, &value);
                }
            }
        }
    }
    let found = !batch.is_empty();
    if found {
        db.write(batch, arguments.durability.into())?;
    } else {
        eprintln!("braid: no such key: {}", arguments.key);
    }
    db.close()?;
    Ok(if found { OK } else { NOT_FOUND })
}
