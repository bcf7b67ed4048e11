//! Arguments of `serve`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::shared::OpenArguments;
use crate::notation::parse_size;

/// `braid serve`
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// The database
    pub db: PathBuf,
    /// Address and port to listen at; port 0 chooses a free one. Other addresses than loopback ones
    /// need TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = parse_address)]
    pub listen: SocketAddr,
    /// Bearer token that requests must have, of at least 16 characters [default: that of the
    /// environment variable BRAID_TOKEN, else a random one, printed at the start]
    ///
    /// Other users of the machine see arguments of commands: prefer the variable.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Permit writes, and open the database for writing
    #[arg(long)]
    pub write: bool,
    /// With --write: from now on retain this much of the log, such as 64M, for clients of the change
    /// stream that connect again
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "write")]
    pub keep: Option<u64>,
    /// Maximum connections at once [default: 1024]; further ones wait. Each takes a descriptor of the
    /// process (ulimit -n)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: Option<u32>,
    /// Encrypt all connections (TLS) with the certificate in this PEM file, followed by its issuers'
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the certificate's private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Append a line of JSON for each request to a file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log paths too, which have names of trees, and keys
    #[arg(long, requires = "log")]
    pub log_keys: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}

/// Parses `ADDRESS:PORT`. `localhost` is this machine, whatever its resolver says.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "give an address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned())
}
