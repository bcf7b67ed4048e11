//! The machine and the versions.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fs, path::Path, process::Command};

const LOCK: &str = include_str!("../Cargo.lock");

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_mib: u64,
    pub kernel: String,
    pub filesystem: String,
    pub rustc: String,
    pub c_compiler: String,
    /// Commit of the source; `-dirty` means changed files.
    pub commit: String,
    pub versions: BTreeMap<String, String>,
}

impl Machine {
    /// `folder` will hold the databases.
    pub fn here(folder: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
            line.unwrap_or_default().trim_start_matches([' ', '\t', ':']).trim().to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let versions = crate::engines::all();
        Machine {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, |cores| cores.get()),
            memory_mib: kib >> 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            filesystem: filesystem_of(folder, &read("/proc/mounts")),
            rustc: env!("BENCH_RUSTC").to_owned(),
            c_compiler: first_line("c++", &["--version"]),
            commit: first_line("git", &["-C", root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]),
            versions: versions
                .iter()
                .map(|engine| {
                    (engine.name.to_owned(), format!("{} {}", engine.package, package_version(engine.package)))
                })
                .collect(),
        }
    }
}

/// 0 if unknown.
pub fn available_bytes() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn filesystem_of(folder: &Path, mounts: &str) -> String {
    let folder = fs::canonicalize(folder).unwrap_or_default();
    let mut best = (0, String::new());
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        if let (Some(point), Some(kind), Some(options)) = (words.next(), words.next(), words.next())
            && folder.starts_with(point)
            && point.len() > best.0
        {
            best = (point.len(), format!("{kind} ({options})"));
        }
    }
    best.1
}

/// Returns a package's version from Cargo.lock.
pub fn package_version(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != name).skip(1);
    lines.next().and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"')).unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_lookups_find_innermost_mount_and_locked_version() {
        let mounts = "/dev/a / ext4 rw,noatime 0 0\ntmpfs /tmp/nothere tmpfs rw 0 0\n";
        assert_eq!(filesystem_of(Path::new("/"), mounts), "ext4 (rw,noatime)");
        assert_eq!(package_version("sled"), "0.34.7");
        assert_eq!(package_version("no such package"), "?");
    }
}
