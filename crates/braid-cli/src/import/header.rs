//! Column names: the first row of a table. A first row that suggests another delimiter is refused
//! with advice.

use std::{borrow::Cow, io::Read};

use anyhow::Result;

use super::{
    format::Format,
    pipeline::{FirstRow, RecordSource},
    progress::Progress,
};
use crate::{
    dirt::Dirt,
    exit::{INPUT, failure},
    freedb::decode_fields,
    input::{Fields, Place, Row, RowReader, RowStyle, split_fields, unreadable},
};

const OTHER_DELIMITERS: [(u8, &str, &str); 4] =
    [(b',', "commas", ","), (b';', "semicolons", "';'"), (b'\t', "tabs", "tab"), (b'|', "bars", "'|'")];

pub fn open_records(reader: Box<dyn Read + Send>, format: Format, progress: &mut Progress) -> Result<RecordSource> {
    let Some(style) = format.row_style(&progress.plan.table) else {
        return Ok(RecordSource::Archive(reader, Place::of(progress.next_offset)));
    };
    let mut rows = RowReader::new(reader, style, progress.next_offset, progress.next_line.unwrap_or(0));
    let mut first = None;
    if format.has_header() && progress.columns.is_empty() {
        let Some(row) = rows.next_row().map_err(unreadable)? else { return Ok(RecordSource::Rows(rows, None)) };
        progress.columns = read_columns(&row, style, progress)?;
        if progress.plan.table.no_header {
            first = Some(FirstRow::of(&row));
        } else {
            progress.next_offset = row.next_offset;
            progress.next_line = Some(rows.next_line());
        }
    }
    rows.expect_columns(progress.columns.len());
    Ok(RecordSource::Rows(rows, first))
}

fn read_columns(row: &Row<'_>, style: RowStyle, progress: &Progress) -> Result<Vec<String>> {
    let table = &progress.plan.table;
    let refuse = |why: String| Err(failure(INPUT, why));
    if row.defect.is_some() {
        return refuse(format!("the first row of the input cannot be read: {}", row.why));
    }
    refuse_delimiter_line(row.bytes())?;
    if table.delimiter.is_none() {
        refuse_other_delimiter(row.bytes(), style)?;
    }
    let Fields { fields: names, has_stray_quote } = split_fields(row.bytes(), style);
    if has_stray_quote {
        let why = Dirt::StrayQuote.explanation();
        return refuse(format!("the first row of the input cannot be read: {why}"));
    }
    let has_cr = |name: &Cow<'_, [u8]>| matches!(name, Cow::Borrowed(name) if name.contains(&b'\r'));
    if !table.no_header && names.iter().any(has_cr) {
        let why = Dirt::LoneCr.explanation();
        return refuse(format!("the first row of the input cannot be read: {why}"));
    }
    let columns = if !table.fields.is_empty() {
        let (given, there) = (table.fields.len(), names.len());
        if given != there {
            return refuse(format!(
                "--fields names {given} columns, but the first row has {there}: give one name for each"
            ));
        }
        table.fields.clone()
    } else if table.no_header {
        (1..=names.len()).map(|number| format!("c{number}")).collect()
    } else {
        decode_fields(names.iter().map(AsRef::as_ref)).0
    };
    let named = &columns[..named_columns(&columns)];
    let Some(last) = named.last() else {
        return refuse(
            "the first row of the input names no column: add --fields, and --no-header if it is a record".to_owned(),
        );
    };
    debug_assert!(!last.is_empty());
    if let Some(name) = first_repeated(named) {
        let name = if name.is_empty() { "have no name".to_owned() } else { format!("are named {name:?}") };
        return refuse(format!(
            "two columns of the input {name}: give --fields, with a name for each of the {} columns",
            columns.len()
        ));
    }
    for typed in &table.types {
        if !named.contains(&typed.field) {
            let (field, named) = (&typed.field, named.join(", "));
            return refuse(format!("--types: the input has no column {field:?}; its columns are {named}"));
        }
    }
    Ok(columns)
}

pub fn named_columns(columns: &[String]) -> usize {
    columns.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1)
}

fn first_repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)).map(|(_, name)| name)
}

/// Refuses the line `sep=;` that spreadsheets write.
fn refuse_delimiter_line(row: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(row);
    if let Some(rest) = text.strip_prefix("sep=").filter(|rest| rest.chars().count() == 1) {
        return Err(failure(
            INPUT,
            format!(
                "the first line of the input only declares its delimiter: add --delimiter '{rest}', and remove that \
                 line, for example with `tail -n +2`"
            ),
        ));
    }
    Ok(())
}

fn refuse_other_delimiter(row: &[u8], style: RowStyle) -> Result<()> {
    let Some(delimiter) = style.delimiter() else { return Ok(()) };
    let ours = OTHER_DELIMITERS.iter().find(|other| other.0 == delimiter);
    let (our_name, our_argument) = ours.map_or(("delimiters", "CHAR"), |&(_, name, argument)| (name, argument));
    let count = |wanted: u8| match style {
        RowStyle::Csv(_) => split_fields(row, RowStyle::Csv(wanted)).fields.len() - 1,
        _ => row.iter().filter(|&&byte| byte == wanted).count(),
    };
    let own = count(delimiter);
    for (other, name, argument) in OTHER_DELIMITERS.iter().filter(|other| other.0 != delimiter) {
        let found = count(*other);
        if found > 0 && found >= own {
            return Err(failure(
                INPUT,
                format!(
                    "the first row of the input has {own} {our_name} and {found} {name}: if {name} separate its fields, \
                     give --format csv --delimiter {argument}, else --delimiter {our_argument}"
                ),
            ));
        }
    }
    Ok(())
}
