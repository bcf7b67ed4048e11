//! The demonstration, with few discs.

use crate::common;

use common::Workplace;

#[test]
fn demo_loses_no_acknowledged_record() {
    let place = Workplace::new();
    let screen = place.ok("demo --discs 6000 --dir here --memory 32M");
    let last = screen.lines().last().unwrap();
    let stored = place.ok("scan here/music.braid albums --format hex").lines().count();
    let digits: String = last.chars().skip_while(|c| *c != 'f').filter(char::is_ascii_digit).collect();
    assert_eq!((last.starts_with("0 lost of "), digits.parse().ok()), (true, Some(stored)), "{screen}");
    // The demo counted refused records as acknowledged: its two numbers disagreed.
    let acknowledged = screen.split_once("acknowledged: ").and_then(|(_, rest)| rest.split_once(" records stored, "));
    let (at_kill, rest) = acknowledged.unwrap_or_else(|| panic!("{screen}"));
    assert!(screen.contains("Killed the importer") && rest.contains(" dirty ones refused\n"), "{screen}");
    assert!(screen.contains(&format!("  0 lost of these {at_kill};")), "{screen}");
    for part in
        ["by disc id", "by artist prefix", "by title prefix", "p99", "given", "written", "on disk", "Partitions"]
    {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert_eq!(cfg!(debug_assertions), screen.contains("debug build"));
    assert!(place.path("here/freedb.tar.bz2").exists());
    place.fails(2, "demo --discs 10 --dir here");
}

#[test]
fn demo_of_one_disc_succeeds() {
    let place = Workplace::new();
    let screen = place.ok("demo --discs 1 --dir here --memory 32M");
    assert!(screen.ends_with("0 lost of 1 acknowledged\n"), "{screen}");
}
