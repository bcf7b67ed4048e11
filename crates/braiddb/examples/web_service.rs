//! A web service with tokio: albums by number, durable when the answer comes.
//!
//! ```text
//! cargo run -p braiddb --example web_service             # asks itself some requests, and ends
//! cargo run -p braiddb --example web_service 127.0.0.1:8080
//! curl -X PUT -d Ten http://127.0.0.1:8080/albums/1
//! curl http://127.0.0.1:8080/albums/1
//! curl http://127.0.0.1:8080/changes
//! ```
//!
//! Writes await the commit: one log sync serves all requests of the moment. Reads may touch the
//! disk, so they run in `spawn_blocking`. `/changes` sends each commit as a line until the client
//! leaves. The part that speaks HTTP is only as large as the example needs.

use braiddb::{
    Db, Tree,
    watch::{Change, ChangeStream, WatchOptions},
};
use std::{error::Error, io};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::spawn_blocking,
};

type Outcome<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Maximum bytes of a line, and of a body.
const PART_LEN_MAX: u64 = 1 << 20;

#[derive(Clone)]
struct Service {
    db: Db,
    albums: Tree,
}

struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

struct Answer {
    status: &'static str,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, body: body.into() }
    }
}

impl Service {
    async fn answer(&self, request: Request) -> Outcome<Answer> {
        let Some(id) = request.path.strip_prefix("/albums/").map(str::to_owned) else {
            return Ok(Answer::new("404 Not Found", "no such path\n"));
        };
        match request.method.as_str() {
            "PUT" => {
                let commit = self.albums.put_async(id, request.body).await?;
                Ok(Answer::new("200 OK", format!("commit {commit}\n")))
            }
            "DELETE" => {
                let commit = self.albums.delete_async(id).await?;
                Ok(Answer::new("200 OK", format!("commit {commit}\n")))
            }
            "GET" => {
                let albums = self.albums.clone();
                Ok(match spawn_blocking(move || albums.get(id)).await?? {
                    Some(title) => Answer::new("200 OK", title.to_vec()),
                    None => Answer::new("404 Not Found", "no such album\n"),
                })
            }
            _ => Ok(Answer::new("405 Method Not Allowed", "PUT, GET or DELETE\n")),
        }
    }

    async fn serve(self, connection: TcpStream) -> Outcome<()> {
        let mut connection = BufReader::new(connection);
        while let Some(request) = read_request(&mut connection).await? {
            if request.path == "/changes" {
                let changes = self.db.watch(WatchOptions::new().tree(&self.albums))?.into_stream()?;
                return send_changes(connection.into_inner(), changes).await;
            }
            let answer = match self.answer(request).await {
                Ok(answer) => answer,
                Err(error) => Answer::new("500 Internal Server Error", format!("{error}\n")),
            };
            let head = format!("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n", answer.status, answer.body.len());
            connection.write_all(&[head.as_bytes(), &answer.body].concat()).await?;
        }
        Ok(())
    }
}

async fn read_request(connection: &mut BufReader<TcpStream>) -> Outcome<Option<Request>> {
    let first = read_line(connection).await?;
    let mut words = first.split(' ');
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut len = 0;
    loop {
        let line = read_line(connection).await?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("content-length:") {
            len = text.trim().parse()?;
        }
    }
    if len > PART_LEN_MAX {
        return Err(io::Error::other("the body is too long").into());
    }
    let mut body = vec![0; len as usize];
    connection.read_exact(&mut body).await?;
    Ok(Some(Request { method: method.to_owned(), path: path.to_owned(), body }))
}

async fn read_line(connection: &mut BufReader<TcpStream>) -> Outcome<String> {
    let mut line = String::new();
    connection.take(PART_LEN_MAX).read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

/// Returns at the end of the stream, or when the client has left.
async fn send_changes(mut connection: TcpStream, mut changes: ChangeStream) -> Outcome<()> {
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n").await?;
    while let Some(commit) = changes.next().await {
        let commit = commit?;
        let mut lines = String::new();
        for change in &commit.changes {
            let (verb, key) = match change {
                Change::Put { key, .. } => ("put", key),
                Change::Delete { key, .. } => ("delete", key),
                _ => continue,
            };
            lines += &format!("{} {verb} {}\n", commit.sequence, String::from_utf8_lossy(key));
        }
        connection.write_all(lines.as_bytes()).await?;
    }
    Ok(())
}

async fn listen(listener: TcpListener, service: Service) -> Outcome<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            if let Err(error) = service.serve(connection).await {
                eprintln!("a connection has failed: {error}");
            }
        });
    }
}

async fn ask(address: std::net::SocketAddr, method: &str, path: &str, body: &str) -> Outcome<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    connection.write_all(request.as_bytes()).await?;
    connection.shutdown().await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A hundred clients put at once, and share a few syncs.
async fn demonstrate(address: std::net::SocketAddr, db: &Db) -> Outcome<()> {
    let before = db.stats().syncs;
    let clients: Vec<_> = (0..100)
        .map(|id| tokio::spawn(async move { ask(address, "PUT", &format!("/albums/{id}"), "Ten").await }))
        .collect();
    for client in clients {
        assert!(client.await??.starts_with("HTTP/1.1 200 OK"));
    }
    println!("100 durable puts, {} syncs", db.stats().syncs - before);
    assert!(ask(address, "GET", "/albums/1", "").await?.ends_with("Ten"));
    println!("{}", ask(address, "DELETE", "/albums/1", "").await?);
    assert!(ask(address, "GET", "/albums/1", "").await?.starts_with("HTTP/1.1 404"));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let address = std::env::args().nth(1);
    let place = std::env::temp_dir().join(format!("braiddb-web-{}", std::process::id()));
    let db = Db::open(&place)?;
    let albums = db.tree("albums")?;
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let local = listener.local_addr()?;
    println!("http://{local}/albums/1, in {}", place.display());
    let service = Service { db: db.clone(), albums };
    if address.is_some() {
        return listen(listener, service).await;
    }
    let server = tokio::spawn(listen(listener, service));
    demonstrate(local, &db).await?;
    server.abort();
    db.close()?;
    Ok(std::fs::remove_dir_all(&place)?)
}
