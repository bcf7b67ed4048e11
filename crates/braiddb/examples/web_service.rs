//! A web service for notes, with tokio: writes are durable when answered, and no thread waits for it.
//!
//!     cargo run -p braiddb --example web_service                   # sends itself requests, and ends
//!     cargo run -p braiddb --example web_service -- 127.0.0.1:8080 # serves ./notes.db
//!     curl -i -X PUT --data hello 127.0.0.1:8080/notes/a
//!     curl -N 127.0.0.1:8080/changes
//!
//! - Answers to writes await the sync of the log. One sync serves all requests that wait.
//! - Versions are ETags: `PUT` with `If-Match` fails if another request changed the note.
//! - Reads may wait for the disk, so they run in `spawn_blocking`.
//! - `/changes` streams writes as they are committed.
//! - It speaks only as much HTTP as it needs. It panics on a wrong result.

use braiddb::watch::{Change, WatchOptions};
use braiddb::{Db, Result, Tree, Version};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, tcp::OwnedWriteHalf};
use tokio::task::spawn_blocking;

type AnyResult<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Response = (&'static str, Option<Version>, Vec<u8>);

const CHANGED: &str = "412 Precondition Failed";
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone)]
struct Service {
    db: Db,
    notes: Tree,
}

impl Service {
    fn new(db: Db) -> Result<Service> {
        Ok(Service { notes: db.tree("notes")?, db })
    }

    /// Sets a note. With a version, fails if it is not the note's present one.
    async fn put(&self, name: &str, text: &[u8], expected: Option<Version>) -> Result<Response> {
        let commit = match expected {
            None => self.notes.put_async(name, text),
            Some(expected) => {
                let tx = self.db.begin()?;
                let found = tx.get_versioned(&self.notes, name)?;
                if found.and_then(|(_, version)| version) != Some(expected) {
                    return Ok((CHANGED, None, vec![]));
                }
                tx.put(&self.notes, name, text)?;
                tx.commit_async()
            }
        };
        match commit.await {
            Ok(commit) => Ok(("200 OK", Some(self.db.version_of(commit)), vec![])),
            Err(error) if error.is_conflict() => Ok((CHANGED, None, vec![])),
            Err(error) => Err(error),
        }
    }

    async fn get(&self, name: &str) -> AnyResult<Response> {
        let (notes, name) = (self.notes.clone(), name.to_owned());
        Ok(match spawn_blocking(move || notes.get_versioned(name)).await?? {
            Some((text, version)) => ("200 OK", Some(version), text.to_vec()),
            None => ("404 Not Found", None, vec![]),
        })
    }

    /// Writes a line for each put, until the client leaves.
    async fn changes(&self, to: &mut OwnedWriteHalf) -> AnyResult<()> {
        let mut changes = self.db.watch(WatchOptions::new().tree(&self.notes))?.into_stream()?;
        to.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
        while let Some(commit) = changes.next().await {
            for change in commit?.changes {
                if let Change::Put { key, value, .. } = change {
                    to.write_all(&[&key[..], b": ", &value, b"\n"].concat()).await?;
                }
            }
        }
        Ok(())
    }

    async fn answer(&self, stream: TcpStream) -> AnyResult<()> {
        let (from, mut to) = stream.into_split();
        let (head, body) = read_message(from).await?;
        let mut words = head.split(' ');
        let (method, path) = words.next().zip(words.next()).ok_or("no request")?;
        let expected = header(&head, "If-Match").map(str::parse).transpose();
        let (status, version, body) = match (method, path.strip_prefix("/notes/"), expected) {
            ("GET", None, _) if path == "/changes" => return self.changes(&mut to).await,
            ("PUT", Some(name), Ok(expected)) => self.put(name, &body, expected).await?,
            ("GET", Some(name), _) => self.get(name).await?,
            _ => ("400 Bad Request", None, vec![]),
        };
        let etag = version.map_or(String::new(), |version| format!("ETag: {}\r\n", version.etag()));
        let head = format!("HTTP/1.1 {status}\r\n{etag}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        Ok(to.write_all(&[head.as_bytes(), &body].concat()).await?)
    }

    async fn serve(self, listener: TcpListener) -> AnyResult<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let service = self.clone();
            tokio::spawn(async move { service.answer(stream).await.map_err(|error| eprintln!("{error}")) });
        }
    }
}

/// Reads the head and the body of a request or a response.
async fn read_message(from: impl AsyncRead + Unpin) -> AnyResult<(String, Vec<u8>)> {
    let mut from = BufReader::new(from.take(MESSAGE_BYTES_MAX));
    let mut head = String::new();
    while from.read_line(&mut head).await? > "\r\n".len() {}
    let length = header(&head, "Content-Length").unwrap_or("0").parse::<u64>()?;
    let mut body = vec![0; length.min(MESSAGE_BYTES_MAX) as usize];
    from.read_exact(&mut body).await?;
    Ok((head, body))
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> AnyResult<()> {
    if let Some(address) = std::env::args().nth(1) {
        return Service::new(Db::open("notes.db")?)?.serve(TcpListener::bind(address).await?).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(Service::new(Db::in_memory()?)?.serve(listener));
    let ask = async |request: &str| {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        read_message(&mut stream).await.map(|(head, body)| (head, body, stream))
    };

    let (_, _, mut changes) = ask("GET /changes HTTP/1.1\r\n\r\n").await?;
    let (head, ..) = ask("PUT /notes/a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").await?;
    let first = header(&head, "etag").expect("a version").to_owned();
    let change = format!("PUT /notes/a HTTP/1.1\r\nIf-Match: {first}\r\nContent-Length: 3\r\n\r\nbye");
    let (head, ..) = ask(&change).await?;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (head, ..) = ask(&change).await?; // the first version is outdated
    assert!(head.contains(CHANGED), "{head}");
    let (head, body, _) = ask("GET /notes/a HTTP/1.1\r\n\r\n").await?;
    assert!(head.starts_with("HTTP/1.1 200") && body == b"bye", "{head}");
    let mut lines = [0; 16];
    changes.read_exact(&mut lines).await?;
    assert_eq!(&lines, b"a: hello\na: bye\n");
    Ok(())
}
