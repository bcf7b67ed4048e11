//! TLS: the certificate, the handshake, and its limits.
#![cfg(feature = "tls")]

use crate::client::{Running, TOKEN};
use braid_server::{Limits, Options, Server, Store, Tls};
use braiddb::Db;
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};

const SHORT: Duration = Duration::from_millis(200);

fn file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)).unwrap()
}

fn tls() -> Tls {
    Tls::from_pem(&file("server.pem"), &file("server.key")).unwrap()
}

fn start(db: &Db, change: impl FnOnce(&mut Limits)) -> Running {
    let mut limits = Limits::default();
    change(&mut limits);
    Running::with(Store::owner(db), Options::new().write(true).limits(limits).tls(tls()))
}

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

fn connect_with(server: &Running, name: &str, trusted: &str, protocols: &[&str]) -> Encrypted {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&file(trusted)).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

fn connect(server: &Running) -> Encrypted {
    connect_with(server, "localhost", "server.pem", &["h2", "http/1.1"])
}

/// Sends a request after which the server closes the connection, and returns the whole answer.
fn try_ask(client: &mut Encrypted, method: &str, path: &str, host: &str, body: &[u8]) -> io::Result<Vec<u8>> {
    let len = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body)?;
    let mut answer = Vec::new();
    // Fails without the closing alert too: only the alert proves that the answer is whole.
    client.read_to_end(&mut answer)?;
    Ok(answer)
}

fn ask(server: &Running, method: &str, path: &str, host: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let answer = try_ask(&mut connect(server), method, path, host, body).unwrap();
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = str::from_utf8(&answer[..end]).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), answer[end + 4..].to_vec())
}

#[test]
fn records_are_written_and_read_over_tls() {
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    let server = start(&db, |_| {});
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(ask(&server, "PUT", "/trees/t/large", "localhost", &large).0, 201);
    assert_eq!(tree.stream("large").unwrap().unwrap().len(), 3_000_000);
    let (status, read) = ask(&server, "GET", "/trees/t/large", "localhost", b"");
    assert!(status == 200 && read == large);
    let mut client = connect(&server);
    assert!(try_ask(&mut client, "GET", "/health", "localhost", b"").is_ok());
    assert_eq!(client.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    // With TLS any host name is accepted, since the client checks the certificate. The token is required.
    assert_eq!(ask(&server, "GET", "/trees/t/none", "db.example:8443", b"").0, 404);
    let mut client = connect(&server);
    client.write_all(b"GET /trees HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[test]
fn client_that_does_not_trust_the_server_gets_nothing() {
    let db = Db::in_memory().unwrap();
    let server = start(&db, |_| {});
    for (name, trusted, protocols) in [
        ("evil.example", "server.pem", &["http/1.1"][..]),
        ("localhost", "expired.pem", &["http/1.1"]),
        ("localhost", "server.pem", &["h2"]),
    ] {
        let mut client = connect_with(&server, name, trusted, protocols);
        assert!(try_ask(&mut client, "GET", "/health", "localhost", b"").is_err(), "{name} {trusted}");
    }
    assert_eq!(ask(&server, "GET", "/health", "localhost", b"").0, 200);
}

/// Without encryption nothing is answered, and the server goes on.
#[test]
fn request_without_tls_is_not_answered() {
    let db = Db::in_memory().unwrap();
    let server = start(&db, |_| {});
    let mut plain = server.connect();
    plain.send("GET", "/health", &[], b"");
    assert!(plain.try_reply("GET").is_err());
    assert_eq!(ask(&server, "GET", "/health", "localhost", b"").0, 200);
}

#[test]
fn slow_handshake_is_given_up() {
    let db = Db::in_memory().unwrap();
    let server = start(&db, |limits| {
        limits.handshake_time = SHORT;
        limits.connections = 2;
    });
    let mut silent = [server.connect(), server.connect()];
    // A record of a handshake that never ends.
    silent[0].write(b"\x16\x03\x01\x02\x00\x01");
    // Waits for the place of one of them.
    assert_eq!(ask(&server, "GET", "/health", "localhost", b"").0, 200);
    for client in &mut silent {
        assert!(client.is_closed());
    }
}

#[test]
fn stop_ends_a_running_handshake() {
    let db = Db::in_memory().unwrap();
    let mut server = start(&db, |limits| limits.handshake_time = Duration::MAX);
    let mut silent = server.connect();
    assert_eq!(ask(&server, "GET", "/health", "localhost", b"").0, 200);
    server.stop();
    server.ended();
    assert!(silent.is_closed());
}

/// A reset must not overtake the refusal, as without TLS.
#[test]
fn refusal_of_a_long_body_reaches_its_client() {
    let db = Db::in_memory().unwrap();
    db.tree("t").unwrap();
    let server = start(&db, |limits| limits.value_bytes = 1_000_000);
    let mut client = connect(&server);
    let head = format!("PUT /trees/t/k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n");
    client.write_all(format!("{head}Content-Length: 3000000\r\n\r\n").as_bytes()).unwrap();
    std::thread::sleep(SHORT);
    for part in vec![0; 3_000_000].chunks(100_000) {
        client.write_all(part).unwrap();
    }
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn unusable_certificates_are_refused_with_a_reason() {
    for (certificate, key, reason) in [
        ("server.pem", "other.key", "does not belong"),
        ("expired.pem", "expired.key", "expired"),
        ("early.pem", "early.key", "becomes valid"),
        ("server.key", "server.key", "BEGIN CERTIFICATE"),
        ("make.sh", "server.key", "BEGIN CERTIFICATE"),
        ("server.pem", "server.pem", "no private key"),
        ("server.pem", "encrypted.key", "openssl pkey"),
    ] {
        let error = Tls::from_pem(&file(certificate), &file(key)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(reason), "{certificate} {key}: {error}");
    }
    let damaged = String::from_utf8(file("server.pem")).unwrap().replace("MII", "AAA");
    assert!(Tls::from_pem(damaged.as_bytes(), &file("server.key")).is_err());
}

#[test]
fn other_addresses_need_tls() {
    let db = Db::in_memory().unwrap();
    let bind = |options: Options| Server::bind("0.0.0.0:0".parse().unwrap(), Store::owner(&db), options);
    let refused = bind(Options::new()).unwrap_err();
    assert!(refused.to_string().contains("TLS"), "{refused}");
    assert!(bind(Options::new().tls(tls())).is_ok());
}
