//! Measures small gets over HTTP beside a bare hyper handler that answers with the same bytes.
//!
//!     cargo run --release -p braid-server --example http_gets -- SECONDS CONNECTIONS
//!
//! The two take turns, five rounds each; the table has the medians. Clients and servers share the
//! processors of this machine. Panics on a wrong answer.

use braid_server::{Options, Server, Store};
use braiddb::Db;
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
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Context, Poll},
    thread,
    time::{Duration, Instant},
};

const TOKEN: &str = "token-of-the-measurement";
const VALUE: [u8; 100] = [b'v'; 100];
const ROUNDS: usize = 5;
const RECORDS: usize = 100_000;

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

/// Starts a server whose handler does nothing.
fn start_bare() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let workers = thread::available_parallelism().map_or(2, |count| count.get().max(2));
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(workers).enable_io().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let answer = service_fn(|_| async {
                    Ok::<_, Infallible>(Response::new(Fixed(Some(Bytes::from_static(&VALUE)))))
                });
                tokio::spawn(async move { http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await });
            }
        })
    });
    address
}

/// Returns answers a second.
fn measure(address: SocketAddr, connections: usize, time: Duration) -> u64 {
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    thread::scope(|scope| {
        for client in 0..connections {
            let (count, is_over) = (&count, &is_over);
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_nodelay(true).unwrap();
                let mut buffer = [0; 2048];
                let mut key = client;
                while !is_over.load(Ordering::Relaxed) {
                    key = (key + 7919) % RECORDS;
                    let request = format!(
                        "GET /trees/t/key{key:06} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
                    );
                    stream.write_all(request.as_bytes()).unwrap();
                    let mut len = 0;
                    while !buffer[..len].ends_with(&VALUE) {
                        len += stream.read(&mut buffer[len..]).unwrap();
                    }
                    assert!(buffer.starts_with(b"HTTP/1.1 200 OK"));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
    });
    (count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()) as u64
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let time = Duration::from_secs(arguments.next().unwrap_or(1));
    let connections = arguments.next().unwrap_or(8) as usize;
    let db = Db::in_memory().unwrap();
    let tree = db.tree("t").unwrap();
    tree.extend((0..RECORDS).map(|key| (format!("key{key:06}"), VALUE))).unwrap();
    let options = Options::new().token(TOKEN);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), Store::owner(&db), options).unwrap();
    let (stopper, address) = (server.stopper(), server.address());
    let running = thread::spawn(move || server.run());
    let bare = start_bare();
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rates[0].push(measure(bare, connections, time));
        rates[1].push(measure(address, connections, time));
    }
    for (name, mut rates) in ["bare hyper handler", "braid-server"].into_iter().zip(rates) {
        rates.sort_unstable();
        println!("{name:<20} {:>8} gets/s, {} to {}", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    }
    stopper.stop();
    running.join().unwrap().unwrap();
}
