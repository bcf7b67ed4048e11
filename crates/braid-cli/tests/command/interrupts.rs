//! Signals: remaining files, messages, and how to continue.

use crate::common;

use common::{BRAID, Workplace};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Output, Stdio},
    thread::JoinHandle,
};

fn start(place: &Workplace, arguments: &str) -> Child {
    let mut command = Command::new(BRAID);
    command.args(arguments.split(' ')).current_dir(place.path(""));
    common::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ended(child: Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code(), text(&stderr))
}

fn feed_without_end(mut input: impl Write + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut number = 0_u64;
        while writeln!(input, "{{\"id\":\"{number:012}\",\"text\":\"{:0200}\"}}", number * 7919).is_ok() {
            number += 1;
        }
    })
}

fn filled() -> Workplace {
    let place = Workplace::with_database();
    let lines: String =
        (0..40_000_u64).map(|n| format!("{{\"id\":\"{n:06}\",\"x\":\"{:0100}\"}}\n", n * 7919)).collect();
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree t --key id");
    place
}

fn names(place: &Workplace) -> Vec<String> {
    let names = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// A pipe as output blocks the command in a write.
struct HeldOutput {
    pipe: fs::File,
}

impl HeldOutput {
    fn new(place: &Workplace) -> HeldOutput {
        assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
        let pipe = fs::File::options().read(true).write(true).open(place.path("pipe")).unwrap();
        HeldOutput { pipe }
    }

    fn wait(&mut self) {
        self.pipe.read_exact(&mut [0]).unwrap();
    }
}

/// The file stayed, and the next dump refused it.
#[test]
fn interrupted_dump_leaves_no_file() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let place = filled();
        let before = names(&place);
        let child = start(&place, "dump db out.dump --threads 1");
        wait_for_temporary_file(&place, "out.dump");
        send(signal, &child);
        let (ended_with, said) = ended(child);
        if ended_with == Some(0) {
            fs::remove_file(place.path("out.dump")).unwrap();
        } else {
            assert_eq!(ended_with, Some(code), "{said}");
            assert!(said.contains("interrupted: no dump was written to out.dump"), "{said}");
        }
        assert_eq!(names(&place), before);
        place.ok("dump db out.dump");
        place.ok("load out.dump --check");
    }
}

fn wait_for_temporary_file(place: &Workplace, file: &str) {
    for _ in 0..100_000 {
        let names = names(place);
        if names.iter().any(|name| name == file || name.starts_with(&format!(".{file}."))) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("no file came");
}

#[test]
fn interrupted_dump_into_pipe_reports_interrupt() {
    let place = filled();
    let mut held = HeldOutput::new(&place);
    let child = start(&place, "dump db pipe --compression none");
    held.wait();
    send("INT", &child);
    let drained = std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while held.pipe.read(&mut buffer).is_ok_and(|count| count == buffer.len()) {}
    });
    let (code, said) = ended(child);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("interrupted: "), "{said}");
    drop(drained);
}

#[test]
fn interrupted_import_reports_stored_records() {
    let place = Workplace::with_database();
    let mut child = start(&place, "import db - --tree t --format jsonl --key id --acknowledge");
    let feeder = feed_without_end(child.stdin.take().unwrap());
    let mut acknowledged = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut acknowledged).unwrap();
    assert!(acknowledged.starts_with("ack "), "{acknowledged}");
    let mut stdout = child.stdout.take().unwrap();
    let rest = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    send("INT", &child);
    let (code, said) = ended(child);
    feeder.join().unwrap();
    rest.join().unwrap().unwrap();
    assert_eq!(code, Some(130), "{said}");
    let command = said.split("; continue after that with: ").nth(1).unwrap_or_else(|| panic!("{said}"));
    assert!(command.ends_with("import db - --tree t --format jsonl --key id --acknowledge --resume\n"), "{said}");
    let stored: u64 = place.ok("count db t").trim().parse().unwrap();
    let counted = said.split("interrupted: stored ").nth(1).unwrap().split(' ').next().unwrap().replace(',', "");
    assert_eq!(counted, stored.to_string(), "{said}");
    assert!(place.ok("verify db").ends_with("sound\n"));
}

#[test]
fn resume_after_interrupt_stores_remaining_records() {
    let place = Workplace::with_database();
    let lines: String = (0..60_000).map(|n| format!("{{\"id\":\"{n:06}\",\"x\":\"{n:0200}\"}}\n")).collect();
    place.write("in.jsonl", lines);
    let import = "import db in.jsonl --tree t --key id --resume --acknowledge";
    let mut child = start(&place, import);
    let mut acknowledged = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut acknowledged).unwrap();
    send("TERM", &child);
    lines.read_to_end(&mut Vec::new()).unwrap();
    let (code, said) = ended(child);
    assert!(code == Some(143) && said.contains("--resume") || code == Some(0), "{code:?}: {said}");
    place.ok(import);
    assert_eq!(place.ok("count db t"), "60000\n");
}

#[test]
fn interrupted_bulk_import_leaves_nothing() {
    let place = Workplace::with_database();
    let mut child = start(&place, "import db - --tree t --format jsonl --key id");
    let mut input = child.stdin.take().unwrap();
    for number in 0..30_000 {
        writeln!(input, "{{\"id\":\"{number:06}\",\"x\":\"{number:0200}\"}}").unwrap();
    }
    send("INT", &child);
    let feeder = feed_without_end(input);
    let (code, said) = ended(child);
    feeder.join().unwrap();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("nothing was stored"), "{said}");
    assert!(said.ends_with("import db - --tree t --format jsonl --key id --resume\n"), "{said}");
    assert_eq!(place.ok("trees db"), "");
}

/// A command that waits for input ends after the grace period or at the second signal.
#[test]
fn second_signal_ends_command_that_waits_for_input() {
    let place = Workplace::with_database();
    let mut child = start(&place, "import db - --tree t --format jsonl --key id --acknowledge");
    let mut input = child.stdin.take().unwrap();
    for number in 0..30_000 {
        writeln!(input, "{{\"id\":\"{number:06}\",\"x\":\"{number:0200}\"}}").unwrap();
    }
    let mut acknowledged = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut acknowledged).unwrap();
    send("INT", &child);
    send("INT", &child);
    let (code, said) = ended(child);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("stored "), "{said}");
    drop(input);
    assert!(place.ok("verify db").ends_with("sound\n"));
}

#[test]
fn interrupted_load_leaves_nothing() {
    let place = filled();
    place.ok("dump db some.dump --compression none");
    let dump = fs::read(place.path("some.dump")).unwrap();
    let (first, last) = dump.split_at(dump.len() / 2);
    let mut child = start(&place, "load - new");
    let mut input = child.stdin.take().unwrap();
    input.write_all(first).unwrap();
    send("INT", &child);
    let _ = input.write_all(last);
    drop(input);
    let (code, said) = ended(child);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("nothing was loaded into new"), "{said}");
    place.ok("load some.dump new");
}

#[test]
fn interrupted_export_leaves_old_file() {
    let place = filled();
    place.write("out", "old");
    let before = names(&place);
    let child = start(&place, "export db -o out");
    wait_for_part(&place);
    send("INT", &child);
    let (code, said) = ended(child);
    if code != Some(0) {
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains("out is unchanged"), "{said}");
        assert_eq!(fs::read_to_string(place.path("out")).unwrap(), "old");
    }
    assert_eq!(names(&place), before);
}

fn wait_for_part(place: &Workplace) {
    for _ in 0..100_000 {
        if names(place).iter().any(|name| name.ends_with(".part")) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("no file came");
}

#[test]
fn interrupted_compact_verify_and_backup_leave_sound_database() {
    let place = filled();
    for (command, expected) in [
        ("compact db", "finished merges stay; run the command again for the others"),
        ("verify db", "the check is not finished"),
        ("backup create db backups --full", "earlier backups are unchanged"),
    ] {
        let child = start(&place, command);
        wait_for_handler(&child);
        send("INT", &child);
        let (code, said) = ended(child);
        assert!(code == Some(130) && said.contains(expected) || code == Some(0), "{command}: {code:?} {said}");
        assert!(place.ok("verify db").ends_with("sound\n"), "{command}");
    }
    place.ok("backup create db backups");
    place.ok("restore backups new");
    assert_eq!(place.ok("count new t"), "40000\n");
}

fn wait_for_handler(child: &Child) {
    let path = format!("/proc/{}/status", child.id());
    for _ in 0..1_000_000 {
        let Ok(status) = fs::read_to_string(&path) else { return };
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).map(str::trim).unwrap_or_default();
        let is_zombie = status.lines().any(|line| line.starts_with("State:") && line.contains('Z'));
        // SIGINT is the second bit.
        if is_zombie || u64::from_str_radix(caught, 16).is_ok_and(|caught| caught & 2 != 0) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("no signal is caught");
}

/// A binary dump was written to the terminal.
#[test]
fn dump_to_terminal_is_refused_unless_forced() {
    let place = filled();
    let script = |command: &str| {
        let line = format!("{BRAID} {command}; echo code $?");
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(place.path("")).stdin(Stdio::null());
        script.output().ok().map(|output| text(&output.stdout))
    };
    let Some(refused) = script("dump db") else { return eprintln!("SKIPPED: there is no `script`") };
    assert!(refused.contains("code 2") && refused.contains("a dump is binary and not for a terminal"), "{refused}");
    assert!(script("dump db /dev/tty").unwrap().contains("code 2"));
    assert!(script("dump db --force").unwrap().contains("code 0"));
    assert!(script("dump db > some.dump").unwrap().contains("code 0"));
    place.ok("load some.dump --check");
}

#[test]
fn dump_to_devices_pipes_and_standard_output_works() {
    let place = filled();
    place.ok("dump db /dev/null");
    place.ok("dump db /dev/null");
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let script = format!(
        "{BRAID} dump db - 2>/dev/null | {BRAID} load - one && {BRAID} dump db /dev/stdout 2>/dev/null | {BRAID} load - two \
         && {BRAID} dump db > out.dump 2>/dev/null && {BRAID} dump db /dev/stdout > again.dump 2>/dev/null \
         && {BRAID} load out.dump --check && {BRAID} load again.dump --check \
         && mkfifo fifo && {{ {BRAID} load fifo three & {BRAID} dump db fifo && wait; }}"
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    for db in ["one", "two", "three"] {
        assert_eq!(place.ok(&format!("count {db} t")), "40000\n");
    }
    let said = place.fails(2, "dump db out.dump");
    assert!(said.contains("exists already"), "{said}");
    place.ok("dump db out.dump --force");
    place.fails(4, "dump db /dev/full");
}

/// An open transaction is rolled back; commits before it stay.
#[cfg(feature = "shell")]
#[test]
fn shell_ended_by_signal_keeps_commits_and_rolls_the_transaction_back() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let place = Workplace::with_database();
        let mut child = start(&place, "shell db --write");
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"put t a 1\nuse t\nbegin\nput b 2\nget b\n").unwrap();
        let mut answer = [0; 2];
        child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"2\n");
        send(signal, &child);
        let (ended, stderr) = ended(child);
        assert_eq!(ended, Some(code), "{stderr}");
        assert!(stderr.contains("braid: interrupted: ") && stderr.contains("rolled back"), "{stderr}");
        assert_eq!(place.ok("scan db t"), "a\t1\n");
        drop(input);
    }
}
