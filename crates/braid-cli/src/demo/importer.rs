//! The importer as a child process, and its end.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};

use super::show::ALBUMS;
use crate::{
    bar::Bar,
    exit::{SYSTEM, failure},
    import::Acknowledgement,
};

/// How to run an importer.
pub struct Importer<'a> {
    /// The database.
    pub db: &'a Path,
    /// Its input.
    pub dump: &'a Path,
    /// Where it writes what it has to say to people.
    pub log: &'a Path,
    /// Its memory.
    pub memory: u64,
    /// How many records there are, for the bar.
    pub discs: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct ImportRun {
    /// The process.
    pub process: u32,
    /// Whether it was killed.
    pub killed: bool,
    /// The last of what it said was durable.
    pub acknowledged: Acknowledgement,
    /// How long it ran.
    pub seconds: f64,
}

impl Importer<'_> {
    /// Runs an importer, and kills it once so many records are acknowledged.
    pub fn run(&self, resume: bool, kill_at: Option<u64>) -> Result<ImportRun> {
        let began = Instant::now();
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let log = File::create(self.log).with_context(|| format!("cannot create {}", self.log.display()))?;
        let mut command = Command::new(program);
        command.arg("import").arg(self.db).arg(self.dump);
        command.args(["--tree", ALBUMS, "--format", "freedb", "--acknowledge"]);
        command.arg("--memory").arg(self.memory.to_string());
        command.arg(if resume { "--resume" } else { "--create" });
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("cannot start the importer")?;
        let process = child.id();
        let output = child.stdout.take().context("the importer has no output")?;
        let bar = Bar::count(Some(self.discs), if resume { "resume" } else { "import" });
        let mut run = ImportRun { process, killed: false, acknowledged: Acknowledgement::default(), seconds: 0.0 };
        let mut lines = BufReader::new(output);
        let mut line = String::new();
        // What lies in the pipe when the importer is killed was acknowledged too; a line cut off by its death was not.
        while lines.read_line(&mut line).is_ok_and(|count| count > 0 && line.ends_with('\n')) {
            if let Some(json) = line.trim_end().strip_prefix("ack ") {
                run.acknowledged = serde_json::from_str(json).context("the importer says what makes no sense")?;
                bar.set_count(run.acknowledged.next_number);
            }
            if !run.killed && kill_at.is_some_and(|at| run.acknowledged.next_number >= at) {
                child.kill().context("cannot kill the importer")?;
                run.killed = true;
            }
            line.clear();
        }
        let status = child.wait().context("cannot wait for the importer")?;
        bar.finish();
        run.killed &= !status.success();
        run.seconds = began.elapsed().as_secs_f64();
        if !run.killed && !status.success() {
            let said = fs::read_to_string(self.log).unwrap_or_default();
            return Err(failure(SYSTEM, format!("the importer has failed ({status}): {}", said.trim())));
        }
        Ok(run)
    }
}
