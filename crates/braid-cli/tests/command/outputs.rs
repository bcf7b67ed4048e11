//! Closed and full outputs, pipes, devices and links.

use crate::common;

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    process::{Command, Stdio},
};

use common::{BRAID, Workplace};

fn shell(place: &Workplace, line: &str) -> (i32, String) {
    let script = format!("braid() {{ '{BRAID}' \"$@\"; }}\n{line}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.path("")).stdin(Stdio::null()).stderr(Stdio::piped());
    let output = common::spawn(command.stdout(Stdio::null())).wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn filled() -> Workplace {
    let place = Workplace::new();
    place.write("in.jsonl", "{\"id\":\"k\",\"colour\":\"red\"}\n");
    place.ok("create db");
    place.ok("watch db --keep 16M");
    place.ok("import db in.jsonl --tree t --key id --index i=colour");
    place.ok("backup create db backups");
    place.ok("dump db some.dump");
    place
}

const PRINTING: [&str; 35] = [
    "--help",
    "--version",
    "get db t k",
    "get db t k --json",
    "scan db t",
    "trees db",
    "trees db --json",
    "import OUT in.jsonl --tree t --key id --create",
    "import OUT in.jsonl --dry-run",
    "import OUT in.jsonl --to-jsonl -",
    "import OUT in.jsonl --to-jsonl /dev/stdout",
    "find db t --by i --eq red",
    "export db",
    "export db t --values",
    "export db -o /dev/stdout",
    "watch db",
    "stats db",
    "stats db --json",
    "verify db",
    "compact db",
    "backup create db OUT",
    "backup create db OUT --json",
    "backup list backups",
    "backup verify backups",
    "restore backups OUT",
    "archive db OUT",
    "checkpoint db OUT",
    "dump db OUT",
    "load some.dump OUT",
    "load some.dump --check",
    "inspect db/CURRENT",
    "count db t",
    "index list db t",
    "backup create --help",
    "verify db --json",
];

/// `println!` panicked with code 101, and later work was not done.
#[cfg(target_os = "linux")]
#[test]
fn full_standard_output_exits_4_in_every_command() {
    let place = filled();
    for (number, command) in PRINTING.iter().enumerate() {
        let command = command.replace("OUT", &format!("out{number}"));
        let (code, stderr) = shell(&place, &format!("braid {command} > /dev/full"));
        assert_eq!(code, 4, "{command}: {stderr}");
        assert!(stderr.contains("cannot write to standard output: "), "{command}: {stderr}");
        assert!(!stderr.contains("panicked"), "{command}: {stderr}");
    }
    assert_eq!(place.ok("get out7 t k"), place.ok("get db t k"));
    assert!(place.ok("backup list out20").contains("commit"));
    assert_eq!(place.ok("get out24 t k"), place.ok("get db t k"));
}

#[test]
fn closed_standard_output_changes_no_exit_code() {
    let place = filled();
    for (number, command) in PRINTING.iter().enumerate() {
        let command = command.replace("OUT", &format!("out{number}"));
        let (code, stderr) = shell(&place, &format!("braid {command} >&-"));
        assert_eq!((code, stderr.contains("panicked")), (0, false), "{command}: {stderr}");
    }
}

/// A failed write of an error message was a panic, with code 101.
#[test]
fn closed_or_full_standard_error_changes_no_exit_code() {
    let place = filled();
    let full = if cfg!(target_os = "linux") { "2> /dev/full" } else { "2>&-" };
    for redirect in [full, "2>&-"] {
        for (command, expected) in [
            ("get db t none", 1),
            ("get none t k", 1),
            ("put db t", 2),
            ("import db none --tree t", 4),
            ("import db in.jsonl --tree t --key none", 5),
            ("export db t -o out", 0),
            ("dump db", 0),
            ("backup create db backups --keep 1", 0),
        ] {
            let (code, _) = shell(&place, &format!("braid {command} {redirect}"));
            assert_eq!(code, expected, "{command} {redirect}");
        }
    }
    assert_eq!(place.ok("backup list backups").lines().count(), 1);
}

/// `backup create --keep` panicked when its reader went away, before it deleted old backups.
#[test]
fn reader_that_goes_away_ends_command_with_0_after_its_work() {
    let place = filled();
    for (number, command) in PRINTING.iter().chain(&["backup create db backups --keep 1"]).enumerate() {
        let command = command.replace("OUT", &format!("gone{number}"));
        let mut child = Command::new(BRAID);
        child.args(command.split(' ')).current_dir(place.path("")).stderr(Stdio::piped()).stdout(Stdio::piped());
        let mut child = common::spawn(&mut child);
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{command}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("pipe"), "{command}: {stderr}");
    }
    assert_eq!(place.ok("backup list backups").lines().count(), 1);
}

/// `watch` ended with code 4: its error hid that the reader was gone. Each output is longer than a pipe
/// holds.
#[cfg(feature = "shell")]
#[test]
fn reader_of_the_first_line_ends_each_long_output_with_0() {
    let place = Workplace::new();
    let line =
        |number: u32| format!("{{\"id\":\"{number:05}\",\"colour\":\"red\",\"text\":\"{}\"}}\n", "x".repeat(100));
    place.write("in.jsonl", (0..5000).map(line).collect::<String>());
    place.ok("create db");
    place.ok("watch db --keep 64M");
    let lines: String = (0..2000).map(|number| format!("put t key{number} {}\n", "v".repeat(100))).collect();
    let written = place.run_with(&["shell", "db", "--write", "--durability", "buffered"], lines.as_bytes());
    assert_eq!(written.code, 0, "{written:?}");
    place.ok("import db in.jsonl --tree r --key id --index i=colour");
    let mut trees: String = (0..3000).map(|number| format!("use {}{number} --create\n", "n".repeat(60))).collect();
    trees.push_str("use t");
    assert_eq!(place.run_with(&["shell", "db", "--write", "--durability", "none"], trees.as_bytes()).code, 0);
    for command in [
        "scan db r",
        "scan db r --reverse --format hex",
        "scan db r --json",
        "scan db r --format jsonl",
        "find db r --by i --eq red",
        "find db r --by i --eq red --json",
        "export db",
        "export db --format jsonl r",
        "export db r --values",
        "import none in.jsonl --to-jsonl -",
        "watch db",
        "watch db --json",
        "trees db",
        "trees db --json",
        "stats db --trees --json",
        "shell db -c trees",
        "shell db --json -c scan\\x20r",
    ] {
        let command: Vec<String> = command.split(' ').map(|word| word.replace("\\x20", " ")).collect();
        let mut child = Command::new(BRAID);
        child.args(&command).current_dir(place.path("")).env_remove("BRAID_DB");
        let mut child = common::spawn(child.stderr(Stdio::piped()).stdout(Stdio::piped()).stdin(Stdio::null()));
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 10]).unwrap();
        drop(out);
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{command:?}: {stderr}");
        assert!(!stderr.contains("pipe"), "{command:?}: {stderr}");
    }
}

/// `-o` and `--to-jsonl` replaced a pipe by a file, and its reader waited forever.
#[test]
fn pipe_is_written_through() {
    for command in ["export db t --values -o pipe", "import none in.jsonl --to-jsonl pipe"] {
        let place = filled();
        let line = format!(
            "mkfifo pipe; cat pipe > read & braid {command}; code=$?; test -p pipe || exit 99; wait; exit $code"
        );
        let (code, stderr) = shell(&place, &line);
        assert_eq!(code, 0, "{command}: {stderr}");
        assert_eq!(fs::read_to_string(place.path("read")).unwrap(), "{\"id\":\"k\",\"colour\":\"red\"}\n", "{command}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_device_is_named_and_not_replaced() {
    let place = filled();
    let message = place.fails(4, "export db -o /dev/full");
    assert!(message.contains("cannot write to /dev/full"), "{message}");
    place.ok("export db -o /dev/null");
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

/// A new output file had mode 644 instead of 600, and replaced a link.
#[test]
fn replaced_file_keeps_mode_and_links() {
    let place = filled();
    for (name, command) in [("o", "export db t --values -o link-o"), ("j", "import none in.jsonl --to-jsonl link-j")] {
        let file = place.write(&format!("file-{name}"), "old");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(format!("file-{name}"), place.path(&format!("link-{name}"))).unwrap();
        place.ok(command);
        assert!(fs::symlink_metadata(place.path(&format!("link-{name}"))).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"id\":\"k\",\"colour\":\"red\"}\n");
    }
    symlink("later", place.path("dangling")).unwrap();
    place.ok("export db t --values -o dangling");
    assert!(fs::symlink_metadata(place.path("dangling")).unwrap().is_symlink() && place.path("later").exists());
    fs::hard_link(place.path("later"), place.path("twin")).unwrap();
    place.ok("export db t -o twin");
    assert_eq!(fs::read_to_string(place.path("later")).unwrap(), "{\"id\":\"k\",\"colour\":\"red\"}\n");
    assert!(fs::read_to_string(place.path("twin")).unwrap().starts_with("{\"braid_export\""));
    assert_no_temporary_files(&place);
}

#[test]
fn failed_output_leaves_only_old_file() {
    let place = filled();
    let file = place.write("old", "old");
    place.write("bad.jsonl", "{\"id\":\"k\"}\nnot json\n");
    place.fails(5, "import none bad.jsonl --to-jsonl old --on-error stop");
    place.fails(1, "export db none -o old");
    place.ok("compact db");
    for entry in fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "run") {
            let mut bytes = fs::read(&entry).unwrap();
            bytes[200] ^= 1;
            fs::write(&entry, bytes).unwrap();
        }
    }
    let damaged = place.run("export db t -o old");
    assert_eq!(damaged.code, 3, "{damaged:?}");
    assert_eq!(fs::read_to_string(file).unwrap(), "old");
    assert_no_temporary_files(&place);
    let sound = filled();
    sound.fails(4, "export db -o none/out");
    sound.fails(2, "export db -o db");
}

fn assert_no_temporary_files(place: &Workplace) {
    let names: Vec<_> = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains(".part")), "{names:?}");
}

/// Standard output under another name is not replaced.
#[cfg(target_os = "linux")]
#[test]
fn standard_output_under_other_name_is_written_through() {
    let place = filled();
    let (code, stderr) = shell(&place, "echo first > log; braid export db t --values -o /dev/stdout >> log");
    assert_eq!(code, 0, "{stderr}");
    let mut text = String::new();
    File::open(place.path("log")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "first\n{\"id\":\"k\",\"colour\":\"red\"}\n");
}

/// An output under another name of the input emptied the input.
#[cfg(unix)]
#[test]
fn import_into_its_own_input_is_refused() {
    let place = Workplace::new();
    let lines = "id,name\n1,one\n2,two,more\n";
    place.write("in.csv", lines);
    place.ok("create db");
    std::fs::hard_link(place.path("in.csv"), place.path("twin")).unwrap();
    for option in ["--rejects twin", "--to-jsonl twin"] {
        let message = place.fails(2, &format!("import db in.csv --tree t --key id {option}"));
        assert!(message.contains("names the input"), "{message}");
    }
    let script = format!("{BRAID} import db - --format csv --tree t --key id --rejects in.csv < in.csv");
    let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(std::fs::read_to_string(place.path("in.csv")).unwrap(), lines);
}
