//! Chooses the source of the readings and the form of the output.

use std::{io::Write as _, path::Path, thread, time::Duration};

use anyhow::Result;

use super::{
    files::Files,
    frame::Frame,
    http::{Address, Client},
    reading::Reading,
    report::to_json,
    screen,
    sections::{headline, sections},
    server::Server,
    tls,
};
use crate::{
    arguments::TopArguments,
    exit::{OK, SYSTEM, failure, usage},
    output::{Stdout, is_terminal, print_line},
};

pub enum Source {
    Files(Files),
    Server(Server),
}

impl Source {
    fn open(arguments: &TopArguments) -> Result<Source> {
        let Some(url) = url_of(&arguments.db) else {
            let given = [
                ("--token", arguments.token.is_some()),
                ("--tls-ca", arguments.tls_ca.is_some()),
                ("--insecure", arguments.insecure),
            ];
            if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                let address = "give its address, http://HOST:PORT, in place of the database";
                return Err(usage(format!("{option} is for a server: {address}")));
            }
            refuse_bare_address(&arguments.db)?;
            return Ok(Source::Files(Files::open(&arguments.db, &arguments.open)?));
        };
        let token = arguments.token.clone().or_else(|| std::env::var("BRAID_TOKEN").ok());
        let token = token.ok_or_else(|| usage("give the token of the server with --token, or in BRAID_TOKEN"))?;
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(usage("a token has visible ASCII characters only"));
        }
        let address = Address::parse(url)?;
        if arguments.tls_ca.is_some() && !address.is_tls {
            return Err(usage("--tls-ca is for a server with TLS: give https://HOST:PORT"));
        }
        let tls = address.is_tls.then(|| tls::config(arguments.tls_ca.as_deref())).transpose()?;
        Ok(Source::Server(Server::new(Client { address, token, tls, is_insecure: arguments.insecure })))
    }

    /// Reads all but the sizes of trees, which can take long.
    pub fn read_first(&self) -> Result<Reading> {
        match self {
            Source::Files(files) => files.read_first(),
            Source::Server(server) => server.read_first(),
        }
    }

    pub fn read(&self) -> Result<Reading> {
        match self {
            Source::Files(files) => files.read(),
            Source::Server(server) => server.read(),
        }
    }
}

fn url_of(db: &Path) -> Option<&str> {
    db.to_str().filter(|text| text.contains("://"))
}

/// Refuses `HOST:PORT`, which would be a directory that does not exist.
fn refuse_bare_address(db: &Path) -> Result<()> {
    let port = db.to_str().and_then(|text| text.rsplit_once(':')).map_or("", |(_, port)| port);
    match port.parse::<u16>() {
        Ok(_) if !db.exists() => Err(usage(format!("for the server at {0}, give http://{0}", db.display()))),
        _ => Ok(()),
    }
}

/// Waits for a newer reading: a server keeps one for half a second.
fn next_reading(source: &Source, first: &Reading, interval: Duration) -> Result<Reading> {
    for _ in 0..READINGS_MAX {
        thread::sleep(interval);
        let reading = source.read()?;
        if reading.time_us != first.time_us {
            return Ok(reading);
        }
    }
    Err(failure(SYSTEM, "the server shows no newer numbers"))
}

const READINGS_MAX: u32 = 1000;

pub fn run(arguments: &TopArguments) -> Result<u8> {
    if !is_terminal() && !arguments.once && !arguments.json {
        return Err(usage("standard output is no terminal: add --once or --json"));
    }
    let source = Source::open(arguments)?;
    let title = arguments.db.display().to_string();
    if !arguments.once && !arguments.json {
        return screen::run(&title, source, arguments.interval);
    }
    let first = source.read_first()?;
    let frame = Frame::new(&title, &first, next_reading(&source, &first, arguments.interval)?);
    if arguments.json {
        print_line(to_json(&frame))?;
        return Ok(OK);
    }
    let mut out = Stdout::new();
    writeln!(out, "{}", headline(&frame))?;
    for section in sections(&frame) {
        writeln!(out, "\n{}", section.title)?;
        for line in section.lines {
            writeln!(out, "  {}", line.text)?;
        }
    }
    out.finish()?;
    Ok(OK)
}
