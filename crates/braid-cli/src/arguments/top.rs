//! Arguments of `top`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::shared::OpenArguments;
use crate::notation::parse_seconds;

/// `braid top`
#[derive(Debug, Args)]
pub struct TopArguments {
    /// The database, or the address of a server of `braid serve`: http://HOST:PORT or
    /// https://HOST:PORT
    pub db: PathBuf,
    /// Bearer token of the server [default: that of the environment variable BRAID_TOKEN]
    ///
    /// Other users of the machine see arguments of commands: prefer the variable.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// PEM file with certificates to trust, in place of those of the system: that of the server, or
    /// of its issuer
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Send the token over http:// to another machine too, where the network can read it
    #[arg(long)]
    pub insecure: bool,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub interval: Duration,
    /// Print one frame as text, after two readings, and end
    #[arg(long)]
    pub once: bool,
    /// Print one frame as JSON, after two readings, and end
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub open: OpenArguments,
}
