//! Tuples whose types are not known at compile time.
//!
//! | code | element |
//! |---|---|
//! | 00 | null; within a nested tuple 00 FF |
//! | 01, 02 | bytes, text: each byte 00 as 00 FF, then 00 |
//! | 05 | nested tuple: elements, then 00 |
//! | 0B | negative integer of more than 8 bytes: length ^ FF, complement of the magnitude |
//! | 0C to 13 | negative integer of 14 - code bytes (hexadecimal): complement of the magnitude |
//! | 14 | zero |
//! | 15 to 1C | positive integer of code - 14 bytes |
//! | 1D | positive integer of more than 8 bytes: length, magnitude |
//! | 20, 21 | float, double: big endian; negative ones complemented, others with the sign bit set |
//! | 26, 27 | false, true |
//! | 30 | UUID, 16 bytes |
//! | 33 | versionstamp, 12 bytes |

/// Maximum nesting, so that damaged keys cannot exhaust the stack.
const DEPTH_MAX: usize = 64;

/// An element. Floats are bits, so that NaNs keep theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    Null,
    Bytes(Vec<u8>),
    Text(String),
    Nested(Vec<Element>),
    /// Big endian, without leading zeros; empty: zero.
    Int {
        is_negative: bool,
        magnitude: Vec<u8>,
    },
    Float(u32),
    Double(u64),
    Bool(bool),
    Uuid([u8; 16]),
    Versionstamp([u8; 12]),
}

/// Decodes a packed tuple. `None` if it is none, or not in canonical form.
pub fn decode(packed: &[u8]) -> Option<Vec<Element>> {
    let (mut input, mut elements) = (packed, Vec::new());
    while !input.is_empty() {
        elements.push(take(&mut input, 0)?);
    }
    Some(elements)
}

/// Returns the length of the first element of a packed tuple.
pub fn first_len(packed: &[u8]) -> Option<usize> {
    let mut input = packed;
    take(&mut input, 0)?;
    Some(packed.len() - input.len())
}

fn take(input: &mut &[u8], depth: usize) -> Option<Element> {
    let [code] = bytes::<1>(input)?;
    Some(match code {
        0x00 if depth == 0 => Element::Null,
        0x00 => (bytes::<1>(input)? == [0xff]).then_some(Element::Null)?,
        0x01 => Element::Bytes(escaped(input)?),
        0x02 => Element::Text(String::from_utf8(escaped(input)?).ok()?),
        0x05 => Element::Nested(nested(input, depth)?),
        0x0b => {
            let [len] = bytes::<1>(input)?;
            let magnitude = complement(slice(input, usize::from(!len))?);
            long(true, magnitude)?
        }
        0x0c..=0x13 => short(true, complement(slice(input, usize::from(0x14 - code))?))?,
        0x14 => Element::Int { is_negative: false, magnitude: Vec::new() },
        0x15..=0x1c => short(false, slice(input, usize::from(code - 0x14))?.to_vec())?,
        0x1d => {
            let [len] = bytes::<1>(input)?;
            long(false, slice(input, usize::from(len))?.to_vec())?
        }
        0x20 => {
            let ordered = u32::from_be_bytes(bytes(input)?);
            Element::Float(if ordered >> 31 == 0 { !ordered } else { ordered ^ 1 << 31 })
        }
        0x21 => {
            let ordered = u64::from_be_bytes(bytes(input)?);
            Element::Double(if ordered >> 63 == 0 { !ordered } else { ordered ^ 1 << 63 })
        }
        0x26 => Element::Bool(false),
        0x27 => Element::Bool(true),
        0x30 => Element::Uuid(bytes(input)?),
        0x33 => Element::Versionstamp(bytes(input)?),
        _ => return None,
    })
}

fn slice<'a>(input: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(taken)
}

fn bytes<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    slice(input, N)?.try_into().ok()
}

fn complement(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

fn short(is_negative: bool, magnitude: Vec<u8>) -> Option<Element> {
    magnitude.first().is_some_and(|byte| *byte > 0).then_some(Element::Int { is_negative, magnitude })
}

fn long(is_negative: bool, magnitude: Vec<u8>) -> Option<Element> {
    if magnitude.len() > 8 { short(is_negative, magnitude) } else { None }
}

fn escaped(input: &mut &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let len = input.iter().position(|byte| *byte == 0)?;
        out.extend_from_slice(slice(input, len)?);
        slice(input, 1)?;
        if input.first() != Some(&0xff) {
            return Some(out);
        }
        slice(input, 1)?;
        out.push(0);
    }
}

fn nested(input: &mut &[u8], depth: usize) -> Option<Vec<Element>> {
    if depth == DEPTH_MAX {
        return None;
    }
    let mut elements = Vec::new();
    loop {
        match **input {
            [0x00, 0xff, ..] => {}
            [0x00, ..] => {
                slice(input, 1)?;
                return Some(elements);
            }
            _ => {}
        }
        elements.push(take(input, depth + 1)?);
    }
}

/// Appends the packed tuple.
pub fn encode(elements: &[Element], output: &mut Vec<u8>) {
    for element in elements {
        put(element, false, output);
    }
}

fn put(element: &Element, is_nested: bool, output: &mut Vec<u8>) {
    match element {
        Element::Null if is_nested => output.extend([0x00, 0xff]),
        Element::Null => output.push(0x00),
        Element::Bytes(bytes) => put_escaped(0x01, bytes, output),
        Element::Text(text) => put_escaped(0x02, text.as_bytes(), output),
        Element::Nested(elements) => {
            output.push(0x05);
            for element in elements {
                put(element, true, output);
            }
            output.push(0x00);
        }
        Element::Int { is_negative, magnitude } => put_integer(*is_negative, magnitude, output),
        Element::Float(bits) => {
            output.push(0x20);
            let ordered = if bits >> 31 == 1 { !bits } else { bits ^ 1 << 31 };
            output.extend(ordered.to_be_bytes());
        }
        Element::Double(bits) => {
            output.push(0x21);
            let ordered = if bits >> 63 == 1 { !bits } else { bits ^ 1 << 63 };
            output.extend(ordered.to_be_bytes());
        }
        Element::Bool(flag) => output.push(if *flag { 0x27 } else { 0x26 }),
        Element::Uuid(bytes) => {
            output.push(0x30);
            output.extend(bytes);
        }
        Element::Versionstamp(bytes) => {
            output.push(0x33);
            output.extend(bytes);
        }
    }
}

fn put_escaped(code: u8, bytes: &[u8], output: &mut Vec<u8>) {
    output.push(code);
    for byte in bytes {
        output.push(*byte);
        if *byte == 0 {
            output.push(0xff);
        }
    }
    output.push(0x00);
}

/// `magnitude` has at most 255 bytes.
fn put_integer(is_negative: bool, magnitude: &[u8], output: &mut Vec<u8>) {
    let len = magnitude.len() as u8;
    match (is_negative, magnitude.len() <= 8) {
        (false, true) => output.push(0x14 + len),
        (false, false) => output.extend([0x1d, len]),
        (true, true) => output.push(0x14 - len),
        (true, false) => output.extend([0x0b, !len]),
    }
    output.extend(magnitude.iter().map(|byte| if is_negative { !byte } else { *byte }));
}
