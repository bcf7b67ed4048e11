//! Keys: byte order is tuple order, and each key unpacks to itself.

use crate::common::{in_memory, keys};
use braiddb_typed::{
    Timestamp, TupleKey, TypedTree,
    tuple::{Uuid, pack, unpack},
};
use proptest::prelude::*;
use std::{
    cmp::Ordering,
    fmt::Debug,
    time::{Duration, UNIX_EPOCH},
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, TupleKey)]
struct Place {
    country: String,
    city: Option<String>,
    number: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, TupleKey)]
struct Wrapped(u16, Place);

fn check<K: TupleKey + Debug + PartialEq>(one: &K, other: &K, order: Ordering) {
    let (one_packed, other_packed) = (pack(one), pack(other));
    assert_eq!(one_packed.cmp(&other_packed), order, "{one:?} {other:?}");
    assert!(one_packed.first() != Some(&0xff));
    assert_eq!(&unpack::<K>(&one_packed).unwrap(), one);
    // The text form is the same tuple.
    let json = braiddb_typed::text::to_json(&one_packed).unwrap();
    assert_eq!(braiddb_typed::text::from_json(&json).unwrap(), one_packed, "{json}");
    for len in 0..one_packed.len() {
        let _ = unpack::<K>(&one_packed[..len]);
        let _ = braiddb_typed::text::to_json(&one_packed[..len]);
    }
}

fn ordered<K: TupleKey + Debug + Ord>(one: &K, other: &K) {
    check(one, other, one.cmp(other));
    check(one, one, Ordering::Equal);
}

fn text() -> impl Strategy<Value = String> + Clone {
    prop_oneof!["[\\x00a\u{ff}]{0,3}", ".{0,6}"]
}

fn place() -> impl Strategy<Value = Place> + Clone {
    (text(), prop::option::of(text()), any::<i64>()).prop_map(|(country, city, number)| Place { country, city, number })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers_sort_by_value(a in any::<(i64, u64, i16, u32)>(), b in any::<(i64, u64, i16, u32)>(), shift in 0..63) {
        ordered(&a, &b);
        ordered(&(a.0 >> shift), &(b.0 >> shift));
        ordered(&(a.1 >> shift), &(b.1 >> shift));
        ordered(&a.2, &b.2);
        ordered(&a.3, &b.3);
    }

    #[test]
    fn long_integers_sort_by_value(a in any::<(i128, u128)>(), b in any::<(i128, u128)>(), shift in 0..127) {
        ordered(&(a.0 >> shift), &(b.0 >> shift));
        ordered(&(a.1 >> shift), &(b.1 >> shift));
    }

    #[test]
    fn floats_sort_by_their_total_order(a in any::<(f64, f32)>(), b in any::<(f64, f32)>()) {
        let is_number = |pair: &(f64, f32)| !pair.0.is_nan() && !pair.1.is_nan();
        if is_number(&a) && is_number(&b) {
            check(&a.0, &b.0, a.0.total_cmp(&b.0));
            check(&a.1, &b.1, a.1.total_cmp(&b.1));
        }
        prop_assert_eq!(pack(&a.0).cmp(&pack(&b.0)), a.0.total_cmp(&b.0));
    }

    #[test]
    fn texts_and_bytes_sort_by_their_bytes(a in (text(), any::<Vec<u8>>()), b in (text(), any::<Vec<u8>>())) {
        ordered(&a.0, &b.0);
        ordered(&a.1, &b.1);
        ordered(&a, &b);
    }

    #[test]
    fn other_elements_sort_by_value(a in any::<(bool, u128, i64)>(), b in any::<(bool, u128, i64)>()) {
        ordered(&a.0, &b.0);
        ordered(&Uuid::from_u128(a.1), &Uuid::from_u128(b.1));
        ordered(&Timestamp(a.2), &Timestamp(b.2));
        ordered(&a.0.then_some(a.2), &b.0.then_some(b.2));
    }

    #[test]
    fn nested_tuples_sort_as_tuples(
        a in (prop::option::of((text(), prop::option::of(any::<i32>()))), any::<i16>()),
        b in (prop::option::of((text(), prop::option::of(any::<i32>()))), any::<i16>()),
        lists in prop::array::uniform2(prop::collection::vec(prop::option::of(any::<u16>()), 0..4)),
    ) {
        ordered(&a, &b);
        ordered(&lists[0], &lists[1]);
        ordered(&(lists[0].clone(), 1_u16), &(lists[1].clone(), 1_u16));
    }

    #[test]
    fn derived_keys_sort_as_their_structs(a in (any::<u16>(), place()), b in (any::<u16>(), place())) {
        ordered(&a.1, &b.1);
        ordered(&Wrapped(a.0, a.1), &Wrapped(b.0 % 3, b.1));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_texts_are_unique(bytes in any::<Vec<u8>>()) {
        if let Some(json) = braiddb_typed::text::to_json(&bytes) {
            prop_assert_eq!(braiddb_typed::text::from_json(&json).unwrap(), bytes.clone());
        }
        let _ = (unpack::<(i64, String)>(&bytes), unpack::<Wrapped>(&bytes), unpack::<Vec<Option<u64>>>(&bytes));
        let _ = (unpack::<i128>(&bytes), unpack::<u128>(&bytes), unpack::<Uuid>(&bytes), unpack::<Vec<u8>>(&bytes));
    }
}

#[test]
fn prefix_of_elements_finds_their_tuples_only() {
    let db = in_memory();
    let tree: TypedTree<(String, u32), u8> = TypedTree::open(&db, "t").unwrap();
    let key = |text: &str, number| (text.to_owned(), number);
    for key in [key("a", 1), key("a", 300), key("a\0", 1), key("a\0b", 1), key("ab", 1), key("", 1)] {
        tree.put(&key, &0).unwrap();
    }
    assert_eq!(keys(tree.prefix(&("a",))), [key("a", 1), key("a", 300)]);
    assert_eq!(keys(tree.prefix(&("a",)).rev()), [key("a", 300), key("a", 1)]);
    assert_eq!(keys(tree.prefix(&("a\0",))), [key("a\0", 1)]);
    assert_eq!(keys(tree.prefix(&("a", 300))), [key("a", 300)]);
    assert_eq!(keys(tree.prefix(&())).len(), 6);
    assert_eq!(keys(tree.range(key("a", 2)..key("ab", 0))), [key("a", 300), key("a\0", 1), key("a\0b", 1)]);
    assert_eq!(keys(tree.range(..=key("a", 1))), [key("", 1), key("a", 1)]);
}

#[test]
fn timestamps_are_microseconds_since_1970() {
    let before = UNIX_EPOCH - Duration::from_nanos(1);
    assert_eq!(Timestamp::from(before), Timestamp(-1));
    assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_nanos(1_999)), Timestamp(1));
    for us in [-1_000_000_000_001, -1, 0, 1, 1_795_402_000_000_000] {
        assert_eq!(Timestamp::from(Timestamp(us).to_system_time().unwrap()), Timestamp(us));
    }
    assert_eq!(pack(&Timestamp(1)), pack(&1_u32));
    assert_eq!(serde_json::to_string(&Timestamp(-5)).unwrap(), "-5");
}
