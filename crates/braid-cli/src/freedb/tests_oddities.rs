//! Discs of other programs: ids that do not match, years in extended data, the end of a server's
//! answer.

use super::{Disc, parse};
use crate::dirt::{Dirt, Finding};

fn disc(text: &str) -> (Disc, Vec<Dirt>) {
    let mut findings: Vec<Finding> = Vec::new();
    let disc = parse("rock/1b02b803", text.as_bytes(), 7, &mut findings).expect("a disc");
    (disc, findings.into_iter().map(|finding| finding.dirt).collect())
}

/// Three tracks at 2, 200 and 400 seconds of 698: digit sum 2 + 2 + 4 = 8, 696 seconds (2b8) of
/// music.
const OFFSETS: &str = "# xmcd\n# Track frame offsets:\n# 150\n# 15000\n# 30000\n#\n# Disc length: 698 seconds\n#\n";

/// An id that did not match the offsets was stored without a report.
#[test]
fn disc_id_that_does_not_match_offsets_is_reported_and_kept() {
    let fields = "DTITLE=a / b\nTTITLE0=\nTTITLE1=\nTTITLE2=\n";
    let (disc_read, dirt) = disc(&format!("{OFFSETS}DISCID=1b02b803\n{fields}"));
    assert_eq!((disc_read.disc_ids, dirt), (vec!["1b02b803".to_owned()], vec![Dirt::WrongDiscId]));
    for id in ["0802b803", "0802b703", "0802b903"] {
        let (_, dirt) = disc(&format!("{OFFSETS}DISCID={id},1b02b803\n{fields}"));
        assert_eq!(dirt, [], "{id}");
    }
    let (_, dirt) = disc(&format!("{OFFSETS}DISCID=0802ba03,1b02b803\n{fields}"));
    assert_eq!(dirt, [Dirt::WrongDiscId]);
    let (_, dirt) = disc(&format!("DISCID=1b02b803\n{fields}"));
    assert_eq!(dirt, [], "nothing can be said without offsets");
}

#[test]
fn year_in_extended_data_replaces_missing_dyear() {
    for (fields, year) in [
        ("EXTD= YEAR: 1987 ID3G: 17\n", Some(1987)),
        ("EXTD=Live. YEAR:1987\n", Some(1987)),
        ("DYEAR=1999\nEXTD=YEAR: 1987\n", Some(1999)),
        ("EXTD=YEAR: 87\n", None),
        ("EXTD=YEAR: 198765\n", None),
        ("EXTD=LEAPYEAR: 1988\n", None),
        ("EXTD=a good year\n", None),
    ] {
        let (disc, _) = disc(&format!("DISCID=1b02b803\nDTITLE=a / b\n{fields}"));
        assert_eq!(disc.year, year, "{fields:?}");
        assert!(disc.extended.is_empty() || fields.contains(&disc.extended), "the text stays as it is");
    }
}

/// The full stop that ends a server's answer counted as junk.
#[test]
fn full_stop_at_end_is_not_reported() {
    for end in [".", ".\n", ".\r\n", "\n.\n\n"] {
        let (disc, dirt) = disc(&format!("DISCID=1b02b803\nDTITLE=a / b\nEXTT0=\n{end}"));
        assert_eq!((disc.title.as_str(), dirt.contains(&Dirt::JunkLine)), ("b", false), "{end:?}");
    }
    let (disc, dirt) = disc("DISCID=1b02b803\nDTITLE=a / b.\n.\nTTITLE0=x.");
    assert_eq!((disc.title.as_str(), disc.tracks[0].as_str(), dirt), ("b.", "x.", vec![Dirt::JunkLine]));
}

/// libcddb returns ("A / B", "C"), and cddb-tool ("A", "B").
#[test]
fn title_with_two_separators_splits_at_first() {
    let (disc, _) = disc("DISCID=1b02b803\nDTITLE=A / B / C\n");
    assert_eq!((disc.artist.as_str(), disc.title.as_str()), ("A", "B / C"));
}
