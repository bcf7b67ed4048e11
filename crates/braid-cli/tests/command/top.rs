//! `braid top --once` and `--json`.

use crate::common;

use common::{BRAID, Workplace};
use std::{
    io::{Read, Write},
    process::{Command, Stdio},
};

#[test]
fn top_of_a_directory_follows_the_owner_and_names_what_it_does_not_know() {
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    let mut owner = Command::new(BRAID);
    owner.args(["shell", "db", "--write", "--json"]).current_dir(place.path(""));
    let mut owner = common::spawn(owner.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut commands = owner.stdin.take().unwrap();
    commands.write_all(b"put t b 2\n").unwrap();
    owner.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    let text = place.ok("top db --once --interval 0.01");
    assert!(text.starts_with("db  commit ") && text.contains("Not known here"), "{text}");
    let report: serde_json::Value = serde_json::from_str(&place.ok("top db --json --interval 0.01")).unwrap();
    assert_eq!(report["trees"][0]["name"], "t");
    assert_eq!(report["trees"][0]["keys"], 2);
    assert!(report["not_known"].as_array().unwrap().contains(&"latencies".into()), "{report}");
    assert!(report["memory"].is_null() && report["last_commit"].as_u64() > Some(0), "{report}");
    if cfg!(target_os = "linux") {
        assert!(report["owner"].as_str().unwrap().contains(&owner.id().to_string()), "{report}");
    }
    drop(commands);
    assert!(owner.wait().unwrap().success());
}

#[test]
fn options_of_top_are_checked() {
    let place = Workplace::with_database();
    for (code, line, part) in [
        (2, "top db", "--once or --json"),
        (1, "top none --once", "no database"),
        (2, "top db --once --interval 0", "seconds above 0"),
        (2, "top db --once --token token-of-the-tests", "--token is for a server"),
        (2, "top http://127.0.0.1:1 --once", "BRAID_TOKEN"),
        (2, "top db --once --insecure", "--insecure is for a server"),
        (2, "top http://127.0.0.1:1 --once --token token-of-the-tests --tls-ca a.pem", "https://HOST:PORT"),
        (4, "top https://127.0.0.1:1 --once --token token-of-the-tests --tls-ca a.pem", "cannot read a.pem"),
        (2, "top 127.0.0.1:1 --once", "give http://127.0.0.1:1"),
        (2, "top ftp://127.0.0.1 --once --token token-of-the-tests", "no address of a server"),
        (4, "top http://127.0.0.1:1 --once --token token-of-the-tests", "cannot connect"),
    ] {
        let why = place.fails(code, line);
        assert!(why.contains(part), "{line}: {why}");
    }
}

/// The token went in clear to any host that a user mistyped. 192.0.2.1 is a machine that never answers
/// (RFC 5737).
#[test]
fn token_in_clear_to_another_machine_is_refused_before_it_connects() {
    let place = Workplace::new();
    let begun = std::time::Instant::now();
    let why = place.fails(2, "top http://192.0.2.1:8080 --once --token token-of-the-tests");
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{why}");
    for part in ["https://192.0.2.1:8080", "ssh -L", "--insecure"] {
        assert!(why.contains(part), "{why}");
    }
}

#[cfg(feature = "serve")]
#[test]
fn top_over_tls_trusts_the_given_certificate_alone() {
    use crate::serve::{Served, TOKEN};
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls");
    let of_server = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../braid-server/tests/fixtures/tls");
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    for name in [of_server.join("server"), tests.join("authority")] {
        let (certificate, key) = (name.with_extension("pem"), name.with_extension("key"));
        let (certificate, key) = (certificate.display(), key.display());
        let served = Served::start(&place, &format!("db --tls-cert {certificate} --tls-key {key}"), Some(TOKEN));
        let port = served.address.port();
        let top = |scheme: &str, host: &str, ca: &str| {
            place.run(&format!("top {scheme}://{host}:{port} --token {TOKEN} --interval 0.6 --json{ca}"))
        };
        let ca = format!(" --tls-ca {certificate}");
        for host in ["localhost", "127.0.0.1"] {
            let outcome = top("https", host, &ca);
            assert_eq!(outcome.code, 0, "{outcome:?}");
            let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
            assert_eq!(report["trees"][0]["name"], "t");
        }
        for (scheme, host, ca, part) in
            [("https", "localhost", "", "--tls-ca FILE"), ("http", "127.0.0.1", "", "give https://HOST:PORT")]
        {
            let outcome = top(scheme, host, ca);
            assert_ne!(outcome.code, 0, "{outcome:?}");
            assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
        }
    }
    let served = Served::start(&place, "db", Some(TOKEN));
    let ca = of_server.join("server.pem").display().to_string();
    let plain = format!("top https://{} --token {TOKEN} --once --tls-ca {ca}", served.address);
    assert!(place.fails(2, &plain).contains("it speaks no TLS: give http://"));
}

#[cfg(feature = "serve")]
#[test]
fn top_of_a_server_shows_rates_latencies_and_memory() {
    use crate::serve::{Served, TOKEN};
    use std::sync::atomic::{AtomicBool, Ordering};
    let place = Workplace::with_database();
    place.ok("put db t a 1");
    let served = Served::start(&place, "db --write", Some(TOKEN));
    let url = format!("http://{}", served.address);
    let ended = AtomicBool::new(false);
    let (json, text) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                served.ask("PUT", "/trees/t/k", TOKEN, "value");
                served.ask("GET", "/trees/t/k", TOKEN, "");
            }
        });
        let top = |form: &str| place.run(&format!("top {url} --token {TOKEN} --interval 0.6 {form}"));
        // A busy machine may commit nothing between two readings.
        let has_rates = |json: &common::Outcome| {
            let report: serde_json::Value = serde_json::from_str(&json.stdout).unwrap_or_default();
            let requests = report["requests"].as_array().into_iter().flatten();
            let counted = requests.filter(|requests| requests["per_second"].as_f64() > Some(0.0)).count();
            report["rates"]["user_bytes"].as_f64() > Some(0.0) && counted >= 2
        };
        let json = (0..50).map(|_| top("--json")).find(|json| json.code != 0 || has_rates(json));
        let shown = (json.unwrap_or_else(|| top("--json")), top("--once"));
        ended.store(true, Ordering::Relaxed);
        shown
    });
    assert_eq!((json.code, text.code), (0, 0), "{json:?} {text:?}");
    let report: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(report["commits_per_second"].as_f64() > Some(0.0), "{report}");
    assert!(report["rates"]["user_bytes"].as_f64() > Some(0.0), "{report}");
    for kind in ["get", "put"] {
        let requests = report["requests"].as_array().unwrap().iter().find(|requests| requests["kind"] == kind).unwrap();
        assert!(requests["per_second"].as_f64() > Some(0.0) && requests["p99_us"].as_u64() > Some(0), "{report}");
    }
    assert!(report["memory"]["memtable_bytes"].as_u64() > Some(0), "{report}");
    assert_eq!(report["trees"][0]["name"], "t");
    for part in ["Rates", "gets", "Background work", "Memory", "Readers", "Trees"] {
        assert!(text.stdout.contains(part), "{part}: {text:?}");
    }
    assert!(place.fails(2, &format!("top {url} --once --token another-token-of-16")).contains("refuses the token"));
}

/// A terminal that is closed sends no SIGHUP to a process that ignores it, and none to this one, which
/// it does not control. crossterm's poll then never returned, and `top` used a processor until a kill.
#[cfg(target_os = "linux")]
#[test]
fn top_ends_when_its_terminal_is_gone() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::{
        fs::File,
        time::{Duration, Instant},
    };
    let place = Workplace::with_database();
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let mut open = File::options();
    let terminal = open.read(true).write(true).open(name.to_str().unwrap()).unwrap();
    rustix::termios::tcsetwinsize(
        &terminal,
        rustix::termios::Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 },
    )
    .unwrap();
    let mut top = Command::new(BRAID);
    top.args(["top", "db", "--interval", "0.05"]).current_dir(place.path("")).env("TERM", "xterm");
    for set in [Command::stdin, Command::stdout, Command::stderr] {
        set(&mut top, terminal.try_clone().unwrap());
    }
    let mut top = common::spawn(&mut top);
    drop(terminal);
    let (mut controller, mut shown) = (File::from(controller), Vec::new());
    while !shown.windows(5).any(|part| part == b"Rates") {
        let mut bytes = [0; 4096];
        let count = controller.read(&mut bytes).unwrap();
        shown.extend_from_slice(&bytes[..count]);
    }
    drop(controller);
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = top.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            top.kill().unwrap();
            top.wait().unwrap();
            panic!("it goes on without a terminal");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(128 + 1));
}
