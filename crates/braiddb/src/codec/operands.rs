//! The value of an entry of kind `Merge`: operands to apply to a base value.
//!
//! | field | |
//! |---|---|
//! | base | u8: 0 the next older entry has it; 1 absent; 2 it follows: varint length, bytes |
//! | reach | varint: the entry includes the key's versions of commits `sequence - reach ..= sequence` |
//! | operands | oldest first, each: function number (varint), length (varint), bytes |

use super::{ByteReader, put_bytes, put_varint};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base<'a> {
    /// The base is in the next older entry.
    Beneath,
    /// No value.
    Absent,
    Value(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands<'a> {
    pub base: Base<'a>,
    /// Number of earlier commits whose versions of the key the entry includes.
    pub reach: u64,
    list: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand<'a> {
    pub function: u64,
    pub bytes: &'a [u8],
}

impl<'a> Operands<'a> {
    pub fn decode(bytes: &'a [u8]) -> Option<Operands<'a>> {
        let mut reader = ByteReader::new(bytes);
        let base = match reader.u8()? {
            0 => Base::Beneath,
            1 => Base::Absent,
            2 => Base::Value(reader.bytes()?),
            _ => return None,
        };
        let reach = reader.varint()?;
        let list = &bytes[reader.position()..];
        while !reader.is_at_end() {
            read_operand(&mut reader)?;
        }
        Some(Operands { base, reach, list })
    }

    pub fn iter(&self) -> impl Iterator<Item = Operand<'a>> {
        let mut reader = ByteReader::new(self.list);
        std::iter::from_fn(move || read_operand(&mut reader))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        match self.base {
            Base::Beneath => out.push(0),
            Base::Absent => out.push(1),
            Base::Value(value) => {
                out.push(2);
                put_bytes(out, value);
            }
        }
        put_varint(out, self.reach);
        out.extend_from_slice(self.list);
    }

    pub fn on(&self, base: Base<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.list.len() + 16);
        Operands { base, reach: self.reach, list: self.list }.encode(&mut out);
        out
    }

    pub fn on_top_of(&self, older: &Operands<'_>, reach: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(older.list.len() + self.list.len() + 16);
        Operands { reach, ..*older }.encode(&mut out);
        out.extend_from_slice(self.list);
        out
    }
}

fn read_operand<'a>(reader: &mut ByteReader<'a>) -> Option<Operand<'a>> {
    Some(Operand { function: reader.varint()?, bytes: reader.bytes()? })
}

pub fn encode_operands<'a>(base: Base<'_>, reach: u64, operands: impl Iterator<Item = Operand<'a>>) -> Vec<u8> {
    let mut out = Vec::new();
    Operands { base, reach, list: &[] }.encode(&mut out);
    for operand in operands {
        put_varint(&mut out, operand.function);
        put_bytes(&mut out, operand.bytes);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_round_trip_and_stack() {
        let operand = |function, bytes| Operand { function, bytes };
        let older = [operand(1, &b"a"[..]), operand(300, b"")];
        let newer = [operand(2, &[7; 200][..])];
        for base in [Base::Beneath, Base::Absent, Base::Value(b""), Base::Value(&[5; 1000])] {
            let bytes = encode_operands(base, 7, older.iter().copied());
            let decoded = Operands::decode(&bytes).unwrap();
            assert_eq!((decoded.base, decoded.reach), (base, 7));
            assert_eq!(decoded.iter().collect::<Vec<_>>(), older);
            let top = encode_operands(Base::Beneath, 0, newer.iter().copied());
            let piled = Operands::decode(&top).unwrap().on_top_of(&decoded, 1 << 40);
            let piled = Operands::decode(&piled).unwrap();
            assert_eq!((piled.base, piled.reach), (base, 1 << 40));
            assert_eq!(piled.iter().collect::<Vec<_>>(), [&older[..], &newer[..]].concat());
            let whole = encode_operands(base, 7, older.iter().copied());
            for len in 0..whole.len() {
                assert!(Operands::decode(&whole[..len]).is_none_or(|cut| cut.iter().count() < 2));
            }
        }
        assert_eq!(Operands::decode(&[3, 0]), None);
        assert_eq!(Operands::decode(b""), None);
    }
}
