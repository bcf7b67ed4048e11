use super::{
    Disc,
    generator::{DumpOptions, disc_file, write_dump},
    parse,
};
use crate::dirt::{Dirt, Finding};

const PATH: &str = "rock/a50e0a0d";

fn parsed(path: &str, text: &[u8]) -> (Option<Disc>, Vec<Dirt>) {
    let mut findings: Vec<Finding> = Vec::new();
    let disc = parse(path, text, 7, &mut findings);
    (disc, findings.into_iter().map(|finding| finding.dirt).collect())
}

fn disc(text: &[u8]) -> (Disc, Vec<Dirt>) {
    let (disc, dirt) = parsed(PATH, text);
    (disc.expect("a disc"), dirt)
}

#[test]
fn clean_disc_parses_completely() {
    let text =
        b"# xmcd\n#\n# Track frame offsets:\n#\t150\n#\t18000\n#\n# Disc length: 3600 seconds\n#\n# Revision: 3\n\
        # Submitted via: xmcd 2.0\n#\nDISCID=A50E0A0D,a50e0a0e,080e0e02\nDTITLE=Kraftwerk / Computerwelt\nDYEAR=1981\n\
        DGENRE=Electronic\nTTITLE0=Computerwelt\nTTITLE1=Nummern\nEXTD=one\\ntwo\\tthree\\\\n\nEXTT0=\nEXTT1=x\n\
        PLAYORDER=2,1\n";
    let (disc, dirt) = disc(text);
    assert_eq!(dirt, []);
    let expected = Disc {
        number: 7,
        category: "rock".into(),
        disc_ids: vec!["a50e0a0d".into(), "a50e0a0e".into(), "080e0e02".into()],
        artist: "Kraftwerk".into(),
        title: "Computerwelt".into(),
        year: Some(1981),
        genre: "Electronic".into(),
        tracks: vec!["Computerwelt".into(), "Nummern".into()],
        extended: "one\ntwo\tthree\\n".into(),
        track_extended: vec!["".into(), "x".into()],
        play_order: vec![2, 1],
        length_seconds: Some(3600),
        offsets: vec![150, 18000],
        revision: Some(3),
        submitted_via: "xmcd 2.0".into(),
    };
    assert_eq!(disc, expected);
}

#[test]
fn split_lines_are_joined_before_decoding() {
    let mut text = b"DISCID=a50e0a0d\nDTITLE=A / caf\xc3\nDTITLE=\xa9 in the \\\nDTITLE=n night\n".to_vec();
    text.extend_from_slice(b"TTITLE0=x\n");
    let (disc, dirt) = disc(&text);
    assert_eq!((disc.title.as_str(), dirt), ("café in the \n night", vec![]));
}

#[test]
fn ids_in_two_lines_are_joined_without_comma() {
    let (disc, dirt) = disc(b"DISCID=11111111,22222222\nDISCID=a50e0a0d\nDTITLE=a / b\n");
    assert_eq!((disc.disc_ids, dirt), (vec!["11111111".into(), "22222222".into(), "a50e0a0d".into()], vec![]));
}

#[test]
fn title_without_slash_is_artist_and_title() {
    let (disc, dirt) = disc(b"DISCID=a50e0a0d\nDTITLE=Metallica\n");
    assert_eq!((disc.artist.as_str(), disc.title.as_str(), dirt), ("Metallica", "Metallica", vec![]));
    let (disc, _) = super::tests::disc(b"DISCID=a50e0a0d\nDTITLE=AC/DC / Back / Black\n");
    assert_eq!((disc.artist.as_str(), disc.title.as_str()), ("AC/DC", "Back / Black"));
}

#[test]
fn carriage_returns_end_lines() {
    let (disc, dirt) = disc(b"DISCID=a50e0a0d\r\nDTITLE=a / b\r\nTTITLE0=x\r\n");
    assert_eq!((disc.tracks, dirt), (vec!["x".into()], vec![Dirt::CarriageReturns]));
    let (disc, dirt) = super::tests::disc(b"DISCID=a50e0a0d\rDTITLE=a / b\rTTITLE0=x\r");
    assert_eq!((disc.tracks, dirt), (vec!["x".into()], vec![Dirt::CarriageReturns]));
}

#[test]
fn encoding_of_disc_is_detected() {
    let (disc, dirt) = disc(b"DISCID=a50e0a0d\nDTITLE=Bj\xf6rk / It\x92s\n");
    assert_eq!((disc.artist.as_str(), disc.title.as_str(), dirt), ("Björk", "It’s", vec![Dirt::Latin1]));
    let (disc, dirt) = super::tests::disc("DISCID=a50e0a0d\nDTITLE=Кино / Группа\n".as_bytes());
    assert_eq!((disc.artist.as_str(), dirt), ("Кино", vec![]));
    let (disc, dirt) = super::tests::disc(b"DISCID=a50e0a0d\nDTITLE=\xd0\x9a\xd0\xb8\xd0 / \xd0\x9a\n");
    assert_eq!((disc.artist.as_str(), dirt), ("Ки\u{fffd}", vec![Dirt::BrokenUtf8]));
}

#[test]
fn repeated_field_is_joined_or_dropped() {
    let (disc, dirt) = disc(b"DISCID=a50e0a0d\nDTITLE=a / b\nTTITLE0=x\nDTITLE=a / b\nTTITLE0=y\n");
    assert_eq!((disc.artist.as_str(), disc.title.as_str()), ("a", "b"));
    assert_eq!((disc.tracks, dirt), (vec!["xy".into()], vec![Dirt::RepeatedField, Dirt::RepeatedField]));
}

#[test]
fn missing_field_is_derived_or_empty() {
    let (disc, dirt) = disc(b"# Track frame offsets:\n# 150\n# 300\nDTITLE=a / b\nTTITLE1=y\n");
    assert_eq!(disc.disc_ids, ["a50e0a0d"]);
    assert_eq!(disc.tracks, ["", "y"]);
    assert_eq!(dirt, [Dirt::MissingField, Dirt::MissingField]);
}

#[test]
fn mismatching_id_is_kept_with_id_of_file_name() {
    let (disc, dirt) = disc(b"DISCID=11111111\nDTITLE=a / b\n");
    assert_eq!((disc.disc_ids, dirt), (vec!["11111111".into(), "a50e0a0d".into()], vec![Dirt::IdMismatch]));
}

#[test]
fn empty_title_is_reported() {
    for (line, artist, title) in [("", "", ""), (" / ", "", ""), ("a / ", "a", ""), ("a /", "a", ""), (" / b", "", "b")]
    {
        let (disc, dirt) = disc(format!("DISCID=a50e0a0d\nDTITLE={line}\n").as_bytes());
        assert_eq!((disc.artist.as_str(), disc.title.as_str()), (artist, title), "{line:?}");
        assert_eq!(dirt, [Dirt::EmptyTitle], "{line:?}");
    }
}

#[test]
fn malformed_field_is_left_out() {
    let text = b"DISCID=a50e0a0d,zz\nDTITLE=a / b\nDYEAR=19?9\nTTITLE100=x\nTTITLE=y\nPLAYORDER=1,b\nEXTT3=t\n";
    let (disc, dirt) = disc(text);
    assert_eq!((disc.year, disc.tracks.len(), disc.disc_ids.len()), (None, 0, 1));
    assert_eq!(dirt, [Dirt::BadField; 6]);
}

#[test]
fn junk_line_and_huge_text_are_reported() {
    let mut text = b"DISCID=a50e0a0d\nDTITLE=a / b\nand so on\nUNKNOWN=3\nEXTD=".to_vec();
    text.resize(text.len() + 20_000, b'x');
    let (disc, dirt) = disc(&text);
    assert_eq!((disc.extended.len(), dirt), (20_000, vec![Dirt::JunkLine, Dirt::JunkLine, Dirt::HugeText]));
}

#[test]
fn file_that_is_not_a_disc_is_unusable() {
    assert_eq!(parsed("rock/README", b"DISCID=a50e0a0d\nDTITLE=a / b\n"), (None, vec![Dirt::NotADisc]));
    assert_eq!(parsed(PATH, b""), (None, vec![Dirt::NotADisc]));
    assert_eq!(parsed(PATH, b"# xmcd\n"), (None, vec![Dirt::NotADisc]));
    assert_eq!(parsed(PATH, b"DISCID=a50e0a0d\nTTITLE0=x\n"), (None, vec![Dirt::MissingTitle]));
}

#[test]
fn parse_of_random_bytes_does_not_panic() {
    let mut random = crate::random::Random::of(5, 5);
    let pieces: [&[u8]; 12] =
        [b"DTITLE", b"=", b"\n", b"TTITLE", b"9", b"DISCID=", b"#", b"\\", b"\xff\xc3", b" / ", b"\0", b"EXTT7="];
    for _ in 0..20_000 {
        let mut text = Vec::new();
        for _ in 0..random.below(40) {
            text.extend_from_slice(random.pick(&pieces));
        }
        parsed(PATH, &text);
    }
}

#[test]
fn generated_disc_parses_to_its_truth() {
    let (mut stored, mut kinds) = (0, std::collections::BTreeSet::new());
    for number in 0..20_000 {
        let file = disc_file(1, number, 20_000);
        let (disc, dirt) = parsed(&file.path, &file.bytes);
        kinds.extend(dirt);
        assert_eq!(disc.is_some(), file.truth.is_some(), "{number}: {}", file.path);
        let (Some(disc), Some(truth)) = (disc, file.truth) else { continue };
        stored += 1;
        assert_eq!((&disc.artist, &disc.title, &disc.disc_ids), (&truth.artist, &truth.title, &truth.disc_ids));
        assert!(!disc.tracks.is_empty());
    }
    assert!(stored > 19_900, "{stored}");
    // The generator's ids match, and it makes no links.
    let is_made = |dirt: &Dirt| *dirt <= Dirt::MissingTitle && !matches!(dirt, Dirt::WrongDiscId | Dirt::LostLink);
    let freedb_kinds: Vec<Dirt> = Dirt::ALL.iter().copied().filter(is_made).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), freedb_kinds);
}

#[test]
fn generated_artists_are_skewed() {
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for number in 0..20_000 {
        if let Some(truth) = disc_file(1, number, 20_000).truth {
            *counts.entry(truth.artist).or_default() += 1;
        }
    }
    let once = counts.values().filter(|&&count| count == 1).count();
    let most = counts.values().max().copied().unwrap_or(0);
    assert!(once > counts.len() / 3 && most > 300, "{once} of {} once, {most} at most", counts.len());
}

#[test]
fn dump_with_one_or_three_threads_is_identical() {
    let dump = |threads| {
        let mut bytes = Vec::new();
        write_dump(&DumpOptions { seed: 3, discs: 3200, threads }, &mut bytes, &mut |_| {}).unwrap();
        bytes
    };
    let one = dump(1);
    assert!(one == dump(3), "dumps differ");
    let mut archive = tar::Archive::new(bzip2::read::MultiBzDecoder::new(one.as_slice()));
    let files = archive.entries().unwrap().filter(|entry| entry.as_ref().unwrap().header().entry_type().is_file());
    assert_eq!(files.count(), 3200);
}
