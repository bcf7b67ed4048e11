//! Measures the service under load, beside a bare hyper handler and Redis.
//!
//!     cargo run --release -p braid-server --example http_load -- gets SECONDS CLIENTS [REDIS]
//!     cargo run --release -p braid-server --example http_load -- puts SECONDS CLIENTS [REDIS]
//!     cargo run --release -p braid-server --example http_load -- idle CONNECTIONS
//!     cargo run --release -p braid-server --example http_load -- slow SECONDS SLOW_CLIENTS
//!
//! `REDIS` is the address of a server, `HOST:PORT`; `scripts/compare-redis.sh` starts one. Each server is
//! a process of its own, and all get the same load: clients that send a request and wait for
//! its answer. The servers take turns, five rounds each; the tables have the medians. Clients and
//! servers share the processors of this machine. Panics on a wrong answer.

use braid_server::{Limits, Options, Server, Store};
use braiddb::{Builder, Db};
use bytes::Bytes;
use hyper::{
    Response,
    body::{Body, Frame},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    pin::Pin,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

const TOKEN: &str = "token-of-the-measurement";
const VALUE: [u8; 100] = [b'v'; 100];
const ROUNDS: usize = 5;
const RECORDS: usize = 100_000;
const LARGE_BYTES: u64 = 64 << 20;
/// Connections that the measured server takes.
const CONNECTIONS_MAX: usize = 12_000;

struct Fixed(Option<Bytes>);

impl Body for Fixed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Runs a server whose handler does nothing.
fn serve_bare() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let workers = thread::available_parallelism().map_or(2, |count| count.get().max(2));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_io().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let answer =
                service_fn(|_| async { Ok::<_, Infallible>(Response::new(Fixed(Some(Bytes::from_static(&VALUE))))) });
            tokio::spawn(async move { http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await });
        }
    })
}

/// Runs the service until the end of standard input.
fn serve(folder: &Path) {
    let mut limits = Limits::default();
    limits.connections = CONNECTIONS_MAX;
    limits.head_time = Duration::from_secs(600);
    let builder = limits.open_files_max().into_iter().fold(Db::builder(), Builder::open_files_max);
    let db = builder.open(folder.join("db")).unwrap();
    let tree = db.tree("t").unwrap();
    tree.extend((0..RECORDS).map(|key| (format!("key{key:06}"), VALUE))).unwrap();
    tree.put_stream("large", std::io::repeat(7).take(LARGE_BYTES)).unwrap();
    let options = Options::new().token(TOKEN).write(true).limits(limits);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), Store::owner(&db), options).unwrap();
    println!("{}", server.address());
    let stopper = server.stopper();
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stopper.stop();
    });
    server.run().unwrap();
}

/// A server in a process of its own.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Served { child, address: line.trim().parse().expect("the server prints its address") }
    }

    /// Returns the resident memory in KiB, where `/proc` shows it.
    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
    }

    /// Returns the processor time so far in ticks, where `/proc` shows it: user and system.
    fn processor_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        after_name.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy)]
enum Protocol {
    Http,
    Redis,
}

#[derive(Clone, Copy)]
enum Load {
    Gets,
    Puts,
}

fn request(protocol: Protocol, load: Load, key: usize) -> String {
    let value = str::from_utf8(&VALUE).unwrap();
    match (protocol, load) {
        (Protocol::Http, Load::Gets) => {
            format!("GET /trees/t/key{key:06} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
        }
        (Protocol::Http, Load::Puts) => format!(
            "PUT /trees/t/key{key:06} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: 100\r\n\r\n{value}"
        ),
        (Protocol::Redis, Load::Gets) => format!("*2\r\n$3\r\nGET\r\n$9\r\nkey{key:06}\r\n"),
        (Protocol::Redis, Load::Puts) => format!("*3\r\n$3\r\nSET\r\n$9\r\nkey{key:06}\r\n$100\r\n{value}\r\n"),
    }
}

/// Returns whether an answer is whole. Panics on a wrong one.
fn is_whole(protocol: Protocol, load: Load, answer: &[u8]) -> bool {
    let (begin, end): (&[u8], &[u8]) = match (protocol, load) {
        (Protocol::Http, Load::Gets) => (b"HTTP/1.1 200 OK\r\n", &VALUE),
        (Protocol::Http, Load::Puts) => (b"HTTP/1.1 204 No Content\r\n", b"\r\n\r\n"),
        (Protocol::Redis, Load::Gets) => (b"$100\r\n", b"v\r\n"),
        (Protocol::Redis, Load::Puts) => (b"+OK\r\n", b"+OK\r\n"),
    };
    let seen = answer.len().min(begin.len());
    assert_eq!(answer[..seen], begin[..seen], "{}", String::from_utf8_lossy(answer));
    seen == begin.len() && answer.ends_with(end)
}

fn ask(stream: &mut TcpStream, protocol: Protocol, load: Load, key: usize) {
    stream.write_all(request(protocol, load, key).as_bytes()).unwrap();
    let (mut buffer, mut len) = ([0; 2048], 0);
    while !is_whole(protocol, load, &buffer[..len]) {
        let count = stream.read(&mut buffer[len..]).unwrap();
        assert!(count > 0, "the server closed the connection");
        len += count;
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Returns answers a second.
fn measure(address: SocketAddr, protocol: Protocol, load: Load, clients: usize, time: Duration) -> u64 {
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    thread::scope(|scope| {
        for client in 0..clients {
            let (count, is_over) = (&count, &is_over);
            scope.spawn(move || {
                let mut stream = connect(address);
                let mut key = client;
                while !is_over.load(Ordering::Relaxed) {
                    key = (key + 7919) % RECORDS;
                    ask(&mut stream, protocol, load, key);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
    });
    (count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()) as u64
}

/// Fills Redis with the records that gets ask for.
fn fill(address: SocketAddr) {
    let mut stream = connect(address);
    for key in 0..RECORDS {
        ask(&mut stream, Protocol::Redis, Load::Puts, key);
    }
}

fn compare(load: Load, time: Duration, clients: usize, redis: Option<SocketAddr>) {
    let folder = tempfile::tempdir().unwrap();
    let service = Served::start(&["serve", folder.path().to_str().unwrap()]);
    let bare = matches!(load, Load::Gets).then(|| Served::start(&["serve-bare"]));
    let mut servers = vec![("braid-server", service.address, Protocol::Http, Some(&service))];
    servers.extend(bare.iter().map(|bare| ("bare hyper handler", bare.address, Protocol::Http, Some(bare))));
    if let (Some(redis), Load::Gets) = (redis, load) {
        fill(redis);
    }
    servers.extend(redis.map(|redis| ("Redis", redis, Protocol::Redis, None)));
    let mut rates = vec![Vec::new(); servers.len()];
    let mut ticks = vec![0; servers.len()];
    for _ in 0..ROUNDS {
        for (at, (_, address, protocol, process)) in servers.iter().enumerate() {
            let before = process.map_or(0, Served::processor_ticks);
            rates[at].push(measure(*address, *protocol, load, clients, time));
            ticks[at] += process.map_or(0, Served::processor_ticks) - before;
        }
    }
    for (at, (name, ..)) in servers.iter().enumerate() {
        let requests: f64 = rates[at].iter().map(|rate| *rate as f64 * time.as_secs_f64()).sum();
        let rates = &mut rates[at];
        rates.sort_unstable();
        // The system counts a hundred ticks a second.
        let processor = match ticks[at] {
            0 => String::new(),
            ticks => format!(", {:.1} us of processor time each", ticks as f64 * 10_000.0 / requests),
        };
        println!("{name:<20} {:>8} a second, {} to {}{processor}", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    }
}

/// Opens connections that ask once and then wait.
fn idle(connections: usize) {
    let folder = tempfile::tempdir().unwrap();
    let service = Served::start(&["serve", folder.path().to_str().unwrap()]);
    ask(&mut connect(service.address), Protocol::Http, Load::Gets, 1);
    let before = service.resident_kib();
    let mut open = Vec::new();
    for key in 0..connections {
        let mut stream = connect(service.address);
        ask(&mut stream, Protocol::Http, Load::Gets, key % RECORDS);
        open.push(stream);
    }
    let after = service.resident_kib();
    let each = (after.saturating_sub(before)) as f64 / connections.max(1) as f64;
    println!("{} MiB, with {connections} idle connections {} MiB: {each:.1} KiB each", before >> 10, after >> 10);
    open.iter_mut().for_each(|stream| ask(stream, Protocol::Http, Load::Gets, 2));
}

/// Measures a fast client beside clients that take a large value slowly.
fn slow(time: Duration, clients: usize) {
    let folder = tempfile::tempdir().unwrap();
    let service = Served::start(&["serve", folder.path().to_str().unwrap()]);
    let is_over = AtomicBool::new(false);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.push(measure(service.address, Protocol::Http, Load::Gets, 1, time));
        is_over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let mut open: Vec<TcpStream> = (0..clients).map(|_| connect(service.address)).collect();
            for stream in &mut open {
                let head =
                    format!("GET /trees/t/large HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
            }
            let is_over = &is_over;
            // About 20 KiB a second each, just above the least that the server accepts.
            scope.spawn(move || {
                let mut part = [0; 20 << 10];
                while !is_over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    for stream in &mut open {
                        let _ = stream.read(&mut part);
                    }
                    thread::sleep(Duration::from_secs(1).saturating_sub(began.elapsed()));
                }
            });
            thread::sleep(Duration::from_secs(1));
            beside.push(measure(service.address, Protocol::Http, Load::Gets, 1, time));
            println!("{} MiB of resident memory", service.resident_kib() >> 10);
            is_over.store(true, Ordering::Relaxed);
        });
    }
    for (name, rates) in [("alone", &mut alone), ("beside slow clients", &mut beside)] {
        rates.sort_unstable();
        println!("{name:<20} {:>8} gets a second, {} to {}", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| match arguments.get(at) {
        None => default,
        Some(text) => text.parse().expect("a number"),
    };
    let redis =
        || arguments.get(3).map(|address| address.parse().expect("an address of Redis, such as 127.0.0.1:6379"));
    let seconds = || Duration::from_secs(number(1, 1));
    let count = |at| number(at, 8) as usize;
    match arguments.first().map_or("gets", String::as_str) {
        "gets" => compare(Load::Gets, seconds(), count(2), redis()),
        "puts" => compare(Load::Puts, seconds(), count(2), redis()),
        "idle" => idle(count(1)),
        "slow" => slow(seconds(), count(2)),
        "serve" => serve(Path::new(&arguments[1])),
        "serve-bare" => serve_bare(),
        other => panic!("{other}: give gets, puts, idle or slow"),
    }
}
