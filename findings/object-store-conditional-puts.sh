#!/usr/bin/env bash
# A conditional put of object_store to S3 can report the conflict of another writer although there is
# none.
#
# Seen with `object_store` 0.14.2 (crates.io), `AmazonS3Builder`. A server on this machine stands for
# S3 and gives these replies to PUT; the object was absent before:
#
#   | mode                         | replies  | S3 means                                | result           |
#   |------------------------------|----------|-----------------------------------------|------------------|
#   | PutMode::Create              | 500, 412 | the first attempt was stored, the reply | AlreadyExists    |
#   | PutMode::Update(version)     | 500, 412 | was lost: the write is done             | Precondition     |
#   | PutMode::Create              | 409, 200 | another create is in progress: repeat   | AlreadyExists    |
#   | PutMode::Update(version)     | 409, 200 | the same                                | done, by a retry |
#
# The client repeats a conditional put after an error of the server as it does any other, and cannot
# know that the condition now fails because of its own first attempt. S3 also replies 409 to a
# conditional put beside another one; only `Update` repeats it. So a program that uses `Create` as a
# lock must read the object after AlreadyExists: it may be its own, or there may be none.
#
# Needs cargo, a C compiler and a network. Fails if the crate behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export CARGO_TARGET_DIR=$work/target

mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "seen"
version = "0.1.0"
edition = "2024"

[dependencies]
object_store = { version = "=0.14.2", default-features = false, features = ["aws-base", "reqwest", "ring"] }
reqwest = { version = "=0.13.5", default-features = false, features = ["rustls-no-provider"] }
rustls = { version = "=0.23.46", default-features = false, features = ["ring", "std", "tls12"] }
tokio = { version = "=1.54.1", features = ["rt-multi-thread"] }

[workspace]
TOML
cat >src/main.rs <<'RUST'
use object_store::{
    ClientOptions, Error, ObjectStore, PutMode, PutOptions, UpdateVersion, aws::AmazonS3Builder, path::Path,
};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

/// Reads a request whose body has a known length.
fn read_request(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let len = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            if bytes.len() >= end + 4 + len.map_or(0, |len| len.parse().unwrap()) {
                return;
            }
        }
        let len = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..len]);
    }
}

/// Replies to the next requests, one connection each. Returns the address.
fn serve(statuses: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for status in statuses {
            let mut stream = listener.accept().unwrap().0;
            read_request(&mut stream);
            write!(stream, "HTTP/1.1 {status}\r\nETag: \"2\"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    address
}

fn main() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let version = UpdateVersion { e_tag: Some("\"1\"".to_owned()), version: None };
    let lost: &[&str] = &["500 Internal Server Error", "412 Precondition Failed"];
    let busy: &[&str] = &["409 Conflict", "200 OK"];
    for (name, mode, replies) in [
        ("create 500 412", PutMode::Create, lost),
        ("update 500 412", PutMode::Update(version.clone()), lost),
        ("create 409 200", PutMode::Create, busy),
        ("update 409 200", PutMode::Update(version), busy),
    ] {
        let store = AmazonS3Builder::new()
            .with_endpoint(serve(replies))
            .with_region("r")
            .with_bucket_name("b")
            .with_access_key_id("a")
            .with_secret_access_key("s")
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .build()
            .unwrap();
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = runtime.block_on(store.put_opts(&Path::from("lock"), "mine".into(), options));
        let result = match put {
            Ok(_) => "done",
            Err(Error::AlreadyExists { .. }) => "AlreadyExists",
            Err(Error::Precondition { .. }) => "Precondition",
            Err(_) => "another error",
        };
        println!("{name}: {result}");
    }
}
RUST
seen=$(cargo run --quiet)
printf '%s\n' "$seen"
[[ $seen == 'create 500 412: AlreadyExists
update 500 412: Precondition
create 409 200: AlreadyExists
update 409 200: done' ]]
echo "as described"
