//! `braid verify` lists all damage in one pass, also of databases that do not open.

use std::{fs, path::PathBuf};

use crate::common::Workplace;

fn workplace() -> Workplace {
    let place = Workplace::with_database();
    let line =
        |number: u32| format!("{{\"id\":\"{number}\",\"text\":\"{:x}\"}}\n", u64::from(number) * 0x9e37_79b9_7f4a);
    place.write("in.jsonl", (0..5000).map(line).collect::<String>());
    place.ok("import db in.jsonl --tree albums --key id");
    place.ok("compact db");
    place
}

fn file_of(place: &Workplace, ending: &str) -> PathBuf {
    let files = fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.to_string_lossy().ends_with(ending)).max().expect("a file of this kind")
}

fn flip(path: &PathBuf, places: &[usize]) {
    let mut bytes = fs::read(path).unwrap();
    places.iter().for_each(|&at| bytes[at] ^= 1);
    fs::write(path, bytes).unwrap();
}

/// The first damaged block ended the pass.
#[test]
fn verify_of_damaged_blocks_lists_each_once_and_exits_1() {
    let place = workplace();
    let run = file_of(&place, ".run");
    flip(&run, &[10_000, 30_000, 60_000]);
    let outcome = place.run("verify db");
    let problems: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with("problem: ")).collect();
    assert_eq!((outcome.code, problems.len()), (1, 3), "{outcome:?}");
    assert!(
        problems[1].contains("affects keys from ") && problems[1].ends_with(" of the tree albums"),
        "{}",
        problems[1]
    );
    assert!(outcome.stdout.ends_with("3 problems\n") && !outcome.stdout.contains("braid verify"), "{outcome:?}");
    let outcome = place.run("verify db --json --threads 1");
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((outcome.code, &json["sound"], &json["opens"]), (1, &false.into(), &true.into()));
    let problem = &json["problems"][2];
    assert_eq!((&problem["kind"], &problem["file"]), (&"damaged".into(), &"run".into()));
    assert!(problem["offset"].as_u64().unwrap() <= 60_000 && problem["from"]["tree"] == "albums", "{problem}");
    assert!(json["files"].as_u64().unwrap() >= 3 && json["bytes"].as_u64().unwrap() > 60_000, "{json}");
}

/// With a missing run or a damaged manifest, `verify` ended with an error of the open.
#[test]
fn verify_of_database_that_does_not_open_lists_damage_and_names_salvage() {
    for ending in [".run", "CURRENT"] {
        let place = workplace();
        let gone = file_of(&place, ending);
        fs::remove_file(&gone).unwrap();
        let outcome = place.run("verify db");
        assert_eq!(outcome.code, 1, "{outcome:?}");
        let name = gone.file_name().unwrap().to_string_lossy().into_owned();
        assert!(outcome.stdout.contains(&name) && outcome.stdout.contains("missing"), "{outcome:?}");
        assert!(outcome.stdout.contains("`braid salvage db NEW`"), "{outcome:?}");
    }
}

/// A truncated run gave two problems, without keys.
#[test]
fn verify_of_truncated_run_lists_one_problem_with_its_keys() {
    let place = workplace();
    let run = file_of(&place, ".run");
    let len = fs::metadata(&run).unwrap().len() / 2;
    fs::File::options().write(true).open(&run).unwrap().set_len(len).unwrap();
    let outcome = place.run("verify db --json");
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let problems = json["problems"].as_array().unwrap();
    assert_eq!((outcome.code, problems.len()), (1, 1), "{outcome:?}");
    assert_eq!(problems[0]["offset"], len);
    assert!(problems[0]["unchecked_bytes"].as_u64().unwrap() < len, "{outcome:?}");
    assert!(problems[0]["from"]["key_hex"].is_string() && problems[0]["to"]["key_hex"].is_string(), "{outcome:?}");
    assert!(place.run("verify db").stdout.contains("\n1 problem\n"));
}

#[test]
fn verify_of_sound_database_as_json_is_sound() {
    let place = workplace();
    let json: serde_json::Value = serde_json::from_str(&place.ok("verify db --json")).unwrap();
    assert_eq!((&json["sound"], &json["problems"]), (&true.into(), &serde_json::json!([])));
}
