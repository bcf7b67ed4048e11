//! Reports of damage name keys as other commands write them.

use crate::common;

use common::Workplace;
use std::fs;

fn damaged() -> Workplace {
    let place = Workplace::with_database();
    let lines: String =
        (0..20_000_u64).map(|n| format!("{{\"id\":{n},\"x\":\"{:020}\"}}\n", n.wrapping_mul(7919 * 7919))).collect();
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree n --key id:u64");
    let runs = fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path());
    let runs = runs.filter(|path| path.extension().is_some_and(|ending| ending == "run"));
    let run = runs.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&run).unwrap();
    bytes[40_000] ^= 0x10;
    fs::write(&run, bytes).unwrap();
    place
}

/// The number behind these words, such as 330 behind "keys after".
fn number_after(text: &str, words: &str) -> u64 {
    let rest = text.split_once(words).unwrap_or_else(|| panic!("{words} in {text}")).1;
    let digits = rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>();
    digits.parse().unwrap_or_else(|_| panic!("a number behind {words} in {text}"))
}

/// `dump`, `verify` and `salvage` showed number keys as escaped bytes, which `get` does not accept.
/// `dump` also showed a key that no record has.
#[test]
fn damage_in_tree_of_number_keys_is_reported_with_numbers() {
    let place = damaged();
    let known = |number: u64| {
        place.ok(&format!("get db n {number}"));
        number
    };
    let verified = place.run("verify db");
    assert_eq!(verified.code, 1, "{verified:?}");
    let (from, to) = (number_after(&verified.stdout, "affects keys from"), number_after(&verified.stdout, " to "));
    assert!(verified.stdout.contains("of the tree n") && from < to && to < 20_000, "{verified:?}");

    let dumped = place.fails(3, "dump db out.dump");
    let (after, up_to) = (known(number_after(&dumped, "n: keys after")), number_after(&dumped, "up to"));
    assert!(dumped.contains("--skip-damaged") && !place.path("out.dump").exists(), "{dumped}");
    assert!(after <= from && up_to >= to && up_to < after + 2000, "{dumped} and {verified:?}");
    let skipped = place.fails(1, "dump db out.dump --skip-damaged");
    assert!(skipped.contains("not in the dump: n: keys after"), "{skipped}");
    assert_eq!((number_after(&skipped, "keys after"), number_after(&skipped, "up to")), (after, up_to));

    let salvaged = place.run("salvage db new");
    assert_eq!(salvaged.code, 1, "{salvaged:?}");
    assert_eq!(number_after(&salvaged.stdout, "keys from n:"), from, "{salvaged:?}");
    for said in [verified.stdout, dumped, skipped, salvaged.stdout] {
        assert!(!said.contains("\\x"), "{said}");
    }
}

/// Errors about damage advised users to restore one file. No command can do that.
#[test]
fn error_about_damage_names_the_commands_that_help() {
    let place = damaged();
    let said = place.fails(3, "scan db n");
    assert!(said.contains("`braid verify`") && said.contains("`braid salvage`"), "{said}");
    assert!(said.contains("restore the database from a backup"), "{said}");
}
