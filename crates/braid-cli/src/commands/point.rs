//! Commands for one key: `get`, `put`, `del`.

use std::{
    io::{Read, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use braiddb::{Db, TreeCodec};
use serde_json::json;

use super::{
    del_range::del_range,
    open::{NamedTree, key_notation, open_for_reading, open_for_writing, open_or_create},
    tree_names::refuse_own_tree,
};
use crate::{
    arguments::{DelArguments, GetArguments, InputFormat, PutArguments, ValueFormat},
    exit::{NOT_FOUND, OK, failure, usage},
    import::{IMPORT_TREE, Indexes, KnownTrees, NewNotation},
    notation::{KeyNotation, key_to_json, parse_key, show_counted, show_key, show_name},
    output::{Stdout, print_line},
    text_form::{parse_hex, parse_text, to_hex, to_json, to_text},
    typed,
};

pub fn get(arguments: &GetArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let notation = key_notation(&db, &arguments.tree, arguments.key_arguments)?;
    let key = parse_key(&arguments.key, notation)?;
    let values = match NamedTree::open(&db, &arguments.tree)? {
        NamedTree::Plain(tree) => tree.get_with_expiry(&key)?.into_iter().collect(),
        NamedTree::Multi(tree) => {
            tree.values(&key).map(|value| Ok((value?, None))).collect::<braiddb::Result<Vec<_>>>()?
        }
    };
    let format = if arguments.json { ValueFormat::Json } else { arguments.format };
    let codec = typed::codec_of(&db, &arguments.tree)?;
    let mut out = Stdout::new();
    for (stored, expires) in &values {
        write_value(&mut out, format, (&key, notation), codec, (stored, *expires))?;
    }
    out.finish()?;
    if values.is_empty() {
        return Err(missing(&key, notation));
    }
    Ok(OK)
}

pub fn write_value(
    out: &mut dyn Write,
    format: ValueFormat,
    (key, notation): (&[u8], KeyNotation),
    codec: Option<TreeCodec>,
    (stored, expires): (&[u8], Option<SystemTime>),
) -> Result<()> {
    let value = &*typed::shown(codec, stored);
    match format {
        ValueFormat::Text => writeln!(out, "{}", to_text(value))?,
        ValueFormat::Hex => writeln!(out, "{}", to_hex(stored))?,
        ValueFormat::Raw => out.write_all(stored)?,
        ValueFormat::Json => {
            let mut line = json!({"key": key_to_json(key, notation), "value": to_json(value)});
            if let Some(expires_us) = expires.and_then(unix_us) {
                line["expires_us"] = json!(expires_us);
            }
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

pub fn unix_us(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

fn missing(key: &[u8], notation: KeyNotation) -> anyhow::Error {
    failure(NOT_FOUND, format!("no such key: {}", show_key(key, notation)))
}

/// Standard input is read unchanged unless a format is given.
fn read_value(text: &str, format: Option<InputFormat>) -> Result<Vec<u8>> {
    let (bytes, format) = match text {
        "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            (bytes, format.unwrap_or(InputFormat::Raw))
        }
        text => (text.as_bytes().to_vec(), format.unwrap_or(InputFormat::Text)),
    };
    if format == InputFormat::Raw {
        return Ok(bytes);
    }
    let text = String::from_utf8(bytes).map_err(|_| usage("the value is not UTF-8: add --format raw"))?;
    parse_value(text.strip_suffix('\n').unwrap_or(&text), format)
}

pub fn parse_value(text: &str, format: InputFormat) -> Result<Vec<u8>> {
    match format {
        InputFormat::Hex => {
            parse_hex(text).ok_or_else(|| usage("the value is not hexadecimal: give two digits per byte"))
        }
        InputFormat::Text => parse_text(text).map_err(|why| usage(format!("{why}; or add --format raw"))),
        InputFormat::Raw => Ok(text.as_bytes().to_vec()),
    }
}

pub fn put(arguments: &PutArguments) -> Result<u8> {
    refuse_own_tree(&arguments.tree)?;
    let value = read_value(&arguments.value, arguments.format)?;
    let db = open_or_create(&arguments.db, &arguments.open, arguments.create)?;
    let known = KnownTrees::of(&db)?;
    let commit = put_value(&db, arguments, &value).inspect_err(|_| known.drop_new(&db, true))?;
    known.note_new(&db)?;
    db.close()?;
    if arguments.json {
        print_line(json!({"commit": commit}))?;
    }
    Ok(OK)
}

fn put_value(db: &Db, arguments: &PutArguments, value: &[u8]) -> Result<u64> {
    let notation = key_notation(db, &arguments.tree, arguments.key_arguments)?;
    let key = parse_key(&arguments.key, notation)?;
    let codec = typed::codec_of(db, &arguments.tree)?;
    let is_text = arguments.format.map_or(arguments.value != "-", |format| format == InputFormat::Text);
    let value = &typed::encoded(codec, value.to_vec(), is_text)?;
    let mut batch = db.batch();
    match NamedTree::find(db, &arguments.tree)? {
        Some(NamedTree::Multi(_)) if arguments.ttl.is_some() => {
            return Err(usage(format!(
                "the tree {} is a multi-value tree, whose values cannot expire: omit --ttl",
                show_name(&arguments.tree)
            )));
        }
        Some(NamedTree::Multi(tree)) => {
            batch.add(&tree, &key, value);
        }
        _ => {
            let tree = db.tree(&arguments.tree)?;
            typed::check_write(&tree, Some(&key))?;
            let indexes = Indexes::load(db, &arguments.tree)?;
            if arguments.ttl.is_some() && !indexes.specs.is_empty() {
                let reason = "the tree has indexes, whose entries do not expire with their records: omit --ttl";
                return Err(usage(reason.to_owned()));
            }
            let old = tree.get(&key)?.map(|stored| indexes.keys_of_stored(&stored)).unwrap_or_default();
            indexes.replace(&mut batch, &key, &old, &indexes.keys_of_stored(value));
            match arguments.ttl {
                None => batch.put(&tree, &key, value),
                Some(seconds) => batch.put_with_ttl(&tree, &key, value, Duration::from_secs(seconds)),
            };
            if notation == KeyNotation::U64 && tree.first()?.is_none() {
                let mut new = NewNotation::claim(db, &arguments.tree, notation, "--keys u64")?;
                if !new.is_needless() {
                    new.store(db, &arguments.tree, &db.tree(IMPORT_TREE)?, &mut batch)?;
                }
            }
        }
    }
    Ok(batch.commit_with(arguments.durability.into())?)
}

pub fn del(arguments: &DelArguments) -> Result<u8> {
    refuse_own_tree(&arguments.tree)?;
    let db = open_for_writing(&arguments.db, &arguments.open)?;
    let notation = key_notation(&db, &arguments.tree, arguments.key_arguments)?;
    let Some(key) = &arguments.key else { return del_keys(db, arguments, notation) };
    let key = parse_key(key, notation)?;
    let wanted = arguments.value.as_deref().map(parse_text).transpose().map_err(usage)?;
    let (mut batch, mut deleted) = (db.batch(), 0_u64);
    match NamedTree::open(&db, &arguments.tree)? {
        NamedTree::Plain(tree) => {
            if arguments.value.is_some() {
                return Err(usage(format!(
                    "the tree {} has one value per key: omit --value",
                    show_name(&arguments.tree)
                )));
            }
            typed::check_write(&tree, None)?;
            if let Some(stored) = tree.get(&key)? {
                let indexes = Indexes::load(&db, &arguments.tree)?;
                indexes.replace(&mut batch, &key, &indexes.keys_of_stored(&stored), &[]);
                batch.delete(&tree, &key);
                deleted = 1;
            }
        }
        NamedTree::Multi(tree) => {
            for value in tree.values(&key) {
                let value = value?;
                if wanted.as_ref().is_none_or(|wanted| **wanted == *value) {
                    batch.delete_pair(&tree, &key, &value);
                    deleted += 1;
                }
            }
        }
    }
    if deleted == 0 {
        return Err(missing(&key, notation));
    }
    batch.commit_with(arguments.durability.into())?;
    db.close()?;
    if arguments.json {
        print_line(json!({"deleted": deleted}))?;
    }
    Ok(OK)
}

fn del_keys(db: Db, arguments: &DelArguments, notation: KeyNotation) -> Result<u8> {
    if arguments.value.is_some() {
        return Err(usage("--value needs a key: give one, or omit --value"));
    }
    let count = del_range(&db, &arguments.tree, arguments.range.keys(notation)?, arguments.durability.into())?;
    db.close()?;
    match arguments.json {
        true => print_line(json!({"deleted": count}))?,
        false => print_line(format_args!("{} deleted", show_counted(count, "record")))?,
    }
    Ok(if count > 0 { OK } else { NOT_FOUND })
}
