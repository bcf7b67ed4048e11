//! Numbers in indexes: exact, and found in any notation.

use crate::common;

use common::Workplace;

/// `find --eq 1.50` missed 1.50, which was indexed as 1.5.
#[test]
fn find_number_in_other_notation_succeeds() {
    let place = Workplace::with_database();
    place.write(
        "in.jsonl",
        "{\"id\":\"a\",\"price\":1.50}\n{\"id\":\"b\",\"price\":\"1.5\"}\n{\"id\":\"c\",\"price\":\"1.50\"}\n{\"id\":\"d\",\"price\":100.0}\n",
    );
    place.ok("import db in.jsonl --tree t --key id --index by_price=price");
    let keys = |text: &str| -> String {
        let found = place.run(&format!("find db t --by by_price --eq {text}"));
        found.stdout.lines().map(|line| &line[..1]).collect()
    };
    assert_eq!(keys("1.50"), "ca", "the text, then the number");
    assert_eq!(keys("15e-1"), "a");
    assert_eq!(keys("1.5"), "ab");
    assert_eq!((keys("100"), keys("1e2"), keys("100.0")), ("d".into(), "d".into(), "d".into()));
    assert_eq!(keys("1.51"), "");
}

/// Numbers above 2^53 with a fraction, and integers above 64 bits, were rounded in the index.
#[test]
fn find_large_number_is_exact() {
    let place = Workplace::with_database();
    let numbers = [
        "9007199254740993.0",
        "9007199254740992",
        "18446744073709551616",
        "18446744073709551617",
        "-9223372036854775809",
    ];
    let lines: String =
        (0..).zip(numbers).map(|(id, number)| format!("{{\"id\":\"{id}\",\"n\":{number}}}\n")).collect();
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree t --key id --index by_n=n");
    for (id, number) in (0..).zip(numbers) {
        let number = number.trim_end_matches(".0");
        let found = place.ok(&format!("find db t --by by_n --eq {number}"));
        assert_eq!(found.lines().count(), 1, "{number}: {found}");
        assert!(found.starts_with(&format!("{id}\t")), "{number}: {found}");
    }
}

/// 1e400, a valid JSON number, was refused as "not JSON".
#[test]
fn import_of_number_beyond_64_bits_keeps_it() {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"a\",\"x\":1e400}\n");
    place.ok("import db in.jsonl --tree t --key id --index by_x=x");
    assert_eq!(place.ok("get db t a"), "{\"id\":\"a\",\"x\":1e400}\n");
    assert_eq!(place.ok("find db t --by by_x --eq 10e399").lines().count(), 1);
}
