//! Copies of a database that another process has open and writes to.

use crate::common;

use common::{BRAID, Workplace};
use std::{
    io::{BufRead, BufReader, BufWriter, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
};

const RECORDS_PER_PERMIT: u64 = 20_000;

struct Writer {
    child: Child,
    permits: Option<Sender<()>>,
    feeder: Option<JoinHandle<()>>,
    said: BufReader<ChildStdout>,
}

fn feed(input: ChildStdin, permits: Receiver<()>) {
    let mut input = BufWriter::new(input);
    let text = "x".repeat(200);
    let mut number = 0;
    for () in permits {
        for _ in 0..RECORDS_PER_PERMIT {
            if writeln!(input, "{{\"id\":{number},\"text\":\"{text}\"}}").is_err() {
                return;
            }
            number += 1;
        }
    }
}

impl Writer {
    fn start(place: &Workplace) -> Writer {
        let mut command = Command::new(BRAID);
        command.args([
            "import",
            "db",
            "-",
            "--tree",
            "numbers",
            "--format",
            "jsonl",
            "--key",
            "id:u64",
            "--acknowledge",
        ]);
        command.current_dir(place.path("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = common::spawn(&mut command);
        let (input, said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (permits, granted) = channel();
        let feeder = Some(std::thread::spawn(move || feed(input, granted)));
        Writer { child, permits: Some(permits), feeder, said }
    }

    fn next_batch(&mut self) -> u64 {
        self.permits.as_ref().unwrap().send(()).unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        let json: serde_json::Value = serde_json::from_str(line.strip_prefix("ack ").unwrap()).unwrap();
        json["stored"].as_u64().unwrap()
    }

    fn finish(mut self) -> u64 {
        self.permits = None;
        let mut last = 0;
        let mut line = String::new();
        while self.said.read_line(&mut line).unwrap() > 0 {
            let json: serde_json::Value = serde_json::from_str(line.strip_prefix("ack ").unwrap()).unwrap();
            last = json["stored"].as_u64().unwrap();
            line.clear();
        }
        self.feeder.take().unwrap().join().unwrap();
        assert!(self.child.wait().unwrap().success());
        last
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check_prefix(place: &Workplace, db: &str) -> u64 {
    let count: u64 = place.ok(&format!("count {db} numbers")).trim().parse().unwrap();
    let last = place.ok(&format!("scan {db} numbers --reverse --limit 1"));
    assert_eq!(last.split('\t').next().unwrap(), (count - 1).to_string(), "{db}");
    assert!(place.ok(&format!("verify {db}")).ends_with("sound\n"));
    count
}

/// The commands were refused with the advice to close the program.
#[test]
fn checkpoint_backup_and_archive_beside_writer_name_alternatives() {
    let place = Workplace::with_database();
    let mut writer = Writer::start(&place);
    writer.next_batch();
    let said = place.fails(4, "backup create db backups");
    assert!(said.contains("`braid dump`") && said.contains("Db::backup"), "{said}");
    assert!(!place.path("backups").exists());
    let said = place.fails(4, "checkpoint db copy");
    assert!(said.contains("--copy") && said.contains("Db::checkpoint"), "{said}");
    assert!(!place.path("copy").exists());
    let said = place.fails(4, "archive db archive");
    assert!(said.contains("Db::archive_now"), "{said}");
    drop(writer);
}

#[test]
fn checkpoint_copy_and_dump_beside_writer_hold_one_commit() {
    let place = Workplace::with_database();
    place.ok("put db t long v");
    let mut writer = Writer::start(&place);
    for round in 0..3 {
        let before = writer.next_batch();
        let said = place.ok(&format!("checkpoint db copy{round} --copy"));
        assert!(said.starts_with("checkpoint at commit "), "{said}");
        assert!(check_prefix(&place, &format!("copy{round}")) >= before);
        let before = writer.next_batch();
        place.ok(&format!("dump db {round}.dump"));
        place.ok(&format!("load {round}.dump loaded{round}"));
        assert!(check_prefix(&place, &format!("loaded{round}")) >= before);
    }
    let all = writer.finish();
    assert_eq!(check_prefix(&place, "db"), all);
    place.ok("put copy0 t mine w");
    assert_eq!(place.ok("get copy0 t long"), "v\n");
    place.fails(1, "get db t mine");
}

#[test]
fn checkpoint_copy_into_directory_in_use_is_refused() {
    let place = Workplace::with_database();
    place.write("file", "");
    std::fs::create_dir(place.path("full")).unwrap();
    place.write("full/file", "");
    assert!(place.fails(2, "checkpoint db full --copy").contains("not empty"));
    place.fails(1, "checkpoint none copy --copy");
    assert!(!place.path("copy").exists());
}
