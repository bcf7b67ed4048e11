//! How the rows of a table are read: what separates fields, what they are called, and what they
//! are.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// JSON.
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

    /// The value of a field's text; an empty field is null, unless it is text. An error names the
    /// type.
    pub fn value_of(self, text: String) -> Result<Value, String> {
        if self == FieldType::Text {
            return Ok(Value::String(text));
        }
        let trimmed = text.trim();
        let value = match self {
            FieldType::Text => None,
            _ if trimmed.is_empty() => return Ok(Value::Null),
            FieldType::Int => whole_number(trimmed),
            FieldType::Float => {
                serde_json::from_str(trimmed.strip_prefix('+').unwrap_or(trimmed)).ok().map(Value::Number)
            }
            FieldType::Bool if trimmed == "1" || trimmed.eq_ignore_ascii_case("true") => Some(Value::Bool(true)),
            FieldType::Bool if trimmed == "0" || trimmed.eq_ignore_ascii_case("false") => Some(Value::Bool(false)),
            FieldType::Bool => None,
            FieldType::Json => serde_json::from_str(trimmed).ok(),
        };
        value.ok_or_else(|| format!("{text:?} is not {}", self.name()))
    }
}

/// A whole number. JSON has no leading zeros and no plus: they are dropped.
fn whole_number(text: &str) -> Option<Value> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    let number = if digits.is_empty() { "0".to_owned() } else { format!("{sign}{digits}") };
    serde_json::from_str(&number).ok().map(Value::Number)
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
