//! A server for a test, and a client that sends exactly the given bytes.

use braid_server::{Limits, Options, Server, Stopper, Store};
use braiddb::Db;
use socket2::{Domain, Socket, Type};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    thread::JoinHandle,
    time::Duration,
};

pub const TOKEN: &str = "token-of-the-tests";

/// Fails a test instead of blocking it.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Running {
    pub address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    pub fn start(store: Store, write: bool, limits: Limits) -> Running {
        Running::with(store, Options::new().write(write).limits(limits))
    }

    pub fn with(store: Store, options: Options) -> Running {
        let options = options.token(TOKEN);
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), store, options).unwrap();
        let (address, stopper) = (server.address(), server.stopper());
        Running { address, stopper, thread: Some(std::thread::spawn(move || server.run())) }
    }

    pub fn writable(db: &Db) -> Running {
        Running::start(Store::owner(db), true, Limits::default())
    }

    pub fn limited(db: &Db, change: impl FnOnce(&mut Limits)) -> Running {
        let mut limits = Limits::default();
        change(&mut limits);
        Running::start(Store::owner(db), true, limits)
    }

    pub fn connect(&self) -> Client {
        self.client(TcpStream::connect(self.address).unwrap())
    }

    /// Connects with a small buffer, so that the server soon waits for a client that takes nothing.
    pub fn connect_narrowly(&self) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(32 << 10).unwrap();
        socket.connect(&self.address.into()).unwrap();
        self.client(socket.into())
    }

    fn client(&self, stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.connect().ask(method, path, headers, body)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"")
    }

    pub fn put(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.ask("PUT", path, &[], body.as_ref())
    }

    /// Waits until this number of large bodies are being received or applied.
    #[track_caller]
    pub fn await_uploads(&self, count: u64) {
        let wanted = format!("\nbraiddb_http_uploads {count}\n");
        let began = std::time::Instant::now();
        while !self.get("/metrics").has(200).text().contains(&wanted) {
            assert!(began.elapsed() < PATIENCE, "never {count} uploads");
        }
    }

    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// Waits for the end of the server.
    pub fn ended(&mut self) {
        self.thread.take().unwrap().join().unwrap().unwrap();
    }

    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let served = thread.join();
            if !std::thread::panicking() {
                served.unwrap().unwrap();
            }
        }
    }
}

pub struct Client {
    pub stream: BufReader<TcpStream>,
}

impl Client {
    /// Sends a head with the token and a loopback host, and a body with its length.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let length = body.len().to_string();
        let mut all = vec![("Content-Length", length.as_str())];
        all.extend_from_slice(headers);
        self.send_head(method, path, &all);
        self.write(body);
    }

    pub fn send_head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        let has = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !has("Host") {
            head += "Host: localhost\r\n";
        }
        if !has("Authorization") {
            head += &format!("Authorization: Bearer {TOKEN}\r\n");
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            head += &format!("{name}: {value}\r\n");
        }
        self.write(format!("{head}\r\n").as_bytes());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        // The server may close before it has read a body that it refuses.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    pub fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, path, headers, body);
        self.reply(method)
    }

    pub fn reply(&mut self, method: &str) -> Reply {
        self.try_reply(method).unwrap()
    }

    pub fn try_reply(&mut self, method: &str) -> io::Result<Reply> {
        let mut reply = self.read_head()?;
        while reply.status == 100 {
            reply = self.read_head()?;
        }
        let has_body = method != "HEAD" && ![204, 304].contains(&reply.status);
        if has_body && reply.header("transfer-encoding").is_some() {
            while let Some(chunk) = self.read_chunk()? {
                reply.body.extend(chunk);
            }
        } else if has_body {
            let len = reply.header("content-length").unwrap().parse().unwrap();
            reply.body.resize(len, 0);
            self.stream.read_exact(&mut reply.body)?;
        }
        Ok(reply)
    }

    /// Reads a head; a body must be read by the caller.
    pub fn read_head(&mut self) -> io::Result<Reply> {
        let status = self.read_line()?;
        let code = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = code.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, status))?;
        let mut headers = Vec::new();
        loop {
            let line = self.read_line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Ok(Reply { status, headers, body: Vec::new() })
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub fn read_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.read_line()?;
        let len = usize::from_str_radix(&line, 16).map_err(|_| io::Error::new(io::ErrorKind::UnexpectedEof, line))?;
        let mut chunk = vec![0; len + 2];
        self.stream.read_exact(&mut chunk)?;
        chunk.truncate(len);
        Ok((len > 0).then_some(chunk))
    }

    /// Returns true if the server has closed the connection; waits for it.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub fn etag(&self) -> &str {
        self.header("etag").unwrap_or_else(|| panic!("no ETag: {self:?}"))
    }

    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn has(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{self:?} {}", String::from_utf8_lossy(&self.body));
        self
    }

    /// Checks an error response: a problem with a title, its status and a detail.
    #[track_caller]
    pub fn has_problem(self, status: u16) -> Reply {
        let reply = self.has(status);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{reply:?}");
        let json = reply.json();
        assert_eq!(json["status"], status);
        assert!(json["title"].is_string() && json["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{json}");
        reply
    }
}
