//! `braid serve`

use std::{io, time::Duration};

use anyhow::{Context, Result};
use braid_server::{Options, Server, Stopper, Store};

use super::open::{builder, check_directory, open_for_writing};
use crate::{
    arguments::ServeArguments,
    exit::{OK, usage},
    output::note,
};

/// Age of the state that a server without `--write` shows.
const REFRESH: Duration = Duration::from_millis(100);

pub fn serve(arguments: &ServeArguments) -> Result<u8> {
    check_directory(&arguments.db)?;
    let db = arguments.write.then(|| open_for_writing(&arguments.db, &arguments.open)).transpose();
    let db = db.context("cannot serve it with --write; without, it is served beside the process that has it open")?;
    let store = match &db {
        Some(db) => Store::owner(db),
        // Takes no lock: an owner may come and go.
        None => Store::follower(builder(&arguments.open).refresh_every(Some(REFRESH)).open_follower(&arguments.db)?),
    };
    let given = arguments.token.clone().or_else(|| std::env::var("BRAID_TOKEN").ok());
    let is_given = given.is_some();
    let options = Options { token: given, write: arguments.write, ..Options::default() };
    let server = Server::bind(arguments.listen, store, options).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => usage(error.to_string()),
        _ => anyhow::Error::new(error).context(format!("cannot listen at {}", arguments.listen)),
    })?;
    stop_on_signal(server.stopper())?;
    let access = if arguments.write { "for reading and writing" } else { "for reading" };
    note!("braid: serving {} {access} at http://{}/trees", arguments.db.display(), server.address());
    if !is_given {
        note!("braid: token {}", server.token());
    }
    server.run().context("the server failed")?;
    if let Some(db) = db {
        db.close()?;
    }
    note!("braid: stopped");
    Ok(OK)
}

/// The first signal stops the server in order, the second one ends the process.
#[cfg(unix)]
fn stop_on_signal(stopper: Stopper) -> io::Result<()> {
    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        iterator::Signals,
    };
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        let mut is_stopping = false;
        for signal in signals.forever() {
            if is_stopping {
                std::process::exit(128 + signal);
            }
            is_stopping = true;
            note!("braid: finishing the running requests; a second signal ends them");
            stopper.stop();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

/// The system ends the process, which the database survives like a kill.
#[cfg(not(unix))]
fn stop_on_signal(_: Stopper) -> io::Result<()> {
    Ok(())
}
