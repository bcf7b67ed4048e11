//! Built-in merge functions.

use super::{ByteReader, MergeFunction, MergeFunctions, put_bytes};
use std::sync::Arc;

type Applied = std::result::Result<Vec<u8>, String>;

/// Adds 64-bit little-endian numbers, with wrap-around. An absent value counts as 0.
#[derive(Debug)]
struct Add;

/// Keeps the greater value in byte order. An absent value is the least.
#[derive(Debug)]
struct Max;

/// Keeps the lesser value in byte order. An absent value is the greatest.
#[derive(Debug)]
struct Min;

/// Appends bytes.
#[derive(Debug)]
struct Append;

/// Unites sets in the format of [`encode_set`].
#[derive(Debug)]
struct Union;

/// Applies JSON Merge Patches (RFC 7396).
#[cfg(feature = "json")]
#[derive(Debug)]
struct JsonMergePatch;

impl MergeFunctions {
    /// The numbers of these functions are part of the format and never change.
    pub fn built_in() -> MergeFunctions {
        let functions = MergeFunctions::default();
        functions.add_eager(1, "add", Arc::new(Add));
        functions.add(2, "max", Some(Arc::new(Max)));
        functions.add(3, "min", Some(Arc::new(Min)));
        functions.add(4, "append", Some(Arc::new(Append)));
        functions.add(5, "union", Some(Arc::new(Union)));
        #[cfg(feature = "json")]
        functions.add(6, "json_merge_patch", Some(Arc::new(JsonMergePatch)));
        #[cfg(not(feature = "json"))]
        functions.add(6, "json_merge_patch", None);
        functions
    }
}

fn number(bytes: &[u8]) -> std::result::Result<i64, String> {
    let bytes = bytes
        .try_into()
        .map_err(|_| format!("it must be a 64-bit number, 8 bytes, little-endian; it has {} bytes", bytes.len()))?;
    Ok(i64::from_le_bytes(bytes))
}

impl MergeFunction for Add {
    fn apply(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Applied {
        let before = value.map_or(Ok(0), number)?;
        Ok(before.wrapping_add(number(operand)?).to_le_bytes().to_vec())
    }

    fn check_operand(&self, operand: &[u8]) -> std::result::Result<(), String> {
        number(operand).map(|_| ())
    }

    fn combine(&self, key: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        self.apply(key, Some(earlier), later).ok()
    }
}

impl MergeFunction for Max {
    fn apply(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Applied {
        Ok(value.map_or(operand, |value| value.max(operand)).to_vec())
    }

    fn combine(&self, key: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        self.apply(key, Some(earlier), later).ok()
    }
}

impl MergeFunction for Min {
    fn apply(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Applied {
        Ok(value.map_or(operand, |value| value.min(operand)).to_vec())
    }

    fn combine(&self, key: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        self.apply(key, Some(earlier), later).ok()
    }
}

impl MergeFunction for Append {
    fn apply(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Applied {
        Ok([value.unwrap_or_default(), operand].concat())
    }

    fn combine(&self, _: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        Some([earlier, later].concat())
    }
}

/// Encodes a set for the merge function `union`: its members in order, each once, each after its
/// length as a varint.
pub fn encode_set<M: AsRef<[u8]>>(members: impl IntoIterator<Item = M>) -> Vec<u8> {
    let mut members: Vec<M> = members.into_iter().collect();
    members.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    members.dedup_by(|a, b| (*a).as_ref() == (*b).as_ref());
    let mut out = Vec::new();
    members.iter().for_each(|member| put_bytes(&mut out, member.as_ref()));
    out
}

/// Decodes a set that [`encode_set`] wrote. `None` if `bytes` are not a set.
pub fn decode_set(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut reader = ByteReader::new(bytes);
    let mut members = Vec::new();
    while !reader.is_at_end() {
        members.push(reader.bytes()?);
    }
    members.is_sorted_by(|a, b| a < b).then_some(members)
}

fn set(bytes: &[u8]) -> std::result::Result<Vec<&[u8]>, String> {
    decode_set(bytes).ok_or_else(|| "it must be a set, as `encode_set` makes one; it is none".to_owned())
}

impl MergeFunction for Union {
    fn apply(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Applied {
        let mut members = set(value.unwrap_or_default())?;
        members.extend(set(operand)?);
        Ok(encode_set(members))
    }

    fn check_operand(&self, operand: &[u8]) -> std::result::Result<(), String> {
        set(operand).map(|_| ())
    }

    fn combine(&self, key: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
        self.apply(key, Some(earlier), later).ok()
    }
}

#[cfg(feature = "json")]
mod json {
    use super::{Applied, JsonMergePatch, MergeFunction};
    use serde_json::{Map, Value};

    /// RFC 7396, section 2. `keeps_nulls` combines two patches: a null must still remove later.
    fn patched(target: Value, patch: Value, keeps_nulls: bool) -> Value {
        let Value::Object(patch) = patch else { return patch };
        let mut members = match target {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        for (name, value) in patch {
            if value.is_null() && !keeps_nulls {
                members.remove(&name);
            } else {
                let slot = members.entry(name).or_insert(Value::Null);
                *slot = patched(slot.take(), value, keeps_nulls);
            }
        }
        Value::Object(members)
    }

    fn parse(bytes: &[u8]) -> Result<Value, String> {
        serde_json::from_slice(bytes).map_err(|e| format!("it must be JSON; it is not: {e}"))
    }

    impl MergeFunction for JsonMergePatch {
        fn apply(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> Applied {
            let target = value.map_or(Ok(Value::Null), parse)?;
            Ok(patched(target, parse(operand)?, false).to_string().into_bytes())
        }

        fn check_operand(&self, operand: &[u8]) -> Result<(), String> {
            parse(operand).map(|_| ())
        }

        /// Combines only if each object in `later` meets an object or nothing in `earlier`.
        /// Otherwise the combination would merge `later` with the old member, which `earlier`
        /// replaces by a scalar.
        fn combine(&self, _: &[u8], earlier: &[u8], later: &[u8]) -> Option<Vec<u8>> {
            let (earlier, later) = (parse(earlier).ok()?, parse(later).ok()?);
            if !later.is_object() {
                return Some(later.to_string().into_bytes());
            }
            can_combine(&earlier, &later).then(|| patched(earlier, later, true).to_string().into_bytes())
        }
    }

    fn can_combine(earlier: &Value, later: &Value) -> bool {
        let (Value::Object(earlier), Value::Object(later)) = (earlier, later) else { return !later.is_object() };
        later.iter().all(|(name, value)| earlier.get(name).is_none_or(|before| can_combine(before, value)))
    }
}
