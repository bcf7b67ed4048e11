//! A client for one kind of request: GET over HTTP/1.1 without TLS, on a connection of its own.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs as _},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};

use crate::exit::{NOT_FOUND, SYSTEM, failure, usage};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes of a response.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host and port, as the header `Host` has them.
    pub host: String,
    connect: String,
}

impl Address {
    /// Parses `http://HOST[:PORT]`, with an optional slash at the end.
    pub fn parse(url: &str) -> Result<Address> {
        if url.starts_with("https://") {
            return Err(usage("braid top speaks no TLS: give the address of a server without it, http://HOST:PORT"));
        }
        let host = url.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let wrong = || usage(format!("{url} is no address of a server: give http://HOST:PORT"));
        let host = host.filter(|host| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic()));
        let host = host.filter(|host| !host.contains(['/', '?', '#', '@'])).ok_or_else(wrong)?;
        let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']'))
        });
        let connect = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Address { host: host.to_owned(), connect })
    }

    /// Returns the body of a response with status 200.
    pub fn get(&self, path: &str, token: &str) -> Result<Vec<u8>> {
        let mut stream = self.connect()?;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\
             Connection: close\r\n\r\n",
            self.host
        );
        let failed = || format!("cannot read from http://{}", self.host);
        stream.write_all(head.as_bytes()).with_context(failed)?;
        let mut response = Vec::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response).with_context(failed)?;
        let (status, body) = parse_response(&response).with_context(failed)?;
        match status {
            200 => Ok(body),
            401 => Err(usage(format!("http://{} refuses the token: give that of the server with --token", self.host))),
            404 => {
                Err(failure(NOT_FOUND, format!("http://{} has no {path}: it is no server of this version", self.host)))
            }
            _ => Err(failure(SYSTEM, format!("http://{} answers {path} with status {status}", self.host))),
        }
    }

    fn connect(&self) -> Result<TcpStream> {
        let failed = || format!("cannot connect to http://{}", self.host);
        let mut last = anyhow!("the name has no address");
        for address in self.connect.to_socket_addrs().with_context(failed)? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    stream.set_write_timeout(Some(TIMEOUT))?;
                    return Ok(stream);
                }
                Err(error) => last = error.into(),
            }
        }
        Err(last.context(failed()))
    }
}

fn parse_response(response: &[u8]) -> Result<(u16, Vec<u8>)> {
    let end = response.windows(4).position(|window| window == b"\r\n\r\n").context("the response has no head")?;
    let head = std::str::from_utf8(&response[..end]).context("the response is no HTTP")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
    let status = status.context("the response is no HTTP")?;
    let mut body = response[end + 4..].to_vec();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "content-length" => {
                let length: usize = value.parse().context("the response has a wrong length")?;
                if body.len() < length {
                    bail!("the response ends after {} of {length} bytes", body.len());
                }
                body.truncate(length);
            }
            "transfer-encoding" => bail!("the response has the transfer encoding {value}"),
            "content-encoding" if value != "identity" => bail!("the response has the encoding {value}"),
            _ => {}
        }
    }
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_host_with_optional_port() {
        for (url, host, connect) in [
            ("http://localhost:8080", "localhost:8080", "localhost:8080"),
            ("http://localhost/", "localhost", "localhost:80"),
            ("http://[::1]:80", "[::1]:80", "[::1]:80"),
            ("http://[::1]", "[::1]", "[::1]:80"),
        ] {
            assert_eq!(Address::parse(url).unwrap(), Address { host: host.to_owned(), connect: connect.to_owned() });
        }
        for wrong in ["https://a", "http://", "http://a/b", "http://u@a", "http://a b", "http://a\r\nX: y", "a:80"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn response_is_parsed_or_refused() {
        let parsed = |text: &str| parse_response(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(parsed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc"), Ok((200, b"ab".to_vec())));
        assert_eq!(parsed("HTTP/1.0 404 No\r\n\r\nabc"), Ok((404, b"abc".to_vec())));
        assert!(parsed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc").unwrap_err().contains("after 3 of 5 bytes"));
        for wrong in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 x\r\n\r\n"] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert!(parsed(chunked).unwrap_err().contains("chunked"));
    }
}
