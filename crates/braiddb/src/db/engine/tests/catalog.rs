//! Catalog entries of trees: their bytes, as docs/internals/format.md documents them.

use crate::{
    base::TreeId,
    codec::{Compression, put_bytes},
    db::{
        TreeCodec, TreeOptions,
        engine::{
            catalog::{DroppedTree, LaterFields, TreeState},
            tree_options::LiveOptions,
        },
    },
};
use parking_lot::RwLock;
use std::{sync::atomic::AtomicBool, time::Duration};

fn tree(options: TreeOptions) -> TreeState {
    TreeState {
        id: TreeId(7),
        home: 0,
        name: RwLock::new("users".to_owned()),
        multi: false,
        options: LiveOptions::new(options),
        later: LaterFields::default(),
        dropped: AtomicBool::new(false),
    }
}

fn codec() -> Option<TreeCodec> {
    TreeCodec::new("tuple", "json").ok()
}

#[test]
fn catalog_entry_of_each_form_has_its_golden_bytes() {
    let plain = TreeOptions::default();
    let ttl = TreeOptions { ttl: Some(Duration::from_micros(300)), ..plain };
    let all = TreeOptions { compression: Some(Compression::None), blob_threshold: Some(100), codec: codec(), ..ttl };
    for (options, bytes) in [
        (plain, &b"\x01\x07\0\0\0\0\xff\0"[..]),
        (ttl, b"\x01\x07\0\0\0\0\xff\0\xac\x02"),
        (TreeOptions { codec: codec(), ..plain }, b"\x01\x07\0\0\0\0\xff\0\0\x05tuple\x04json"),
        (all, b"\x01\x07\0\0\0\0\0\x64\xac\x02\x05tuple\x04json"),
    ] {
        assert_eq!(tree(options).encode(), bytes, "{options:?}");
        let decoded = TreeState::decode(b"users", bytes).unwrap();
        assert_eq!((decoded.options.get(), decoded.id), (options, TreeId(7)));
        let (id, dropped) = DroppedTree::decode(&DroppedTree::encode(&tree(options)), 3).unwrap();
        assert_eq!((id, dropped.name.as_str()), (TreeId(7), "users"));
    }
}

/// A later version may store more fields in an entry. A rename or new options must keep them.
#[test]
fn catalog_entry_of_a_later_version_is_read_and_kept() {
    let ttl = Some(Duration::from_micros(300));
    for (codec, later) in [(codec(), &b""[..]), (codec(), b"later"), (None, b"later")] {
        let bytes = [&tree(TreeOptions { codec, ttl, ..TreeOptions::default() }).encode()[..]].concat();
        let no_names = if codec.is_none() && !later.is_empty() { &b"\0\0"[..] } else { b"" };
        let bytes = [&bytes, no_names, later].concat();
        let decoded = TreeState::decode(b"users", &bytes).unwrap();
        assert_eq!((decoded.options.get().codec, decoded.options.get().ttl), (codec, ttl));
        assert_eq!(decoded.encode(), bytes);
        let without_ttl =
            TreeState::decode(b"users", &decoded.encode_with(TreeOptions { ttl: None, ..decoded.options.get() }));
        assert_eq!(without_ttl.unwrap().options.get(), TreeOptions { codec, ..TreeOptions::default() });
    }
}

/// The story: an entry whose codec name this version would not give made the database unreadable.
#[test]
fn catalog_entry_of_an_unknown_codec_is_read_and_kept() {
    let (long, shown) = ("n".repeat(40), format!("tuple/{}", "n".repeat(31)));
    for (key, value, text) in [
        (&b"tuple"[..], &b"CBOR+zstd"[..], "tuple/CBOR+zstd"),
        (b"tuple", long.as_bytes(), shown.as_str()),
        (b"\xff\x1b[0m", b"json", "\u{fffd}\u{fffd}[0m/json"),
        (b"", b"json", "/json"),
    ] {
        let mut bytes = b"\x01\x07\0\0\0\0\xff\0\0".to_vec();
        for name in [key, value] {
            put_bytes(&mut bytes, name);
        }
        bytes.extend_from_slice(b"later");
        let decoded = TreeState::decode(b"users", &bytes).unwrap();
        let options = decoded.options.get();
        assert_eq!(options.codec.unwrap().to_string(), text);
        assert_eq!(decoded.encode(), bytes);
        let ttl = Some(Duration::from_micros(300));
        let changed = TreeState::decode(b"users", &decoded.encode_with(TreeOptions { ttl, ..options })).unwrap();
        assert_eq!(changed.options.get(), TreeOptions { ttl, ..options });
        assert!(changed.encode().ends_with(&bytes[9..]));
    }
}

#[test]
fn catalog_entry_flipped_or_truncated_never_panics() {
    let bytes = tree(TreeOptions { codec: codec(), ..TreeOptions::default() }).encode();
    for len in 0..bytes.len() {
        // A field is present whole, or the entry is refused.
        let decoded = TreeState::decode(b"users", &bytes[..len]);
        assert!(decoded.is_none_or(|tree| (8..=9).contains(&len) && tree.options.get().codec.is_none()), "{len}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Some(tree) = TreeState::decode(b"users", &flipped) {
            assert_eq!(TreeState::decode(b"users", &tree.encode()).unwrap().options.get(), tree.options.get());
        }
    }
}

#[test]
fn tree_codec_of_invalid_names_is_refused() {
    for text in ["", "json", "/json", "tuple/", "tuple/JSON", "tuple/json/x", "tu ple/json", &"a/".repeat(40)] {
        let error = text.parse::<TreeCodec>().unwrap_err().to_string();
        assert!(error.contains("codec"), "{error}");
    }
    let long = "a".repeat(31);
    let codec: TreeCodec = format!("{long}/x-1_.").parse().unwrap();
    assert_eq!((codec.key(), codec.value()), (long.as_str(), "x-1_."));
    assert!(TreeCodec::new(&"a".repeat(32), "x").is_err());
}
