//! `braid serve`: start, kill, signals, and the sessions of docs/http.md.

use crate::common;

use common::{BRAID, Workplace};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

pub const TOKEN: &str = "token-of-the-tests";

pub struct Served {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub address: SocketAddr,
}

impl Served {
    pub fn start(place: &Workplace, arguments: &str, token: Option<&str>) -> Served {
        let mut command = Command::new(BRAID);
        command.arg("serve").args(arguments.split(' ')).args(["--listen", "127.0.0.1:0"]);
        command.current_dir(place.path("")).env_remove("BRAID_TOKEN");
        if let Some(token) = token {
            command.env("BRAID_TOKEN", token);
        }
        let mut child = common::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.trim_end().rsplit_once("://").and_then(|(_, url)| url.strip_suffix("/trees"));
        let address = address.unwrap_or_else(|| panic!("no address: {line}")).parse().unwrap();
        Served { child, stderr, address }
    }

    pub fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
        try_ask(self.address, method, path, token, body).unwrap()
    }
}

/// Returns `None` if the server ends meanwhile.
fn try_ask(address: SocketAddr, method: &str, path: &str, token: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

#[cfg(unix)]
impl Served {
    /// Stops the server in order.
    fn end(mut self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn with_tree() -> Workplace {
    let place = Workplace::with_database();
    place.ok("put db t first v");
    place
}

/// A kill between requests: each acknowledged write is there, and the service starts again.
#[test]
fn acknowledged_writes_survive_a_kill() {
    let place = with_tree();
    for round in 0..3 {
        let mut served = Served::start(&place, "db --write", Some(TOKEN));
        for number in 0..20 {
            let path = format!("/trees/t/{round}-{number}");
            assert_eq!(served.ask("PUT", &path, TOKEN, "value").0, 201);
        }
        served.child.kill().unwrap();
        served.child.wait().unwrap();
    }
    assert_eq!(place.ok("count db t"), "61\n");
    assert_eq!(place.ok("get db t 2-19"), "value\n");
}

#[test]
fn generated_token_is_printed_with_the_page_and_needed() {
    let place = with_tree();
    let mut served = Served::start(&place, "db", None);
    let mut line = String::new();
    served.stderr.read_line(&mut line).unwrap();
    let token = line.trim_end().strip_prefix("braid: token ").unwrap().to_owned();
    assert_eq!(served.ask("GET", "/trees/t/first", &token, ""), (200, "v".to_owned()));
    line.clear();
    served.stderr.read_line(&mut line).unwrap();
    assert_eq!(line, format!("braid: page http://{}/#token={token}\n", served.address));
    assert!(served.ask("GET", "/", "wrong", "").1.contains("<title>BraidDB</title>"));
    assert!(served.ask("GET", "/stats", &token, "").1.contains("\"name\":\"db\""));
    assert_eq!(served.ask("GET", "/trees/t/first", "wrong", "").0, 401);
    assert_eq!(served.ask("PUT", "/trees/t/first", &token, "w").0, 403);
}

/// Reads commits of the change stream until `is_enough`, or until the server is killed. Adds the keys
/// of whole commits, and returns the last position.
fn follow(
    served: &Served,
    mut position: String,
    keys: &mut Vec<String>,
    is_enough: impl Fn(&[String]) -> bool,
) -> String {
    let mut stream = TcpStream::connect(served.address).unwrap();
    // The body of version 1.0 has no chunks and ends with the connection.
    let head = "GET /changes?tree=t HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer";
    write!(stream, "{head} {TOKEN}\r\nLast-Event-ID: {position}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.next().unwrap().contains(" 200 "));
    let (mut unfinished, mut event) = (Vec::new(), String::new());
    for line in lines.skip_while(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some(("event", name)) => event = name.to_owned(),
            Some(("id", id)) => position = id.to_owned(),
            Some(("data", data)) if event == "change" => {
                unfinished.push(data.split_once("\"key\":\"").unwrap().1.split('"').next().unwrap().to_owned());
            }
            Some(("data", data)) => {
                assert!(event == "commit" && data.ends_with("\"changes\":3}"), "{event} {data}");
                keys.append(&mut unfinished);
            }
            _ if is_enough(keys) => break,
            _ => {}
        }
    }
    position
}

/// Each change exactly once and in order, across kills of the server in the middle of commits.
#[test]
fn change_stream_resumes_after_kills() {
    let place = with_tree();
    let (mut position, mut keys) = (String::new(), Vec::new());
    let mut numbers = 0..;
    for round in 1..=4 {
        let mut served = Served::start(&place, "db --write --keep 64M", Some(TOKEN));
        if round == 1 {
            let version = served.ask("POST", "/batch", TOKEN, "[]").1;
            position = version.split('"').nth(3).unwrap().to_owned();
        }
        let address = served.address;
        let first = numbers.start;
        let writer = std::thread::spawn(move || {
            let mut written = first;
            for number in first..first + 60 {
                let put = |part: u32| format!(r#"{{"op":"put","tree":"t","key":"{number:05} {part}","value":""}}"#);
                let body = format!("[{},{},{}]", put(0), put(1), put(2));
                if try_ask(address, "POST", "/batch", TOKEN, &body).is_none() {
                    break;
                }
                written = number + 1;
            }
            written
        });
        if round < 4 {
            let wanted = keys.len() + 60;
            position = follow(&served, position, &mut keys, |keys| keys.len() >= wanted);
            served.child.kill().unwrap();
            served.child.wait().unwrap();
            // The commit that got no answer may be there.
            numbers.start = writer.join().unwrap() + 1;
        } else {
            let last = format!("{:05} 2", writer.join().unwrap() - 1);
            follow(&served, position.clone(), &mut keys, |keys| keys.last() == Some(&last));
        }
    }
    let scanned = place.ok("scan db t");
    let there: Vec<&str> =
        scanned.lines().filter_map(|line| line.split('\t').next()).filter(|key| *key != "first").collect();
    assert!(there.len() >= 4 * 60 && keys == there, "{keys:?}\n{there:?}");
}

/// Without `--write` it reads beside the owner, and follows it; with it, the lock is in the way.
#[test]
fn served_for_reading_beside_its_owner() {
    let place = with_tree();
    let owner = Served::start(&place, "db --write", Some(TOKEN));
    let reader = Served::start(&place, "db", Some(TOKEN));
    assert_eq!(owner.ask("PUT", "/trees/t/second", TOKEN, "w").0, 201);
    let began = Instant::now();
    while reader.ask("GET", "/trees/t/second", TOKEN, "").0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(60), "the reader does not follow its owner");
    }
    let refused = place.fails(4, "serve db --write --listen 127.0.0.1:0");
    assert!(refused.contains("--write") && refused.contains("open"), "{refused}");
}

#[test]
fn unusable_arguments_are_refused() {
    let place = with_tree();
    assert!(place.fails(2, "serve db --listen 0.0.0.0:0").contains("loopback"));
    assert!(place.fails(2, "serve db --listen 127.0.0.1:0 --token short").contains("16"));
    place.fails(1, "serve absent");
    for address in ["localhost", "8080", "localhost:70000"] {
        assert!(place.fails(2, &format!("serve db --listen {address}")).contains("such as 127.0.0.1:8080"));
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let why = place.fails(4, &format!("serve db --listen localhost:{}", taken.local_addr().unwrap().port()));
    assert!(why.contains("another program listens at 127.0.0.1:") && why.contains("--listen"), "{why}");
}

/// Returns the path of a certificate or a key that is made for tests.
fn of_tests(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../braid-server/tests/fixtures/tls").join(name).display().to_string()
}

#[test]
fn unusable_certificates_are_refused() {
    let place = with_tree();
    let serve = |options: &str| format!("serve db --listen 127.0.0.1:0 {options}");
    let (certificate, key) = (of_tests("server.pem"), of_tests("server.key"));
    place.fails(2, &serve(&format!("--tls-cert {certificate}")));
    place.fails(2, &serve(&format!("--tls-key {key}")));
    let refused = place.fails(4, &serve(&format!("--tls-cert absent.pem --tls-key {key}")));
    assert!(refused.contains("cannot read absent.pem"), "{refused}");
    let refused = place.fails(2, &serve(&format!("--tls-cert {certificate} --tls-key {}", of_tests("other.key"))));
    assert!(refused.contains("does not belong") && refused.contains("other.key"), "{refused}");
    let refused = place.fails(2, &serve(&format!("--tls-cert {0}.pem --tls-key {0}.key", of_tests("expired"))));
    assert!(refused.contains("expired") && refused.contains("renew"), "{refused}");
}

#[cfg(unix)]
#[test]
fn access_log_has_a_line_per_request() {
    let place = with_tree();
    for (options, has_keys) in [("", false), (" --log-keys", true)] {
        let served = Served::start(&place, &format!("db --write --log access.log{options}"), Some(TOKEN));
        served.ask("GET", "/trees/t/first", TOKEN, "");
        served.ask("DELETE", "/trees/t/first?value=secret", TOKEN, "");
        served.ask("PUT", "/trees/t/second", "wrong-token-of-a-client", "secret value");
        served.end();
        let log = fs::read_to_string(place.path("access.log")).unwrap();
        assert!(!log.contains("token") && !log.contains("secret"), "{log}");
        let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // The second server appends.
        let [get, delete, put] = &lines[lines.len() - 3..] else { panic!("{log}") };
        assert_eq!(lines.len(), if has_keys { 6 } else { 3 });
        assert_eq!(
            (&get["method"], &get["route"], &get["status"]),
            (&"GET".into(), &"/trees/{tree}/{key}".into(), &200.into())
        );
        assert_eq!((&put["method"], &put["status"], &get["bytes"]), (&"PUT".into(), &401.into(), &1.into()));
        assert!(get["micros"].is_u64() && get.get("cut").is_none());
        assert!(get["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
        assert!(get["time"].as_str().unwrap().starts_with("20") && get["time"].as_str().unwrap().ends_with('Z'));
        assert_eq!(get["target"].as_str(), has_keys.then_some("/trees/t/first"));
        assert_eq!(delete["target"].as_str(), has_keys.then_some("/trees/t/first?value=-"));
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(place.path("access.log")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "addresses and keys are not for others");
    let refused = place.fails(4, "serve db --listen 127.0.0.1:0 --log absent/access.log");
    assert!(refused.contains("absent/access.log"), "{refused}");
    place.fails(2, "serve db --listen 127.0.0.1:0 --log-keys");
}

/// The server waited for the reader of its log before it closed the database, without limit.
#[cfg(unix)]
#[test]
fn stalled_reader_of_the_log_does_not_keep_the_server() {
    let place = with_tree();
    // Nothing reads its standard output.
    let mut served = Served::start(&place, "db --write --log -", Some(TOKEN));
    let mut client = TcpStream::connect(served.address).unwrap();
    // More than a pipe takes.
    for _ in 0..1000 {
        client.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut read = 0;
        while read < 100 {
            read += client.read(&mut [0; 1000]).unwrap();
        }
    }
    let sent = Command::new("kill").args(["-TERM", &served.child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    let began = Instant::now();
    let code = loop {
        if let Some(status) = served.child.try_wait().unwrap() {
            break status.code();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the server waits for the reader of its log");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(code, Some(0));
    let mut rest = String::new();
    served.stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("the access log lacks its last lines") && rest.ends_with("braid: stopped\n"), "{rest}");
}

/// The story: a PUT over HTTP left the indexes of `braid import` outdated, and a DELETE of the tree left
/// them behind.
#[test]
fn trees_with_indexes_of_imports_are_not_written() {
    let place = Workplace::with_database();
    place.write("rows.jsonl", b"{\"id\":\"1\",\"name\":\"Ann\"}\n{\"id\":\"2\",\"name\":\"Bob\"}\n");
    place.ok("import db rows.jsonl --tree users --key id --index by_name=name");
    place.ok("import db rows.jsonl --tree plain --key id");
    let before = place.ok("scan db users") + &place.ok("scan db by_name") + &place.ok("scan db braid.import");
    let served = Served::start(&place, "db --write", Some(TOKEN));
    let batch = |tree: &str| format!("[{{\"op\":\"delete\",\"tree\":\"{tree}\",\"key\":\"1\"}}]");
    for (method, path, body, remedy) in [
        ("PUT", "/trees/users/1", "{}".to_owned(), "braid put"),
        ("DELETE", "/trees/users/1", String::new(), "braid del"),
        ("POST", "/batch", batch("users"), "braid del"),
        ("DELETE", "/trees/users", String::new(), "braid drop-tree"),
        ("DELETE", "/trees/by_name", String::new(), "braid index drop"),
        ("PUT", "/trees/by_name/Ann", "2".to_owned(), "index of the tree users"),
        ("DELETE", "/trees/by_name/Ann", String::new(), "index of the tree users"),
        ("POST", "/batch", batch("by_name"), "index of the tree users"),
        ("PUT", "/trees/braid.import/k", "v".to_owned(), "reserved"),
        ("POST", "/batch", batch("braid.import"), "reserved"),
        ("DELETE", "/trees/braid.import", String::new(), "reserved"),
        ("PUT", "/trees/braid.import", String::new(), "reserved"),
    ] {
        let (status, text) = served.ask(method, path, TOKEN, &body);
        assert!(status == 409 && text.contains(remedy), "{method} {path}: {status} {text}");
    }
    assert_eq!(served.ask("GET", "/trees/users/1", TOKEN, "").0, 200);
    assert_eq!(served.ask("PUT", "/trees/users", TOKEN, "").0, 204);
    assert_eq!(served.ask("PUT", "/trees/plain/3", TOKEN, "{}").0, 201);
    assert_eq!(served.ask("DELETE", "/trees/plain", TOKEN, "").0, 204);
    drop(served);
    assert_eq!(place.ok("scan db users") + &place.ok("scan db by_name") + &place.ok("scan db braid.import"), before);
}

/// It was ignored, and a random token was printed.
#[cfg(unix)]
#[test]
fn token_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let place = with_tree();
    let mut command = Command::new(BRAID);
    command.args(["serve", "db", "--listen", "127.0.0.1:0"]).current_dir(place.path(""));
    command.env("BRAID_TOKEN", std::ffi::OsStr::from_bytes(b"0123456789abcdef\xff"));
    let mut child = common::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let _ = child.kill();
    child.wait().unwrap();
    assert!(line.contains("BRAID_TOKEN is not UTF-8"), "{line}");
}

#[cfg(unix)]
#[test]
fn signal_ends_the_server_in_order() {
    for signal in ["INT", "TERM"] {
        let place = with_tree();
        let mut served = Served::start(&place, "db --write", Some(TOKEN));
        assert_eq!(served.ask("PUT", "/trees/t/k", TOKEN, "v").0, 201);
        let mut idle = TcpStream::connect(served.address).unwrap();
        let sent = Command::new("kill").args([&format!("-{signal}"), &served.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert_eq!(served.child.wait().unwrap().code(), Some(0), "{signal}");
        let mut rest = String::new();
        served.stderr.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("braid: stopped\n"), "{rest}");
        assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
        assert_eq!(place.ok("get db t k"), "v\n");
    }
}

/// A command of docs/http.md and the output that the page shows.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The lines of its blocks `console`: `$` begins a command, a line without it is output.
fn steps_of_page() -> Vec<Step> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let page = fs::read_to_string(page).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.to_owned(), shown: Vec::new() }),
                None => steps.last_mut().unwrap().shown.push(line.to_owned()),
            }
        }
    }
    steps
}

/// `...` in a line of the page matches any text.
fn is_like(line: &str, shown: &str) -> bool {
    match shown.split_once("...") {
        None => line == shown,
        Some((before, after)) => {
            let rest = line.strip_prefix(before);
            rest.is_some_and(|rest| (0..=rest.len()).any(|at| rest.is_char_boundary(at) && is_like(&rest[at..], after)))
        }
    }
}

/// Runs the commands of the page and compares their output with the page.
#[cfg(unix)]
#[test]
fn sessions_of_the_page_run() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no curl, so the sessions of docs/http.md were not checked");
        return;
    }
    const MARK: &str = "----- next command -----";
    let place = Workplace::with_database();
    let served = Served::start(&place, "db --write", Some(TOKEN));
    let (certificate, key) = (of_tests("server.pem"), of_tests("server.key"));
    place.ok("create encrypted");
    place.ok("put encrypted greetings hello world");
    let tls = format!("encrypted --tls-cert {certificate} --tls-key {key}");
    let encrypted = Served::start(&place, &tls, Some(TOKEN));
    let steps = steps_of_page();
    assert!(steps.len() > 15, "only {} commands", steps.len());
    let script: String = steps.iter().map(|step| format!("{}\necho '{MARK}'\n", step.command)).collect();
    let mut shell = Command::new("sh");
    shell.current_dir(place.path("")).env("URL", format!("http://{}", served.address)).env("TOKEN", TOKEN);
    shell.env("TLS_URL", format!("https://localhost:{}", encrypted.address.port())).env("CERT", certificate);
    let mut shell = common::spawn(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()));
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = shell.wait_with_output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    let outputs: Vec<&str> = output.split(&format!("{MARK}\n")).collect();
    assert_eq!(outputs.len(), steps.len() + 1, "{output}");
    for (step, output) in steps.iter().zip(outputs) {
        let lines: Vec<&str> = output.lines().collect();
        let is_shown =
            lines.len() == step.shown.len() && lines.iter().zip(&step.shown).all(|(line, shown)| is_like(line, shown));
        assert!(is_shown, "$ {}\nshown:\n{}\nis:\n{output}", step.command, step.shown.join("\n"));
    }
}
