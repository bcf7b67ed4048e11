//! Full disks, full outputs and file size limits.

#![cfg(unix)]

use crate::common;

use std::process::Command;

use common::{BRAID, Workplace};

/// Writes incompressible records, 0.8 MiB per thousand, with ascending keys.
fn write_input(place: &Workplace, records: u32) {
    let mut state = 1u64;
    let mut lines = String::new();
    for number in 0..records {
        let mut text = String::new();
        while text.len() < 800 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text += &format!("{:016x}", state.rotate_left(29));
        }
        lines += &format!("{{\"id\":\"{number:05}\",\"text\":\"{text}\"}}\n");
    }
    place.write("in.jsonl", &lines);
}

fn reported(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The signal SIGXFSZ ended the command silently, like a kill.
#[test]
fn import_past_file_size_limit_names_limit_and_exits_4() {
    let place = Workplace::new();
    write_input(&place, 5000);
    place.ok("create db");
    let script = format!("ulimit -f 1000; exec {BRAID} import db in.jsonl --tree t --key id --memory 8000000");
    let output = Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", reported(&output));
    assert!(reported(&output).contains("ulimit -f"), "{}", reported(&output));
    place.ok("verify db");
}

/// Runs a script in a tmpfs of `mib` MiB at `full`. Returns `None` if mounting is not possible.
fn on_small_disk(place: &Workplace, mib: u32, script: &str) -> Option<String> {
    std::fs::create_dir(place.path("full")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={mib}m none full || {{ echo no-mount; exit 0; }}\n\
         must() {{ want=$1; shift; \"$@\"; got=$?; [ $got = $want ] || {{ echo \"$* ended with $got, not $want\"; exit 1; }}; }}\n\
         {script}"
    );
    let mut unshare = Command::new("unshare");
    let unshare = unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let output = unshare.current_dir(place.path("")).output().ok()?;
    let reported = reported(&output);
    if reported.contains("no-mount") || reported.contains("unshare:") {
        return None;
    }
    assert!(output.status.success(), "{reported}");
    Some(reported)
}

#[test]
fn deletes_on_full_disk_by_each_process_succeed() {
    let place = Workplace::new();
    write_input(&place, 5000);
    let mut deletes = String::new();
    for number in (0..12).map(|number| number * 2) {
        deletes += &format!("must 0 {BRAID} del full/db t {number:05}\n");
    }
    let script = format!(
        "must 0 {BRAID} create full/db\n\
         must 4 {BRAID} import full/db in.jsonl --tree t --key id --resume\n\
         {BRAID} put full/db t zz '{{}}'\n\
         must 0 {BRAID} get full/db t 00003\n\
         {deletes}\
         must 1 {BRAID} get full/db t 00002\n\
         must 0 {BRAID} stats full/db\n\
         must 0 {BRAID} verify full/db"
    );
    let Some(reported) = on_small_disk(&place, 4, &script) else {
        return eprintln!("SKIPPED: nothing can be mounted here");
    };
    assert!(reported.contains("disk reserve") && reported.contains("sound"), "{reported}");
}

/// Each delete's process took 128 KiB of the reserve: after eight, none could delete.
#[test]
fn deletes_on_full_disk_by_many_processes_succeed() {
    let place = Workplace::new();
    write_input(&place, 12_000);
    let script = format!(
        "must 0 {BRAID} create full/db\n\
         must 4 {BRAID} import full/db in.jsonl --tree t --key id --resume\n\
         number=0\n\
         while [ $number -lt 24 ]; do\n\
         must 0 {BRAID} del full/db t $(printf %05d $((number * 4)))\n\
         number=$((number + 1))\n\
         done\n\
         must 0 {BRAID} verify full/db"
    );
    let Some(reported) = on_small_disk(&place, 8, &script) else {
        return eprintln!("SKIPPED: nothing can be mounted here");
    };
    assert!(reported.contains("sound"), "{reported}");
}

/// `dump` and `salvage` to a full disk promised that writes resume by themselves. A failed backup
/// left its files.
#[test]
fn dump_and_backup_to_full_disk_name_output() {
    let place = Workplace::new();
    write_input(&place, 5000);
    place.ok("create db");
    place.ok("import db in.jsonl --tree t --key id");
    let script = format!(
        "must 4 {BRAID} dump db full/out.dump\n\
         must 4 {BRAID} backup create db full/backups\n\
         must 1 test -e full/backups\n\
         must 4 {BRAID} checkpoint db full/copy\n\
         must 1 test -e full/copy\n\
         must 4 {BRAID} salvage db full/salvaged\n\
         must 1 test -e full/salvaged\n\
         {BRAID} export db t -o full/out.jsonl && exit 1\n\
         true"
    );
    let Some(reported) = on_small_disk(&place, 1, &script) else {
        return eprintln!("SKIPPED: nothing can be mounted here");
    };
    assert!(reported.contains("full/backups") && reported.contains("is full"), "{reported}");
    assert!(!reported.contains("resume"), "{reported}");
}

#[test]
fn import_past_size_limit_names_records_and_command_to_continue() {
    let place = Workplace::new();
    write_input(&place, 5000);
    place.write("bad.jsonl", "bad\n");
    std::fs::copy(place.path("in.jsonl"), place.path("my in.jsonl")).unwrap();
    let limited = |blocks: u32, arguments: &str| {
        let script = format!("ulimit -f {blocks}; exec {BRAID} {arguments}");
        let mut command = Command::new("sh");
        let output = command.args(["-c", &script]).current_dir(place.path("")).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    place.ok("create db");
    let said = limited(6000, "import db 'my in.jsonl' --tree t --key id --resume --rejects bad.jsonl");
    let stored = place.ok("count db t").trim().to_owned();
    assert!(stored.parse::<u32>().unwrap() > 0, "{said}");
    let shown = said.split(" records, now on disk; continue after that with: ").collect::<Vec<_>>();
    let [before, command] = shown.as_slice() else { panic!("{said}") };
    assert_eq!(before.rsplit(' ').next().unwrap().replace(',', ""), stored, "{said}");
    let command = command.lines().next().unwrap();
    assert!(command.contains("'my in.jsonl'") && command.contains("--resume"), "{command}");
    let output = Command::new("sh").args(["-c", command]).current_dir(place.path("")).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    assert_eq!(place.ok("count db t"), "5000\n");
    place.ok("create whole");
    let said = limited(1000, "import whole in.jsonl --tree t --key id --memory 8000000");
    assert!(
        said.contains("nothing is stored") && said.contains("--tree t --key id --memory 8000000 --resume"),
        "{said}"
    );
    assert_eq!(place.ok("trees whole"), "");
    place.ok("export db -o some.export");
    place.ok("create other");
    let said = limited(6000, "import other some.export");
    let stored = place.ok("count other t").trim().parse().unwrap();
    let shown = format!("the records before it, {} of them, are stored", thousands(stored));
    assert!(said.contains(&shown), "{stored}: {said}");
}

fn thousands(number: u32) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}
