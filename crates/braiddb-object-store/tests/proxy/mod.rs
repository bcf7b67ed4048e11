//! A proxy of HTTP/1.1 that fails some requests.

use braiddb::platform::{Runtime, SystemRuntime};
use std::{
    io::{Read, Result, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Longer than an attempt of the client.
const STALL_US: u64 = 2_500_000;

pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    seed: u64,
    percent: u64,
    requests: AtomicU64,
    failures: AtomicU64,
}

impl Proxy {
    /// Fails `percent` of the requests.
    pub fn start(server: &str, seed: u64, percent: u64) -> Proxy {
        let server = server.strip_prefix("http://").expect("the server has no TLS").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, failures) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { server, seed, percent, requests, failures });
        let serving = Arc::clone(&shared);
        let serve = move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // An error is a client that gave up.
                let serve_one = move || drop(shared.serve(client));
                SystemRuntime::new().spawn("connection", Box::new(serve_one)).unwrap();
            }
        };
        SystemRuntime::new().spawn("proxy", Box::new(serve)).unwrap();
        Proxy { address, shared }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Serves one request of a connection, which is closed afterwards.
    fn serve(&self, mut client: TcpStream) -> Result<()> {
        let (head, body) = read_message(&mut client)?;
        let mut state = self.seed.wrapping_add(self.requests.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9));
        let mut draw = |below: u64| {
            state = (state ^ (state >> 31)).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % below
        };
        draw(2);
        let fault = if draw(100) < self.percent { draw(6) } else { 6 };
        if fault < 6 {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        match fault {
            0 | 1 => {
                return client.write_all(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
            2 => return Ok(()),
            3 => {
                // A partial upload: the server sees half of the body.
                let mut server = TcpStream::connect(&self.server)?;
                server.write_all(&closing(&head))?;
                return server.write_all(&body[..body.len() / 2]);
            }
            // The client gave up before the server gets the request.
            4 => SystemRuntime::new().sleep_us(STALL_US),
            _ => {}
        }
        let mut server = TcpStream::connect(&self.server)?;
        server.write_all(&closing(&head))?;
        server.write_all(&body)?;
        let mut reply = Vec::new();
        server.read_to_end(&mut reply)?;
        // A lost reply, or a part of one.
        let sent = if fault == 5 { reply.len() / 2 * (draw(2) as usize) } else { reply.len() };
        client.write_all(&reply[..sent])
    }
}

/// Asks the server to close the connection after its reply.
fn closing(head: &[u8]) -> Vec<u8> {
    let end = head.len() - 2;
    [&head[..end], b"Connection: close\r\n\r\n"].concat()
}

/// Reads the head of a request, up to its empty line, and its body.
fn read_message(client: &mut TcpStream) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1 << 16]);
    let head_len = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        match client.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    };
    let mut body = bytes.split_off(head_len);
    let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    while body.len() < len {
        match client.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => body.extend_from_slice(&buffer[..read]),
        }
    }
    Ok((bytes, body))
}
