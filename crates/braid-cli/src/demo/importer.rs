//! Runs the importer as a child process, and kills it.

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

pub struct Importer<'a> {
    pub db: &'a Path,
    pub dump: &'a Path,
    pub log: &'a Path,
    pub memory: u64,
    pub discs: u64,
}

#[derive(Clone, Debug)]
pub struct ImportRun {
    pub process: u32,
    pub killed: bool,
    pub acknowledged: Acknowledgement,
    pub seconds: f64,
}

impl Importer<'_> {
    pub fn run(&self, resume: bool, kill_at: Option<u64>) -> Result<ImportRun> {
        let began = Instant::now();
        let program = std::env::current_exe().context("cannot find the path of this program")?;
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
        // Complete lines in the pipe were acknowledged too.
        while lines.read_line(&mut line).is_ok_and(|count| count > 0 && line.ends_with('\n')) {
            if let Some(json) = line.trim_end().strip_prefix("ack ") {
                run.acknowledged = serde_json::from_str(json).context("cannot parse the importer's output")?;
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
            return Err(failure(SYSTEM, format!("the importer failed ({status}): {}", said.trim())));
        }
        Ok(run)
    }
}
