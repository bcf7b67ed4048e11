//! How the rows of a table are read: what separates fields, what they are called, and what they
//! are.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::format::Format;

/// How rows are read, beside their format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableOptions {
    /// What separates fields, if not what the format says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<Delimiter>,
    /// Whether the first row is a record.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_header: bool,
    /// Names of the columns, in the place of those in the first row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Types of columns that are not text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypedField>,
}

impl TableOptions {
    /// Whether nothing is given.
    pub fn is_default(&self) -> bool {
        *self == TableOptions::default()
    }

    /// The byte that separates fields.
    pub fn delimiter(&self, format: Format) -> u8 {
        let default = if format == Format::Tsv { b'\t' } else { b',' };
        self.delimiter.map_or(default, |delimiter| delimiter.0)
    }
}

/// What separates fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delimiter(pub u8);

impl FromStr for Delimiter {
    type Err = String;

    fn from_str(text: &str) -> Result<Delimiter, String> {
        match text.as_bytes() {
            b"tab" | b"\\t" => Ok(Delimiter(b'\t')),
            [b'"' | b'\n' | b'\r' | 0] => Err("fields cannot be separated by quotes, line ends or zeros".to_owned()),
            [byte] if byte.is_ascii() => Ok(Delimiter(*byte)),
            _ => Err("give one ASCII character, or `tab`".to_owned()),
        }
    }
}

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// Text, as it is.
    Text,
    /// A whole number of any size.
    Int,
    /// A number with a fraction or an exponent, kept as it is written.
    Float,
    /// `true` or `false`, in any case, or `1` or `0`.
    Bool,
    /// JSON, kept as it is written but for spaces between its tokens.
    Json,
}

impl FieldType {
    fn name(self) -> &'static str {
        match self {
            FieldType::Text => "text",
            FieldType::Int => "int",
            FieldType::Float => "float",
            FieldType::Bool => "bool",
            FieldType::Json => "json",
        }
    }

    /// The value of a field's text, and the JSON that is stored for it; an empty field is null, unless it is text. An error
    /// names the type. JSON and numbers are stored as they are written: a parsed [`Value`] has lost members of one name and the
    /// form of an exponent.
    pub fn value_of(self, text: String) -> Result<(Value, String), String> {
        let trimmed = text.trim();
        let json = match self {
            FieldType::Text => {
                let value = Value::String(text);
                let json = value.to_string();
                return Ok((value, json));
            }
            _ if trimmed.is_empty() => Some("null".to_owned()),
            FieldType::Int => whole_number(trimmed),
            FieldType::Float => {
                let number = trimmed.strip_prefix('+').unwrap_or(trimmed);
                serde_json::from_str::<Number>(number).is_ok().then(|| number.to_owned())
            }
            FieldType::Bool if trimmed == "1" || trimmed.eq_ignore_ascii_case("true") => Some("true".to_owned()),
            FieldType::Bool if trimmed == "0" || trimmed.eq_ignore_ascii_case("false") => Some("false".to_owned()),
            FieldType::Bool => None,
            FieldType::Json => Some(trimmed.to_owned()),
        };
        // It is parsed once more as what it is stored as: only then it is surely JSON.
        let value = json.and_then(|json| serde_json::from_str(&json).ok().map(|value| (value, without_spaces(&json))));
        value.ok_or_else(|| format!("{text:?} is not {}", self.name()))
    }
}

/// Valid JSON without spaces and line ends between its tokens: all of a record is in one line.
fn without_spaces(json: &str) -> String {
    let (mut is_in_string, mut is_escaped) = (false, false);
    let is_kept = |c: &char| {
        let keep = is_in_string || !c.is_ascii_whitespace();
        match *c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_in_string => is_escaped = true,
            '"' => is_in_string = !is_in_string,
            _ => {}
        }
        keep
    };
    json.chars().filter(is_kept).collect()
}

/// A whole number. JSON has no leading zeros and no plus: they are dropped.
fn whole_number(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some(if digits.is_empty() { "0".to_owned() } else { format!("{sign}{digits}") })
}

/// A column with its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedField {
    /// Its name.
    pub field: String,
    /// Its type.
    pub of: FieldType,
}

impl FromStr for TypedField {
    type Err = String;

    fn from_str(text: &str) -> Result<TypedField, String> {
        let (field, name) = text.rsplit_once(':').ok_or("give FIELD:TYPE")?;
        let all = [FieldType::Text, FieldType::Int, FieldType::Float, FieldType::Bool, FieldType::Json];
        let of = all.into_iter().find(|of| of.name() == name);
        let of = of.ok_or_else(|| format!("{name:?} is no type: there are text, int, float, bool and json"))?;
        Ok(TypedField { field: field.to_owned(), of })
    }
}
