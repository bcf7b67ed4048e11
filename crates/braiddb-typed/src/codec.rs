//! Value codecs.

use crate::error::BoxError;
use serde::{Serialize, de::DeserializeOwned};

/// Encodes and decodes values of type `V`. The tree's catalog entry stores [`ValueCodec::NAME`].
///
/// Implement it for a codec of your own. Its name must be 1 to 31 of the characters `a` to `z`, `0`
/// to `9`, `-`, `_` and `.`; the `braid` command shows values of unknown codecs as bytes.
pub trait ValueCodec<V> {
    /// The codec's name; never change its meaning.
    const NAME: &'static str;

    /// Appends the encoded value to `output`.
    fn encode(value: &V, output: &mut Vec<u8>) -> Result<(), BoxError>;

    /// Decodes a value. `bytes` may be damaged or of another codec: never panic.
    fn decode(bytes: &[u8]) -> Result<V, BoxError>;
}

/// JSON, named `json`: every tool and language reads it.
#[derive(Clone, Copy, Debug)]
pub enum Json {}

impl<V: Serialize + DeserializeOwned> ValueCodec<V> for Json {
    const NAME: &'static str = "json";

    fn encode(value: &V, output: &mut Vec<u8>) -> Result<(), BoxError> {
        Ok(serde_json::to_writer(output, value)?)
    }

    fn decode(bytes: &[u8]) -> Result<V, BoxError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// MessagePack with the names of fields, named `msgpack`: smaller and faster than JSON, and like it
/// readable without the Rust type.
#[cfg(feature = "msgpack")]
#[derive(Clone, Copy, Debug)]
pub enum MessagePack {}

#[cfg(feature = "msgpack")]
impl<V: Serialize + DeserializeOwned> ValueCodec<V> for MessagePack {
    const NAME: &'static str = "msgpack";

    fn encode(value: &V, output: &mut Vec<u8>) -> Result<(), BoxError> {
        Ok(rmp_serde::encode::write_named(output, value)?)
    }

    fn decode(bytes: &[u8]) -> Result<V, BoxError> {
        let mut rest = bytes;
        let value = rmp_serde::decode::from_read(&mut rest)?;
        if rest.is_empty() { Ok(value) } else { Err("bytes follow the value".into()) }
    }
}

/// Bytes as they are, named `raw`.
#[derive(Clone, Copy, Debug)]
pub enum Raw {}

impl ValueCodec<Vec<u8>> for Raw {
    const NAME: &'static str = "raw";

    fn encode(value: &Vec<u8>, output: &mut Vec<u8>) -> Result<(), BoxError> {
        output.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, BoxError> {
        Ok(bytes.to_vec())
    }
}
