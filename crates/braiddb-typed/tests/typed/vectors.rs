//! The test vectors that `scripts/check-tuple-vectors.sh` compares with other languages' libraries.
//!
//! `vectors.json`: the texts of keys and their bytes. `null` for a language in `skip` says why its
//! library cannot pack the key.

use braiddb_typed::{
    text::{from_json, hex, to_json, unhex},
    tuple::{Uuid, Versionstamp, pack},
};
use serde_json::Value;
use std::collections::BTreeSet;

fn vectors() -> Vec<(Value, Vec<u8>)> {
    let file: Value = serde_json::from_str(include_str!("../vectors.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    vectors.iter().map(|vector| (vector["key"].clone(), unhex(vector["bytes"].as_str().unwrap()).unwrap())).collect()
}

#[test]
fn vectors_are_packed_to_their_bytes_in_ascending_order() {
    let vectors = vectors();
    assert!(vectors.len() > 60);
    for (key, bytes) in &vectors {
        assert_eq!(hex(&from_json(key).unwrap()), hex(bytes), "{key}");
        assert_eq!(&to_json(bytes).unwrap(), key);
    }
    assert!(vectors.is_sorted_by(|one, other| one.1 < other.1), "the vectors are sorted by their bytes");
}

/// The typed keys have the bytes of the vectors too.
#[test]
fn vectors_are_those_of_the_key_types() {
    let known: BTreeSet<Vec<u8>> = vectors().into_iter().map(|(_, bytes)| bytes).collect();
    let none = None::<u32>;
    let uuid: Uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6".parse().unwrap();
    let stamp = Versionstamp::complete([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 0x0a0b);
    for bytes in [
        pack(&()),
        pack(&(none,)),
        pack(&((none,),)),
        pack(&(1_u16, "a", b"\0\xff".to_vec())),
        pack(&(0_i32, -1_i64, 255_u32, -256_i16)),
        pack(&(u64::MAX, i64::MIN)),
        pack(&(u128::MAX,)),
        pack(&(i128::from(i64::MIN) - 1,)),
        pack(&(-i128::from(u64::MAX) - 1,)),
        pack(&(i128::MIN + 1,)),
        pack(&(1.5_f64, -0.0_f64)),
        pack(&(f64::INFINITY,)),
        pack(&(f64::NEG_INFINITY,)),
        pack(&(-42.0_f32,)),
        pack(&(false, true)),
        pack(&(uuid,)),
        pack(&(stamp,)),
        pack(&("a", ("b", none, ()), vec![1_u32, 2])),
    ] {
        assert!(known.contains(&bytes), "{} {}", hex(&bytes), to_json(&bytes).unwrap());
    }
}
