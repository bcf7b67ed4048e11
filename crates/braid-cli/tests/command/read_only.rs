//! Commands that only read, on databases that cannot be written.

use crate::common;

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use common::{BRAID, Workplace};

const READING: [&str; 8] = [
    "get db t k",
    "scan db t",
    "trees db",
    "stats db",
    "verify db",
    "export db t",
    "export db i",
    "find db t --by i --eq red",
];

fn workplace_with_database() -> Workplace {
    let place = Workplace::with_database();
    place.write("in.jsonl", "{\"id\":\"k\",\"colour\":\"red\"}\n");
    place.ok("import db in.jsonl --tree t --key id --index i=colour");
    place
}

/// Opening for writing creates a log segment, for which a full disk has no room.
#[test]
fn database_on_full_disk_is_readable() {
    let place = workplace_with_database();
    let commands: Vec<String> = READING.iter().map(|command| format!("{BRAID} {command} || exit 1\n")).collect();
    let inspect = format!("for file in db/0*.wal db/CURRENT; do {BRAID} inspect $file || exit 1; done");
    let script = format!(
        "mount -t tmpfs -o size=64m none full || {{ echo no-mount; exit 0; }}\n\
         cp -r db full/ && cd full || exit 1\n\
         cat /dev/zero > fill 2> /dev/null\n\
         echo > more 2> /dev/null && exit 1\n\
         {}{inspect}",
        commands.concat()
    );
    fs::create_dir(place.path("full")).unwrap();
    let mut unshare = Command::new("unshare");
    let unshare = unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let Ok(output) = unshare.current_dir(place.path("")).output() else { return eprintln!("skipped: no unshare") };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if stdout.contains("no-mount") || stderr.contains("unshare:") {
        return eprintln!("skipped: no file system can be mounted here");
    }
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("\"colour\":\"red\"") && stdout.contains("sound"), "{stdout}");
}

#[test]
fn database_of_other_user_is_readable() {
    let place = workplace_with_database();
    let Some(stranger) = Stranger::new(&place) else { return eprintln!("skipped: nobody else can be") };
    for command in READING {
        let output = stranger.run(command);
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        assert_eq!(stderr, "", "{command}");
    }
    let output = stranger.run("put db t k v");
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(text(&output.stderr).matches("denied").count(), 1, "{output:?}");
    assert!(stranger.run("get db t k --read-only").status.success());
}

#[test]
fn database_open_in_other_process_is_readable() {
    let place = workplace_with_database();
    let lock = fs::File::open(place.path("db/LOCK")).unwrap();
    lock.lock().unwrap();
    for command in READING {
        let output = Command::new(BRAID).args(command.split(' ')).current_dir(place.path("")).output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{command}: {stderr}");
        assert_eq!(stderr, "", "{command}");
    }
    assert!(place.fails(4, "put db t k v").contains("is in use by"));
    drop(lock);
    let Some(stranger) = Stranger::new(&place) else { return eprintln!("skipped: nobody else can be") };
    fs::set_permissions(place.path("db/LOCK"), fs::Permissions::from_mode(0o000)).unwrap();
    assert!(stranger.run("get db t k").status.success());
    fs::set_permissions(place.path("db"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(place.path("db/LOCK")).unwrap();
    fs::set_permissions(place.path("db"), fs::Permissions::from_mode(0o555)).unwrap();
    assert!(stranger.run("get db t k").status.success());
}

/// Each `stats` started a log segment, which pushed segments out of the retained log and the
/// archive.
#[test]
fn read_commands_change_no_file() {
    let place = workplace_with_database();
    place.ok("watch db --keep 8M");
    place.ok("put db t l v --keys text");
    let files = || {
        let entries = fs::read_dir(place.path("db")).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> = entries
            .map(|entry| {
                (entry.file_name(), entry.metadata().unwrap().modified().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    };
    let before = files();
    for command in READING.iter().chain(&["watch db", "dump db db.dump", "stats db"]) {
        place.ok(command);
        assert!(files() == before, "{command} has written");
    }
}

/// A user with read but no write access to a workplace.
struct Stranger {
    braid: PathBuf,
    folder: PathBuf,
    is_root: bool,
}

const NOBODY: u32 = 65534;

impl Stranger {
    fn new(place: &Workplace) -> Option<Stranger> {
        let folder = place.path("");
        let is_root = fs::metadata(&folder).unwrap().uid() == 0;
        let braid = place.path("braid");
        fs::copy(BRAID, &braid).unwrap();
        for (path, mode) in [(&folder, 0o755), (&place.path("db"), 0o555)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        for entry in fs::read_dir(place.path("db")).unwrap() {
            fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(0o444)).unwrap();
        }
        let stranger = Stranger { braid, folder, is_root };
        stranger
            .command("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
            .then_some(stranger)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.braid);
        command.args(arguments.split(' ')).current_dir(&self.folder).stdin(Stdio::null());
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.folder.join("db"), fs::Permissions::from_mode(0o755));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
