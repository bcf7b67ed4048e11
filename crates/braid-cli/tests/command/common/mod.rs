//! Shared helpers: run the command, and create inputs.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

pub const BRAID: &str = env!("CARGO_BIN_EXE_braid");

/// Starts a process again that Wine ends with `ERROR_INTERNAL_ERROR` before the program starts.
pub fn spawn(command: &mut Command) -> Child {
    const ERROR_INTERNAL_ERROR: i32 = 1359;
    for _ in 0..3 {
        match command.spawn() {
            Err(e) if cfg!(windows) && e.raw_os_error() == Some(ERROR_INTERNAL_ERROR) => {
                eprintln!("started again: {e}")
            }
            other => return other.unwrap_or_else(|e| panic!("start {command:?}: {e}")),
        }
    }
    panic!("{command:?} cannot be started")
}

#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    pub fn new() -> Workplace {
        Workplace { folder: tempfile::tempdir().unwrap() }
    }

    pub fn with_database() -> Workplace {
        let place = Workplace::new();
        place.ok("create db");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub fn run(&self, arguments: &str) -> Outcome {
        self.run_with(&arguments.split(' ').collect::<Vec<_>>(), b"")
    }

    pub fn run_with(&self, arguments: &[&str], stdin: &[u8]) -> Outcome {
        let mut command = Command::new(BRAID);
        command.args(arguments).current_dir(self.folder.path()).env_remove("BRAID_DB").env_remove("BRAID_TOKEN");
        let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut input = child.stdin.take().unwrap();
        let stdin = stdin.to_vec();
        let writer = std::thread::spawn(move || drop(input.write_all(&stdin)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn ok(&self, arguments: &str) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, 0, "{arguments}: {outcome:?}");
        outcome.stdout
    }

    pub fn fails(&self, code: i32, arguments: &str) -> String {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, code, "{arguments}: {outcome:?}");
        outcome.stderr
    }
}

pub fn fixture_archive() -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/freedb");
    let mut files = Vec::new();
    for folder in fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        files.extend(fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.sort();
    let mut builder = tar::Builder::new(Vec::new());
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, file.strip_prefix(&root).unwrap(), bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn compress(ending: &str, bytes: &[u8]) -> Vec<u8> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut out = Vec::new();
    for part in [first, second] {
        match ending {
            "gz" => {
                let mut encoder = flate2::write::GzEncoder::new(&mut out, flate2::Compression::fast());
                encoder.write_all(part).unwrap();
                encoder.finish().unwrap();
            }
            "bz2" => {
                let mut encoder = bzip2::write::BzEncoder::new(&mut out, bzip2::Compression::fast());
                encoder.write_all(part).unwrap();
                encoder.finish().unwrap();
            }
            "zst" => out.extend(zstd::encode_all(part, 1).unwrap()),
            _ => out.extend_from_slice(part),
        }
    }
    out
}
