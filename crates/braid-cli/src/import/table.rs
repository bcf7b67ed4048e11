//! Options to read the rows of a table: delimiter, column names and types.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::format::Format;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<Delimiter>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_header: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<TypedField>,
}

impl TableOptions {
    pub fn is_default(&self) -> bool {
        *self == TableOptions::default()
    }

    pub fn delimiter(&self, format: Format) -> u8 {
        let default = if format == Format::Tsv { b'\t' } else { b',' };
        self.delimiter.map_or(default, |delimiter| delimiter.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delimiter(pub u8);

impl FromStr for Delimiter {
    type Err = String;

    fn from_str(text: &str) -> Result<Delimiter, String> {
        match text.as_bytes() {
            b"tab" | b"\\t" => Ok(Delimiter(b'\t')),
            [b'"' | b'\n' | b'\r' | 0] => Err("a delimiter cannot be a quote, a line end or a zero byte".to_owned()),
            [byte] if byte.is_ascii() => Ok(Delimiter(*byte)),
            _ => Err("give one ASCII character, or `tab`".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    Text,
    Int,
    Float,
    /// `true` or `false` in any case, or `1` or `0`.
    Bool,
    /// JSON, kept as written except for spaces between its tokens.
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

    /// Converts a field's text into a value and the JSON to store. JSON and numbers are stored as
    /// written, since a parsed [`Value`] loses duplicate members and the form of an exponent.
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
        // Parses the stored text, to be sure that it is JSON.
        let value = json.and_then(|json| serde_json::from_str(&json).ok().map(|value| (value, without_spaces(&json))));
        value.ok_or_else(|| format!("{text:?} is not {}", self.name()))
    }
}

/// Removes whitespace between the tokens of valid JSON, so that a record is one line.
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

/// Formats an integer for JSON, without leading zeros and plus sign.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedField {
    pub field: String,
    pub of: FieldType,
}

impl FromStr for TypedField {
    type Err = String;

    fn from_str(text: &str) -> Result<TypedField, String> {
        let (field, name) = text.rsplit_once(':').ok_or("give FIELD:TYPE")?;
        let all = [FieldType::Text, FieldType::Int, FieldType::Float, FieldType::Bool, FieldType::Json];
        let of = all.into_iter().find(|of| of.name() == name);
        let of = of.ok_or_else(|| format!("{name:?} is not a type: give text, int, float, bool or json"))?;
        Ok(TypedField { field: field.to_owned(), of })
    }
}
