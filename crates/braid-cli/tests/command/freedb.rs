//! Discs outside an archive of plain files: links, files with several discs, folders, single files.

use crate::common;

use common::Workplace;

fn disc(id: &str, title: &str) -> String {
    format!("# xmcd\nDISCID={id}\nDTITLE=Somebody / {title}\nTTITLE0=One\n")
}

fn archive(members: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, kind, content) in members {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        if kind.is_file() {
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, path, content.as_bytes()).unwrap();
        } else {
            header.set_size(0);
            builder.append_link(&mut header, path, content).unwrap();
        }
    }
    builder.into_inner().unwrap()
}

fn titles(place: &Workplace, id: &str) -> Vec<String> {
    let found = place.run(&format!("find db albums --by by_disc_id --eq {id}")).stdout;
    let titles = found.lines().map(|line| line.split("\"title\":\"").nth(1).unwrap_or(line));
    titles.map(|rest| rest.split('"').next().unwrap_or_default().to_owned()).collect()
}

/// A link to a copy, which adds its disc id, was skipped.
#[test]
fn link_in_archive_adds_disc_id_like_copy() {
    use tar::EntryType::{Link, Regular, Symlink};
    let place = Workplace::new();
    place.ok("create db");
    let one = disc("11111111", "First");
    let members = [
        ("rock/11111111", Regular, one.as_str()),
        ("rock/22222222", Link, "rock/11111111"),
        ("jazz/33333333", Symlink, "../rock/11111111"),
        ("jazz/44444444", Link, "rock/99999999"),
    ];
    place.write("in.tar", archive(&members));
    let report = place.ok("import db in.tar");
    for id in ["22222222", "33333333"] {
        assert_eq!(titles(&place, id), ["First"], "{id}: {report}");
    }
    assert!(report.contains("lost-link"), "{report}");
}

/// Windows archives have files with many discs; each file was one unusable record.
#[test]
fn file_with_several_discs_imports_each_and_resumes_inside() {
    use tar::EntryType::Regular;
    let place = Workplace::new();
    place.ok("create db");
    let file: String = [("11111111", "First"), ("22222222", "Second"), ("33333333", "Third")]
        .map(|(id, title)| format!("#FILENAME={id}\r\n{}", disc(id, title).replace('\n', "\r\n")))
        .concat();
    let broken = disc("44444444", "Fourth").replace("DTITLE", "TITLE");
    let last = disc("55555555", "Fifth");
    let file = format!("{file}#FILENAME=44444444\n{broken}#FILENAME=55555555\n{last}");
    place.write(
        "in.tar",
        archive(&[("rock/11to55", Regular, &file), ("jazz/66666666", Regular, &disc("66666666", "Sixth"))]),
    );
    // The fourth disc ends the first run in the middle of the file.
    let stopped = place.run("import db in.tar --on-error stop");
    assert_ne!(stopped.code, 0, "{stopped:?}");
    assert_eq!(titles(&place, "33333333"), ["Third"]);
    place.ok("import db in.tar --resume");
    for (id, title) in [("11111111", "First"), ("33333333", "Third"), ("55555555", "Fifth"), ("66666666", "Sixth")] {
        assert_eq!(titles(&place, id), [title], "{id}");
    }
    assert_eq!(place.ok("scan db albums").lines().count(), 5);
}

/// A folder was "not a file", and a single disc "damaged".
#[test]
fn folder_and_single_file_import_like_archive() {
    let place = Workplace::new();
    for folder in ["cds", "cds/rock", "cds/jazz"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("cds/rock/11111111", disc("11111111", "First"));
    place.write("cds/rock/README", "nothing");
    place.write("cds/jazz/22222222", disc("22222222", "Second"));
    place.ok("create db");
    let report = place.ok("import db cds");
    assert!(report.contains("not-a-disc"), "{report}");
    assert_eq!(titles(&place, "11111111"), ["First"]);
    assert_eq!(titles(&place, "22222222"), ["Second"]);
    place.ok("create db2");
    place.ok("import db2 cds/rock/11111111 --format freedb --create");
    let found = place.ok("find db2 albums --by by_disc_id --eq 11111111");
    assert!(found.contains("\"category\":\"rock\""), "{found}");
}

#[test]
fn discs_for_second_tree_are_refused_with_the_option_that_names_indexes() {
    let place = Workplace::with_database();
    place.write("discs.tar", common::fixture_archive());
    place.ok("import db discs.tar --format freedb");
    let said = place.fails(2, "import db discs.tar --format freedb --tree two");
    assert!(said.contains("--index two_by_disc_id=disc_ids"), "{said}");
    place.ok(
        "import db discs.tar --format freedb --tree two --index two_by_disc_id=disc_ids --index two_by_artist=artist:lower",
    );
}

/// The message "cannot read fol: No such file or directory" named an existing folder.
#[cfg(unix)]
#[test]
fn folder_with_dangling_link_is_refused_with_the_name_of_the_link() {
    let place = Workplace::with_database();
    std::fs::create_dir(place.path("fol")).unwrap();
    std::os::unix::fs::symlink("/nonexistent", place.path("fol/gone")).unwrap();
    let said = place.fails(4, "import db fol");
    assert!(said.contains("fol/gone"), "{said}");
}
