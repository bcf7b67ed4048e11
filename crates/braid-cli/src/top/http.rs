//! A client for one kind of request: GET over HTTP/1.1, on a connection of its own.
//!
//! INVARIANT: the token leaves this machine only over TLS, unless `--insecure` is given. The check is
//! of the address that is connected to, not of its name.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustls::{CertificateError, ClientConfig, ClientConnection, Error as TlsError, StreamOwned, pki_types::ServerName};

use crate::exit::{NOT_FOUND, SYSTEM, failure, usage};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes of a response.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host and port, as the header `Host` has them.
    host: String,
    pub is_tls: bool,
    connect: String,
}

pub struct Client {
    pub address: Address,
    pub token: String,
    /// Of an address with TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Permits to send the token unencrypted to another machine.
    pub is_insecure: bool,
}

impl Address {
    /// Parses `http://HOST[:PORT]` or `https://HOST[:PORT]`, with an optional slash at the end.
    pub fn parse(url: &str) -> Result<Address> {
        let wrong = || usage(format!("{url} is no address of a server: give http://HOST:PORT or https://HOST:PORT"));
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (is_tls, port) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(wrong()),
        };
        let host = rest.strip_suffix('/').unwrap_or(rest);
        let is_valid = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_valid || host.contains(['/', '?', '#', '@']) {
            return Err(wrong());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(name, port)| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']'))
        });
        let connect = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        Ok(Address { host: host.to_owned(), is_tls, connect })
    }

    /// Returns the host without its port and brackets, as certificates have it.
    fn name(&self) -> &str {
        let name = self.connect.rsplit_once(':').map_or(self.connect.as_str(), |(name, _)| name);
        name.trim_start_matches('[').trim_end_matches(']')
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}://{}", if self.is_tls { "https" } else { "http" }, self.host)
    }
}

impl Client {
    /// Returns the body of a response with status 200.
    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        let Client { address, token, .. } = self;
        let stream = self.connect()?;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n\
             Connection: close\r\n\r\n",
            address.host
        );
        let failed = || format!("cannot read from {address}");
        let response = match &self.tls {
            Some(config) => {
                let name = ServerName::try_from(address.name().to_owned());
                let name = name.map_err(|_| usage(format!("{address}: {} is no name of a host", address.name())))?;
                let connection = ClientConnection::new(Arc::clone(config), name).with_context(failed)?;
                exchange(StreamOwned::new(connection, stream), &head).map_err(|error| explained(error, address))
            }
            None => exchange(stream, &head).map_err(anyhow::Error::from),
        };
        let (status, body) = parse_response(&response.with_context(failed)?).with_context(failed)?;
        match status {
            200 => Ok(body),
            401 => Err(usage(format!("{address} refuses the token: give that of the server with --token"))),
            404 => Err(failure(NOT_FOUND, format!("{address} has no {path}: it is no server of this version"))),
            _ => Err(failure(SYSTEM, format!("{address} answers {path} with status {status}"))),
        }
    }

    fn connect(&self) -> Result<TcpStream> {
        let address = &self.address;
        let failed = || format!("cannot connect to {address}");
        let mut last = anyhow!("the name has no address");
        for place in address.connect.to_socket_addrs().with_context(failed)? {
            self.check_secrecy(&place)?;
            match TcpStream::connect_timeout(&place, TIMEOUT) {
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

    fn check_secrecy(&self, place: &SocketAddr) -> Result<()> {
        let address = &self.address;
        match address.is_tls || self.is_insecure || place.ip().to_canonical().is_loopback() {
            true => Ok(()),
            false => Err(usage(format!(
                "{address} is another machine, and without TLS the network can read the token: use \
                 https://{}, a tunnel (`ssh -L 8080:127.0.0.1:8080 HOST`, then http://127.0.0.1:8080), or add --insecure",
                address.host
            ))),
        }
    }
}

/// Sends a request and reads the response to its end.
fn exchange(mut stream: impl Read + Write, head: &str) -> io::Result<Vec<u8>> {
    stream.write_all(head.as_bytes())?;
    stream.flush()?;
    let mut response = Vec::new();
    match stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response) {
        // The peer ended TLS without a farewell. The length in the head shows if anything is missing.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && has_length(&response) => Ok(response),
        read => read.map(|_| response),
    }
}

fn has_length(response: &[u8]) -> bool {
    response.to_ascii_lowercase().windows(18).any(|window| window == b"\r\ncontent-length: ")
}

fn explained(error: io::Error, address: &Address) -> anyhow::Error {
    let advice = match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!("its certificate is for another name than {}", address.name()),
        Some(TlsError::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => "its certificate is not valid now".to_owned(),
        // Also `CaUsedAsEndEntity`, of `openssl req -x509`.
        Some(TlsError::InvalidCertificate(_)) => {
            "its certificate is not trusted: give it, or that of its issuer, with --tls-ca FILE".to_owned()
        }
        Some(TlsError::InvalidMessage(_)) => format!("it speaks no TLS: give http://{}", address.host),
        _ => return error.into(),
    };
    usage(advice)
}

fn parse_response(response: &[u8]) -> Result<(u16, Vec<u8>)> {
    let end = response
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("the response is no HTTP: for a server with TLS, give https://HOST:PORT")?;
    let head = std::str::from_utf8(&response[..end]).context("the response is no HTTP")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok());
    let status = status.context("the response is no HTTP: for a server with TLS, give https://HOST:PORT")?;
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
        for (url, is_tls, connect, name) in [
            ("http://localhost:8080", false, "localhost:8080", "localhost"),
            ("http://localhost/", false, "localhost:80", "localhost"),
            ("http://[::1]:80", false, "[::1]:80", "::1"),
            ("http://[::1]", false, "[::1]:80", "::1"),
            ("https://db.example", true, "db.example:443", "db.example"),
            ("https://[::1]:8443/", true, "[::1]:8443", "::1"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.is_tls, address.connect.as_str(), address.name()), (is_tls, connect, name));
            assert_eq!(address.to_string(), url.trim_end_matches('/'));
        }
        for wrong in
            ["ftp://a", "https://", "http://", "http://a/b", "http://u@a", "http://a b", "http://a\r\nX: y", "a:80"]
        {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn token_goes_to_another_machine_only_encrypted_or_on_demand() {
        let check = |url: &str, is_insecure: bool, place: &str| {
            let client = Client { address: Address::parse(url).unwrap(), token: String::new(), tls: None, is_insecure };
            client.check_secrecy(&place.parse().unwrap()).is_ok()
        };
        for place in ["127.0.0.1:80", "127.1.2.3:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(check("http://any.example", false, place), "{place}");
        }
        for place in ["192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80", "0.0.0.0:80"] {
            // A name that says localhost does not decide.
            assert!(!check("http://localhost", false, place), "{place}");
            assert!(check("http://localhost", true, place) && check("https://localhost", false, place), "{place}");
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
