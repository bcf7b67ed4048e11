//! `braid bench`, with few rows.

use crate::common;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{BRAID, Workplace, spawn};
use serde_json::Value;

fn lines(place: &Workplace, arguments: &str) -> Vec<Value> {
    let out = place.ok(&format!("bench --json --memory 32M {arguments}"));
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("{name}: {line}"))
}

#[test]
fn bench_of_every_workload_runs_and_checks_results() {
    let place = Workplace::new();
    let help = place.ok("bench --help");
    let names = [
        ("fillseq", 3000),
        ("readseq", 3000),
        ("readreverse", 3000),
        ("fillrandom", 3000),
        ("overwrite", 3000),
        ("readrandom", 3000),
        ("readmissing", 3000),
        ("multireadrandom", 3000),
        ("seekrandom", 3000),
        ("prefixscan", 11),
        ("readwhilewriting", 3000),
        ("updaterandom", 3000),
        ("compact", 0),
        ("readrandom", 3000),
        ("verify", 0),
        ("deleterandom", 3000),
        ("deleteseq", 3000),
        ("verify", 0),
        ("fillsync", 3),
        ("fill100K", 3),
        ("fillbatch", 3000),
        ("verify", 0),
        ("ycsb-a", 3000),
        ("ycsb-b", 3000),
        ("ycsb-c", 3000),
        ("ycsb-d", 3000),
        ("ycsb-e", 60),
        ("ycsb-f", 3000),
        ("verify", 0),
        ("stats", 0),
    ];
    let list = names.map(|(name, _)| name).join(",");
    for more in
        ["", " --threads 3 --seek-nexts 5", " --distribution zipfian --value-size 0-300 --histogram --key-size 8"]
    {
        let lines = lines(&place, &format!("--num 3000 --benchmarks {list}{more}"));
        assert_eq!(lines.len(), names.len());
        for (line, (name, operations)) in lines.iter().zip(names) {
            assert_eq!(line["benchmark"], name);
            assert!(help.contains(&format!("- {name}:")), "{name}");
            if operations > 0 {
                assert_eq!(number(line, "operations"), operations, "{line}");
                assert_eq!(number(&line["engine"], "commits") > 0, writes(name), "{line}");
            }
            if name != "stats" {
                assert_eq!(line["problems"], Value::Array(Vec::new()));
            }
        }
        let found = |place: usize| number(&lines[place], "found");
        assert_eq!([found(1), found(2), found(6)], [3000, 3000, 0], "{more}");
        assert!((1..3000).contains(&found(5)), "{more}");
        assert!(found(8) >= found(5) && found(9) > 0 && found(22) > 1000, "{more}");
    }
}

fn writes(name: &str) -> bool {
    ["fill", "overwrite", "update", "delete"].iter().any(|start| name.starts_with(start))
        || ["readwhilewriting", "ycsb-a", "ycsb-b", "ycsb-d", "ycsb-e", "ycsb-f"].contains(&name)
}

#[test]
fn bench_text_has_line_per_benchmark_and_latencies_on_request() {
    let place = Workplace::new();
    let out = place.ok("bench --num 500 --benchmarks fillrandom,readrandom,compact,stats,verify");
    for part in
        ["fillrandom       :", "micros/op", "ops/sec", "of 500 found)", "compact          :", "partitions", "verify"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("p99") && !out.contains("WRONG"), "{out}");
    assert_eq!(cfg!(debug_assertions), out.contains("debug build"));
    let out = place.ok("bench --num 500 --benchmarks fillrandom,ycsb-a --histogram");
    for part in ["p50", "p99.99", "max", "  write ", "  read ", "  update ", "benchmark's own"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn bench_with_same_seed_chooses_same_rows() {
    let place = Workplace::new();
    let found = |seed| {
        let lines = lines(&place, &format!("--num 2000 --seed {seed} --benchmarks fillrandom,readrandom"));
        (number(&lines[1], "rows_before"), number(&lines[1], "found"))
    };
    assert_eq!(found(7), found(7));
    assert_ne!(found(7), found(8));
}

#[test]
fn bench_commits_have_requested_size_and_durability() {
    let place = Workplace::new();
    let lines = lines(&place, "--num 1050 --batch-size 100 --benchmarks fillseq,fillbatch,fillsync,deleteseq");
    for line in &lines[..2] {
        assert!((11..=12).contains(&number(&line["engine"], "commits")), "{line}");
        assert_eq!(number(&line["engine"], "syncs"), 0);
    }
    assert!(number(&lines[2]["engine"], "syncs") > 0 && lines[2]["durable"] == true);
    assert_eq!(number(&lines[3]["engine"], "commits"), 11);
    let line = &self::lines(&place, "--num 20 --sync --benchmarks fillrandom")[0];
    assert!(number(&line["engine"], "syncs") >= 20, "{line}");
}

#[test]
fn bench_with_write_rate_does_not_exceed_it() {
    let place = Workplace::new();
    for more in ["", " --threads 2"] {
        let lines =
            lines(&place, &format!("--num 500 --write-rate 1000 --benchmarks fillrandom,deleteseq,readrandom{more}"));
        for line in &lines[..2] {
            let (seconds, operations) = (line["seconds"].as_f64().unwrap(), number(line, "operations"));
            assert!(operations == 500 && seconds >= 0.49, "{line}");
        }
    }
    let load = "--num 500 --benchmarks fillseq,readwhilewriting --duration 0.4";
    let limited = &lines(&place, &format!("{load} --write-rate 100"))[1];
    let (writes, seconds) = (number(&limited["writer"], "operations"), limited["writer"]["seconds"].as_f64().unwrap());
    assert!(writes >= 1 && writes as f64 <= seconds * 100.0 + 11.0, "{limited}");
}

#[test]
fn bench_with_duration_limits_random_workloads() {
    let place = Workplace::new();
    let began = Instant::now();
    let lines = lines(&place, "--num 30 --duration 0.3 --benchmarks fillseq,readrandom,overwrite,ycsb-a,verify");
    assert!(began.elapsed() >= Duration::from_millis(900), "{lines:?}");
    assert_eq!(number(&lines[0], "operations"), 30);
    assert!(lines[1..4].iter().all(|line| number(line, "operations") > 30), "{lines:?}");
}

#[test]
fn bench_with_stats_interval_prints_progress() {
    let place = Workplace::new();
    let run = |more: &str| place.run(&format!("bench --num 300 --duration 0.5 --benchmarks fillrandom{more}")).stderr;
    assert_eq!(run(""), "");
    let reported = run(" --stats-interval 0.05");
    assert!(reported.lines().count() >= 1, "{reported}");
    assert!(
        reported.lines().all(|line| line.starts_with("fillrandom: ") && line.contains("operations; ")),
        "{reported}"
    );
}

#[test]
fn bench_on_existing_database_keeps_rows() {
    let place = Workplace::new();
    let kept = |arguments: &str| lines(&place, &format!("--db db {arguments}"));
    kept("--num 1000 --benchmarks fillrandom,ycsb-d");
    fs::write(place.path("db/notes.txt"), "mine").unwrap();
    place.ok("verify db");
    let again = kept("--num 1000 --benchmarks readrandom,ycsb-d,verify");
    let rows = number(&again[0], "rows_before");
    assert!((500..800).contains(&rows) && number(&again[0], "found") > 500, "{}", again[0]);
    assert!(number(&again[1], "rows_before") > 1000, "{}", again[1]);
    let more = kept("--num 1000 --benchmarks fillrandom,readrandom --use-existing-db --seed 2");
    assert!(number(&more[1], "rows_before") > rows + 100);
    let fewer = kept("--num 100 --benchmarks fillseq,readseq,ycsb-c");
    assert_eq!((number(&fewer[1], "found"), number(&fewer[2], "rows_before")), (100, 100));
    assert_eq!(fs::read_to_string(place.path("db/notes.txt")).unwrap(), "mine");
    let message = place.fails(2, "bench --db db --benchmarks readrandom --key-size 20");
    assert!(message.contains("--key-size 20"), "{message}");
}

#[test]
fn bench_removes_temporary_directory() {
    let place = Workplace::new();
    let mut command = Command::new(BRAID);
    command
        .args(["bench", "--num", "100", "--benchmarks", "fillseq,verify"])
        .envs(["TMPDIR", "TMP"].map(|name| (name, place.path(""))));
    let run = spawn(command.stdout(Stdio::piped())).wait_with_output().unwrap();
    let out = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success() && out.contains(&place.path("braid-bench-").display().to_string()), "{out}");
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 0);
}

#[test]
fn bench_in_foreign_directory_is_refused() {
    let place = Workplace::new();
    place.ok("put db albums 1 Ten --create");
    let message = place.fails(2, "bench --db db --num 10 --benchmarks fillseq");
    assert!(message.contains("albums"), "{message}");
    assert_eq!(place.ok("get db albums 1"), "Ten\n");
    fs::create_dir(place.path("home")).unwrap();
    place.write("home/letter", "dear");
    place.fails(2, "bench --db home --num 10 --benchmarks fillseq");
    assert_eq!(fs::read_dir(place.path("home")).unwrap().count(), 1);
    place.fails(2, "bench --db home/letter --num 10 --benchmarks fillseq");
}

#[test]
fn bench_with_wrong_answer_reports_it_and_exits_1() {
    let place = Workplace::new();
    place.ok("bench --db db --num 200 --benchmarks fillseq");
    place.ok("put db bench 00000000000000073030303030303030 nonsense --keys hex");
    for (benchmark, reported) in
        [("readrandom", "belong to other keys"), ("readseq", "row 7"), ("verify", "not what was stored")]
    {
        let outcome = place.run(&format!("bench --db db --num 200 --benchmarks {benchmark}"));
        assert_eq!(outcome.code, 1, "{outcome:?}");
        assert!(outcome.stdout.contains("  WRONG: ") && outcome.stdout.contains(reported), "{outcome:?}");
    }
    let outcome = place.run("bench --db db --num 200 --benchmarks verify --json");
    assert!(outcome.code == 1 && outcome.stdout.contains("\"problems\":[\"bench: "), "{outcome:?}");
}

#[test]
fn bench_on_damage_exits_3_and_on_open_database_exits_4() {
    let place = Workplace::new();
    place.ok("bench --db db --num 2000 --benchmarks fillseq,compact");
    let files: Vec<_> = fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let run = files.iter().find(|path| path.extension().is_some_and(|kind| kind == "run")).unwrap();
    let mut bytes = fs::read(run).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(run, bytes).unwrap();
    assert!(place.fails(3, "bench --db db --num 2000 --benchmarks readseq").contains("corruption"));
    place.write("file", "");
    place.fails(4, "bench --db file/db --num 10 --benchmarks fillseq");
    let mut command = Command::new(BRAID);
    command
        .args(["bench", "--num", "100", "--benchmarks", "fillseq,readrandom", "--duration", "600", "--db"])
        .arg(place.path("open"));
    let mut holder = spawn(command.stdout(Stdio::piped()));
    // Any output shows that the database is open.
    let mut said = BufReader::new(holder.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    let message = place.run("bench --db open --num 10 --benchmarks fillseq");
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(said);
    assert!(message.code == 4 && message.stderr.contains("another benchmark"), "{message:?}");
}

#[test]
fn bench_read_without_rows_prints_note() {
    let place = Workplace::new();
    for benchmark in ["readrandom", "readseq", "seekrandom", "prefixscan", "readmissing"] {
        let out = place.ok(&format!("bench --num 100 --benchmarks {benchmark}"));
        assert!(out.contains("note: there were no rows"), "{out}");
    }
    assert!(!place.ok("bench --num 100 --benchmarks fillseq,readmissing").contains("note:"));
}

#[test]
fn bench_with_invalid_arguments_exits_2() {
    let place = Workplace::new();
    for (arguments, reported) in [
        ("--benchmarks fillsq", "fillseq"),
        ("--benchmarks fillseq,,readseq", "fillseq"),
        ("--num 0", "--num"),
        ("--num many", "--num"),
        ("--reads 0", "--reads"),
        ("--key-size 7", "8 to"),
        ("--key-size 65536", "8 to"),
        ("--value-size 9-8", "MIN-MAX"),
        ("--value-size 2G", "up to 1G"),
        ("--compressible 1.5", "0 to 1"),
        ("--threads 0", "--threads"),
        ("--distribution gauss", "zipfian"),
        ("--distribution zipfian:0", "exponent"),
        ("--duration 0", "seconds"),
        ("--duration nan", "seconds"),
        ("--write-rate 0", "--write-rate"),
        ("--batch-size 0", "--batch-size"),
        ("--prefix-size 9", "--prefix-size"),
        ("--memory lots", "64M"),
        ("--compression rar", "lz4"),
        ("--stats-interval=-1", "seconds"),
    ] {
        let message = place.fails(2, &format!("bench {arguments}"));
        assert!(message.contains(reported), "{arguments}: {message}");
    }
}
