//! A kernel that denies io_uring, from the start or later. The test runs itself again under a
//! seccomp filter.

#![cfg(target_os = "linux")]

use braiddb::{Db, platform::BatchReads};
use std::{path::Path, process::Command};

/// Environment of the child: the directory of the database, and the denied calls.
const DIRECTORY: &str = "BRAIDDB_TEST_DENIED_DIRECTORY";
const WHAT: &str = "BRAIDDB_TEST_DENIED";

const ROWS: u32 = 20_000;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// Denies a range of system calls to this thread and its later threads.
fn deny(calls: std::ops::RangeInclusive<libc::c_long>) {
    let number = |call: libc::c_long| u32::try_from(call).unwrap();
    let statement =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let mut program = [
        // The number of the call is the first word of the filter's input.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, number(*calls.start()), 0, 2),
        statement(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, number(*calls.end()), 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap(), 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: 5, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the calls, and the kernel copies it.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn open(dir: &Path) -> Db {
    // Direct I/O, so that blocks are read in batches.
    Db::builder().direct_io(true).memory(16 << 20).open(dir).unwrap()
}

fn read_all(db: &Db) {
    let tree = db.tree("t").unwrap();
    for first in 0..100 {
        let keys: Vec<_> = (first..ROWS).step_by(100).map(key).collect();
        for (key, value) in keys.iter().zip(tree.multi_get(&keys).unwrap()) {
            assert_eq!(value.unwrap()[..4], *key);
        }
    }
}

fn child(dir: &Path, what: &str) {
    match what {
        "setup" => deny(libc::SYS_io_uring_setup..=libc::SYS_io_uring_register),
        "enter" => deny(libc::SYS_io_uring_enter..=libc::SYS_io_uring_enter),
        "late" => {
            let db = open(dir);
            read_all(&db);
            let stats = db.stats();
            if let Some(because) = stats.io_uring_refused {
                return println!("skipped: io_uring was refused before: {because}");
            }
            assert_eq!(stats.batch_reads, BatchReads::IoUring);
            drop(db);
            deny(libc::SYS_io_uring_setup..=libc::SYS_io_uring_register);
        }
        what => panic!("{what}"),
    }
    for _ in 0..2 {
        let db = open(dir);
        read_all(&db);
        let stats = db.stats();
        assert_eq!(stats.batch_reads, BatchReads::Threads);
        println!("refused: {}", stats.io_uring_refused.unwrap());
    }
}

#[test]
fn reads_with_io_uring_denied_are_right() {
    if let (Some(dir), Ok(what)) = (std::env::var_os(DIRECTORY), std::env::var(WHAT)) {
        return child(Path::new(&dir), &what);
    }
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let tree = db.tree("t").unwrap();
    for n in 0..ROWS {
        tree.put(key(n), [&key(n)[..], &[7; 200]].concat()).unwrap();
    }
    db.compact().unwrap();
    drop((tree, db));
    for (what, reason) in [("setup", "io_uring_setup"), ("enter", "a read by io_uring"), ("late", "io_uring_enter")] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "io_uring_denied::reads_with_io_uring_denied_are_right",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(DIRECTORY, dir.path())
            .env(WHAT, what)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{what}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
        if text.contains("skipped") {
            println!("{what}: {text}");
            continue;
        }
        let reported: Vec<_> = text.lines().filter(|line| line.contains("refused: ")).collect();
        assert_eq!(reported.len(), 2, "{what}: {text}");
        // A kernel without io_uring fails at the first call.
        let fits = reported.iter().all(|line| line.contains(reason) || line.contains("io_uring_setup"));
        assert!(fits && reported[0].ends_with(reported[1].trim_start()), "{what}: {reported:?}");
    }
}
