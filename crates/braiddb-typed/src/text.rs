//! Tuples as JSON text, for people, test vectors and the `braid` command.
//!
//! | element | JSON |
//! |---|---|
//! | null, false, true | the same |
//! | integer of 64 bits | a number without point and exponent |
//! | longer integer | `{"int":"-0x..."}`: sign and hexadecimal magnitude, at most 255 bytes |
//! | double | a number with point or exponent; `{"double":"7ff8000000000000"}`: the bits of others |
//! | float | `{"float":1.5}`, or `{"float":"7fc00000"}` |
//! | text | a string |
//! | bytes | `{"bytes":"00ff"}` |
//! | UUID | `{"uuid":"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}` |
//! | versionstamp | `{"versionstamp":"..."}`: 12 bytes |
//! | nested tuple | an array |
//!
//! A key is an array. Each tuple has one text and the reverse, so a changed key is never mistaken
//! for another.

use crate::element::{self, Element};
use serde_json::{Map, Number, Value, json};

/// Maximum bytes of a long integer's magnitude.
const INT_LEN_MAX: usize = 255;

/// Returns the JSON of a packed tuple, or `None` if the bytes are no tuple.
pub fn to_json(packed: &[u8]) -> Option<Value> {
    let elements = element::decode(packed)?;
    Some(Value::Array(elements.iter().map(value_of).collect()))
}

/// Packs the tuple of a JSON array, or of one element. The error names the offending part.
///
/// Refuses a bare integer of more than 64 bits if serde_json has its feature `arbitrary_precision`;
/// without it, serde_json parses one as a double.
pub fn from_json(json: &Value) -> Result<Vec<u8>, String> {
    let elements = match json {
        Value::Array(elements) => elements.iter().map(element_of).collect::<Result<Vec<_>, _>>()?,
        element => vec![element_of(element)?],
    };
    let mut packed = Vec::new();
    element::encode(&elements, &mut packed);
    Ok(packed)
}

/// Returns the text of a packed tuple; bytes that are no tuple as `hex:...`.
pub fn show(packed: &[u8]) -> String {
    to_json(packed).map_or_else(|| format!("hex:{}", hex(packed)), |json| json.to_string())
}

fn value_of(element: &Element) -> Value {
    match element {
        Element::Null => Value::Null,
        Element::Bool(flag) => json!(flag),
        Element::Text(text) => json!(text),
        Element::Bytes(bytes) => json!({ "bytes": hex(bytes) }),
        Element::Nested(elements) => Value::Array(elements.iter().map(value_of).collect()),
        Element::Float(bits) => match f64::from(f32::from_bits(*bits)) {
            float if float.is_finite() => json!({ "float": float }),
            _ => json!({ "float": hex(&bits.to_be_bytes()) }),
        },
        Element::Double(bits) => match Number::from_f64(f64::from_bits(*bits)) {
            Some(number) => Value::Number(number),
            None => json!({ "double": hex(&bits.to_be_bytes()) }),
        },
        Element::Uuid(bytes) => json!({ "uuid": foundationdb_tuple::Uuid::from_bytes(*bytes).to_string() }),
        Element::Versionstamp(bytes) => json!({ "versionstamp": hex(bytes) }),
        Element::Int { is_negative, magnitude } => integer(*is_negative, magnitude),
    }
}

fn integer(is_negative: bool, magnitude: &[u8]) -> Value {
    if magnitude.len() <= 8 {
        let number = magnitude.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        if !is_negative {
            return json!(number);
        }
        if let Ok(number) = i64::try_from(-i128::from(number)) {
            return json!(number);
        }
    }
    let sign = if is_negative { "-" } else { "" };
    json!({ "int": format!("{sign}0x{}", hex(magnitude)) })
}

fn element_of(json: &Value) -> Result<Element, String> {
    match json {
        Value::Null => Ok(Element::Null),
        Value::Bool(flag) => Ok(Element::Bool(*flag)),
        Value::String(text) => Ok(Element::Text(text.clone())),
        Value::Array(elements) => Ok(Element::Nested(elements.iter().map(element_of).collect::<Result<_, _>>()?)),
        Value::Number(number) => number_of(number),
        Value::Object(object) => object_of(object).ok_or_else(|| {
            format!(
                "{json} is no element of a tuple: give null, true, false, a number, a string, an array, or an object with one of \
                 bytes, uuid, float, double, int and versionstamp"
            )
        }),
    }
}

fn number_of(number: &Number) -> Result<Element, String> {
    let text = number.to_string();
    if text.contains(['.', 'e', 'E']) {
        let double = text.parse::<f64>().ok().filter(|double| double.is_finite());
        return double
            .map(|double| Element::Double(double.to_bits()))
            .ok_or_else(|| format!("the number {text} is too large for a double"));
    }
    if text == "-0" {
        return Err("-0 is no integer: give 0, or the double -0.0".to_owned());
    }
    let (is_negative, magnitude) = match (number.as_u64(), number.as_i64()) {
        (Some(number), _) => (false, number),
        (None, Some(number)) => (true, number.unsigned_abs()),
        (None, None) => {
            return Err(format!("the integer {text} has more than 64 bits: give it as {{\"int\":\"0x...\"}}"));
        }
    };
    Ok(Element::Int { is_negative, magnitude: trimmed(&magnitude.to_be_bytes()).to_vec() })
}

fn object_of(object: &Map<String, Value>) -> Option<Element> {
    let mut fields = object.iter();
    let (Some((name, value)), None) = (fields.next(), fields.next()) else { return None };
    Some(match (name.as_str(), value) {
        ("bytes", Value::String(text)) => Element::Bytes(unhex(text)?),
        ("uuid", Value::String(text)) => Element::Uuid(text.parse::<foundationdb_tuple::Uuid>().ok()?.into_bytes()),
        ("versionstamp", Value::String(text)) => Element::Versionstamp(unhex(text)?.try_into().ok()?),
        ("float", Value::String(text)) => Element::Float(u32::from_be_bytes(unhex(text)?.try_into().ok()?)),
        ("float", Value::Number(number)) => {
            let double = number.to_string().parse::<f64>().ok()?;
            // Other doubles are between two floats.
            let float = double as f32;
            (f64::from(float) == double).then(|| Element::Float(float.to_bits()))?
        }
        ("double", Value::String(text)) => Element::Double(u64::from_be_bytes(unhex(text)?.try_into().ok()?)),
        ("int", Value::String(text)) => {
            let (is_negative, digits) = match text.strip_prefix('-') {
                Some(digits) => (true, digits),
                None => (false, text.as_str()),
            };
            let bytes = unhex(digits.strip_prefix("0x")?)?;
            let magnitude = trimmed(&bytes).to_vec();
            let is_valid = magnitude.len() <= INT_LEN_MAX && !(is_negative && magnitude.is_empty());
            is_valid.then_some(Element::Int { is_negative, magnitude })?
        }
        _ => return None,
    })
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

/// Returns the hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of hexadecimal digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}
