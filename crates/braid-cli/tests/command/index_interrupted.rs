//! An index is marked as unfinished while it is built.

use crate::common;

use std::{
    fmt::Write as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{BRAID, Workplace, spawn};

const WAIT_MAX: Duration = Duration::from_secs(120);

/// A killed `index add` left an index that `find` took for complete, and missed records.
#[test]
fn find_by_unfinished_index_is_refused_until_it_is_finished() {
    let place = Workplace::with_database();
    let mut lines = String::new();
    for number in 0..30_000 {
        writeln!(lines, "{{\"id\":\"{number:06}\",\"n\":\"{number:06}\",\"m\":\"{number:06}\"}}").unwrap();
    }
    place.write("in.jsonl", lines);
    place.ok("import db in.jsonl --tree t --key id");
    let killed = (0..5).any(|_| kill_while_adding(&place));
    assert!(killed, "the command was faster than five kills");
    assert!(place.ok("index list db").contains("unfinished"));
    let said = place.fails(2, "find db t --by by_n --eq 029999");
    assert!(said.contains("is unfinished") && said.contains("braid index add DB t by_n=n"), "{said}");
    place.ok("index add db t by_m=m");
    place.fails(2, "find db t --by by_n --eq 029999");
    assert!(place.ok("find db t --by by_m --eq 029999").contains("029999"));
    place.ok("index add db t by_n=n");
    assert!(!place.ok("index list db").contains("unfinished"));
    assert!(place.ok("find db t --by by_n --eq 029999").contains("029999"));
}

/// Returns false if the command had ended before the kill; the index is then dropped.
fn kill_while_adding(place: &Workplace) -> bool {
    let mut command = Command::new(BRAID);
    command.args(["index", "add", "db", "t", "by_n=n"]).current_dir(place.path(""));
    let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    let begun = Instant::now();
    while !place.run("index list db --read-only").stdout.contains("by_n") {
        assert!(begun.elapsed() < WAIT_MAX, "the index was not declared");
    }
    child.kill().unwrap();
    let _ = child.wait().unwrap();
    let is_unfinished = place.run("index rebuild db t by_n --check").code == 1;
    if !is_unfinished {
        place.ok("index drop db t by_n");
    }
    is_unfinished
}
