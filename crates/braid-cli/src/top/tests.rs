//! Tests of readings, frames and their drawing.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use ratatui::{Terminal, backend::TestBackend};
use serde_json::{Value, json};

use super::{
    draw::{Screen, draw},
    frame::Frame,
    http::{Address, Client},
    report::to_json,
    sections::{headline, sections, show_age},
    server::{Server, reading},
};

fn stats(seconds: u64) -> Value {
    json!({
        "time_us": 1_000_000 * seconds,
        "server": {"follower": false, "not_ready": null, "uptime_us": 7_300_000_000_u64},
        "engine": {
            "last_sequence": 1000 + 500 * seconds, "disk_bytes": 5 << 20, "commits": 500 * seconds,
            "user_bytes_written": 1024 * seconds, "log_bytes_written": 2048 * seconds,
            "run_bytes_written": 1000 * seconds, "view_bytes_written": 24 * seconds,
            "syncs": 10 * seconds, "flushes": seconds, "merges": 2 * seconds, "loose_merges": seconds,
            "slowed_us": 250_000 * seconds, "stalls": seconds, "stall_us_max": 1500, "pressure_per_mille": 612,
            "cache_hits": 90 * seconds, "cache_misses": 10 * seconds, "transaction_conflicts": 0,
            "memory_bytes": 3 << 20, "memtable_bytes": 2 << 20, "memtable_bytes_max": 4 << 20, "cache_bytes": 1 << 20,
            "snapshots": 2, "oldest_snapshot_age_us": 61_000_000, "dead_entries_held": 7,
        },
        "partitions": {"count": 3, "runs": 9, "unindexed_runs": 2, "garbage": 1},
        "readers": [{"kind": "snapshot", "sequence": 900, "age_us": 61_000_000, "commits_behind": 100,
                     "dead_entries_held": 7, "is_expired": false}],
        "damaged_partitions": [],
        "slow_commits": [
            {"time_us": 1, "sequence": 1100, "took_us": 30_000, "cause": "queue", "parts": []},
            {"time_us": 2, "sequence": 1200, "took_us": 45_000, "cause": "memory_full",
             "parts": [{"name": "queue", "us": 5_000}, {"name": "memory_full", "us": 40_000}, {"name": "lock", "us": 0}],
             "background": {"work": "flush", "ran_for_us": 7}},
        ],
        "slow_commit_totals": [
            {"cause": "queue", "commits": 1, "part_us": 9}, {"cause": "memory_full", "commits": 4, "part_us": 9},
            {"cause": "lock", "commits": 0, "part_us": 3},
        ],
        "requests": {"bounds_us": [10, 100, 1000], "kinds": [
            {"kind": "get", "count": 100 * seconds, "buckets": [98 * seconds, 0, 2 * seconds]},
            {"kind": "put", "count": 0, "buckets": [0, 0, 0]},
            {"kind": "batch", "count": 0, "buckets": [0, 0, 0]},
        ]},
    })
}

fn trees() -> Value {
    json!({"trees": [
        {"name": "small", "kind": "single", "records_estimate": 1, "bytes_estimate": 10},
        {"name": "large\u{1}", "kind": "multi", "records_estimate": 2000, "bytes_estimate": 5000},
    ]})
}

fn frame() -> Frame {
    Frame::new("http://h:1", &reading(&stats(1), &trees()), reading(&stats(3), &trees()))
}

fn text(frame: &Frame) -> String {
    let lines = sections(frame).into_iter().flat_map(|section| {
        std::iter::once(section.title.to_owned()).chain(section.lines.into_iter().map(|line| line.text))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn frame_shows_rates_between_two_readings() {
    let frame = frame();
    assert_eq!(headline(&frame), "http://h:1  commit 2,500  5.00 MiB  up 2.0 h");
    let expected = "\
Rates
commits            500/s
gets               100/s  p50 < 10 us  p99 < 1.0 ms
puts               0.0/s
batches            0.0/s
user bytes    1.00 KiB/s
log bytes     2.00 KiB/s
file bytes    1.00 KiB/s
syncs               10/s
conflicts          0.0/s
cache hits        90.0 %
Background work
flushes            1.0/s
merges             3.0/s
folds              0.0/s
throttled         25.0 % of a second
stalls             1.0/s
pressure          61.2 %: commits are throttled
longest         1.5 ms of waiting for a flush
to flush     0 memtables
Memory
all           3.00 MiB
memtables     2.00 MiB, 4.00 MiB each at most
cache         1.00 MiB
hash indexes       0 B
open files           0
Readers
open                 2, the oldest for 61 s
pinned       7 garbage entries
snapshot at commit 900, for 61 s, 100 behind, pins 7 garbage entries
Slow commits
by cause: memory full 4, queue 1
    45 ms  commit 1,200: memory full 40 ms, queue 5.0 ms; waited for flush
    30 ms  commit 1,100: queue
Files
on disk       5.00 MiB
partitions           3
runs                 9, 2 unindexed
garbage        1 entry
Trees, by size
 4.88 KiB  about 2,000 pairs      large\\x01
     10 B  about 1 key            small";
    assert_eq!(text(&frame), expected);
}

#[test]
fn restarted_server_shows_no_rates() {
    let frame = Frame::new("h", &reading(&stats(3), &trees()), reading(&stats(1), &trees()));
    assert!(frame.change.is_none() && frame.latencies.iter().all(|latency| latency.kind != "get"));
    assert_eq!(to_json(&frame)["rates"], Value::Null);
}

#[test]
fn alarms_come_first() {
    let mut failing = stats(3);
    failing["engine"]["failure"] = json!("the disk failed");
    failing["damaged_partitions"] = json!(["partition 7"]);
    let frame = Frame::new("h", &reading(&stats(1), &trees()), reading(&failing, &trees()));
    assert!(text(&frame).starts_with("Alarms\nthe disk failed\npartition 7\nRates\n"));
}

#[test]
fn json_has_rates_and_names_what_is_not_known() {
    let report = to_json(&frame());
    assert_eq!(report["commits_per_second"], 500.0);
    assert_eq!(report["requests"][0], json!({"kind": "get", "per_second": 100.0, "p50_us": 10, "p99_us": 1000}));
    let slow = &report["slow_commits"][0];
    assert_eq!(
        (&slow["cause"], &slow["parts_us"]),
        (&json!("memory_full"), &json!({"queue": 5000, "memory_full": 40_000}))
    );
    assert_eq!(report["not_known"], json!([]));
    let read = |seconds| super::reading::Reading { inside: None, ..reading(&stats(seconds), &trees()) };
    let report = to_json(&Frame::new("db", &read(1), read(2)));
    assert_eq!(
        (&report["memory"], &report["readers"], &report["requests"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(report["not_known"].as_array().map(Vec::len), Some(7));
}

/// Returns the lines of a drawn screen, without spaces at the end.
fn drawn(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|to| draw(screen, to)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

#[test]
fn screen_of_80_by_24_shows_one_column() {
    let screen = Screen { frame: Some(frame()), history: [1, 5, 9].into(), ..Screen::default() };
    let lines = drawn(&screen, 80, 24);
    assert_eq!(lines[0], "http://h:1  commit 2,500  5.00 MiB  up 2.0 h");
    assert!(lines[1..4].concat().contains('█'), "{lines:?}");
    assert_eq!(lines[4], "Rates");
    assert_eq!(lines[22], "longest         1.5 ms of waiting for a flush");
    assert_eq!(lines[23], "q quits, p pauses, up and down scroll");
}

#[test]
fn wide_screen_shows_all_sections_in_two_columns() {
    let screen = Screen { frame: Some(frame()), ..Screen::default() };
    let lines = drawn(&screen, 140, 40);
    for title in ["Rates", "Background work", "Memory", "Readers", "Slow commits", "Files", "Trees"] {
        let line = lines.iter().find(|line| line.contains(title)).unwrap_or_else(|| panic!("{title}: {lines:#?}"));
        let place = line.find(title).unwrap();
        assert_eq!(place == 0, ["Rates", "Background work"].contains(&title), "{title}: {line}");
    }
}

/// The screen cut alarms at the end of the first column, before their reason.
#[test]
fn alarms_are_wrapped_to_the_width_of_the_screen() {
    let detail = "the disk that holds /var/lib/databases/music.db is full: free some space";
    let mut now = stats(3);
    now["server"]["last_failure"] = json!({"time_us": 2_000_000, "status": 507, "detail": detail});
    let frame = Frame::new("t", &reading(&stats(1), &Value::Null), reading(&now, &Value::Null));
    let screen = Screen { frame: Some(frame), ..Screen::default() };
    assert_eq!(drawn(&screen, 120, 40)[5], format!("a request failed 1.0 s ago: {detail}"));
    let lines = drawn(&screen, 50, 40);
    let [first, second] =
        ["a request failed 1.0 s ago: the disk that holds", "  /var/lib/databases/music.db is full: free some"];
    assert_eq!(lines[4..8], ["Alarms", first, second, "  space"]);
    assert_eq!(lines[8], "Rates");
    // They take more than half of a small screen, and scroll.
    let lines = drawn(&Screen { scroll: 4, ..screen }, 30, 10);
    assert_eq!(lines[1..3], ["  is full: free some space", "Rates"]);
}

#[test]
fn small_screen_shows_the_first_lines_and_scrolls_to_the_last() {
    let mut screen = Screen { frame: Some(frame()), ..Screen::default() };
    assert_eq!(
        drawn(&screen, 20, 5),
        ["http://h:1  commit 2", "Rates", "commits            5", "gets               1", "q quits, p pauses, u"]
    );
    screen.scroll = 1000;
    assert_eq!(drawn(&screen, 20, 5)[3], "     10 B  about 1 k");
    screen.scroll = 1;
    assert_eq!(drawn(&screen, 20, 5)[1], "commits            5");
}

#[test]
fn any_size_is_drawn() {
    let full = Screen { frame: Some(frame()), history: (0..500).collect(), ..Screen::default() };
    let empty = Screen::default();
    for (width, height) in [(1, 1), (1, 50), (300, 1), (20, 2), (300, 3), (99, 16), (100, 17), (250, 120)] {
        assert_eq!(drawn(&full, width, height).len(), usize::from(height));
        drawn(&empty, width, height);
    }
}

#[test]
fn footer_shows_error_and_pause() {
    let mut screen = Screen { is_paused: true, ..Screen::default() };
    assert_eq!(drawn(&screen, 40, 5)[4], "paused: p continues, q quits");
    assert_eq!(drawn(&screen, 40, 5)[0], "reading...");
    screen.error = Some("cannot connect".to_owned());
    assert_eq!(drawn(&screen, 40, 5)[4], "cannot connect");
}

/// A view of 10,000 trees kept the server busy: it asked for the sizes of all with each frame.
#[test]
fn sizes_of_trees_are_read_once_for_many_frames() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let path = line.split(' ').nth(1).unwrap().to_owned();
            let many: Vec<Value> = (0..250).map(|n| json!({"name": format!("t{n}"), "bytes_estimate": n})).collect();
            let body = if path == "/trees" { json!({"trees": many}) } else { stats(1) }.to_string();
            answers.lock().unwrap().push(path);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let address = Address::parse(&url).unwrap();
    let server = Server::new(Client { address, token: "token".to_owned(), tls: None, is_insecure: false });
    assert!(server.read_first().unwrap().trees.is_empty());
    for _ in 0..5 {
        let reading = server.read().unwrap();
        assert_eq!((reading.trees.len(), reading.trees_left_out), (100, 150));
        assert_eq!((reading.trees[0].name.as_str(), reading.trees[99].bytes), ("t249", 150));
    }
    let asked = asked.lock().unwrap();
    assert_eq!((asked[0].as_str(), asked[2].as_str(), asked.len()), ("/stats", "/trees", 7));
}

#[test]
fn age_has_two_or_three_digits() {
    let shown =
        [0, 999, 1_500, 45_000, 1_200_000, 61_000_000, 150_000_000, 7_300_000_000, 200_000_000_000].map(show_age);
    assert_eq!(shown, ["0 us", "999 us", "1.5 ms", "45 ms", "1.2 s", "61 s", "2.5 min", "2.0 h", "2.3 days"]);
}

#[test]
fn full_disk_and_latest_failure_are_alarms() {
    let mut full = stats(100);
    full["engine"]["disk_reserve_bytes"] = json!(1 << 20);
    full["engine"]["disk_reserve_bytes_whole"] = json!(4 << 20);
    full["server"]["last_failure"] = json!({"time_us": 88_000_000, "status": 507, "detail": "free some space"});
    let alarms = reading(&full, &Value::Null).alarms;
    assert!(
        alarms[0].starts_with("the disk is full") && alarms[0].contains("1.00 MiB of the reserve of 4.00 MiB"),
        "{alarms:?}"
    );
    assert_eq!(alarms[1..], ["a request failed 12 s ago: free some space"]);
    full["engine"]["disk_reserve_bytes"] = json!(4 << 20);
    full["server"]["last_failure"]["time_us"] = json!(40_000_000);
    assert_eq!(reading(&full, &Value::Null).alarms, [""; 0]);
}
