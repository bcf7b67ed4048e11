//! Child processes that write numbered steps and are killed.

use super::full_text;
use braiddb::Db;
use braiddb_sim::{model::Contents, numbered::TREES};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
};

pub fn times(full: f64) -> u64 {
    let factor = std::env::var("BRAIDDB_VOLUME").ok().map_or(1.0, |text| text.parse().expect("a factor as volume"));
    ((full * factor) as u64).max(1)
}

pub fn start(dir: &Path, seed: u64, firsts: impl IntoIterator<Item = u64>) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kill_child"));
    command.arg(dir).arg(seed.to_string()).args(firsts.into_iter().map(|first| first.to_string()));
    spawn(&mut command)
}

/// Retries a child that Wine on a busy machine ends with `ERROR_INTERNAL_ERROR` before it begins.
pub fn spawn(command: &mut Command) -> Child {
    const ERROR_INTERNAL_ERROR: i32 = 1359;
    for _ in 0..3 {
        match command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn() {
            Err(e) if cfg!(windows) && e.raw_os_error() == Some(ERROR_INTERNAL_ERROR) => {
                eprintln!("started again: {e}")
            }
            other => return other.unwrap_or_else(|e| panic!("start {command:?}: {e}")),
        }
    }
    panic!("{command:?} cannot be started")
}

pub fn was_killed(status: ExitStatus) -> bool {
    #[cfg(unix)]
    const SIGKILL: i32 = 9;
    #[cfg(unix)]
    return std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL);
    #[cfg(not(unix))]
    return status.code() == Some(1);
}

pub fn lines(stdout: ChildStdout) -> impl Iterator<Item = String> {
    BufReader::new(stdout).lines().map(|line| line.expect("a line of the child"))
}

pub fn read_all(db: &Db) -> Contents {
    let mut contents = Contents::new();
    for (number, name) in TREES.iter().enumerate() {
        let tree = match db.open_tree(name) {
            Err(e) if e.is_not_found() => continue,
            other => other.unwrap_or_else(|e| panic!("open a tree: {}", full_text(&e))),
        };
        let forwards: Vec<_> = tree.iter().map(|row| row.unwrap_or_else(|e| panic!("{}", full_text(&e)))).collect();
        let mut backwards: Vec<_> =
            tree.iter().rev().map(|row| row.unwrap_or_else(|e| panic!("{}", full_text(&e)))).collect();
        backwards.reverse();
        assert!(
            forwards.iter().map(|(k, v)| (&**k, &**v)).eq(backwards.iter().map(|(k, v)| (&**k, &**v))),
            "{name}: forwards and backwards differ"
        );
        for (key, value) in forwards.iter().step_by(7) {
            assert_eq!(tree.get(key).expect("get").as_deref(), Some(&**value), "{name}: get");
        }
        contents.extend(forwards.into_iter().map(|(key, value)| ((number as u32, key.to_vec()), value.to_vec())));
    }
    contents
}
