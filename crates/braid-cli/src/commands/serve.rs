//! `braid serve`

use std::{
    env::VarError,
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use braid_server::{Journal, Limits, Options, Rules, Server, Stopper, Store, Tls};
use braiddb::{Builder, Db};

use super::{
    open::{builder, check_directory},
    tree_names::{is_index_of, owner_of_index, refuse_own_tree},
};
use crate::{
    access_log::AccessFile,
    arguments::ServeArguments,
    exit::{OK, SYSTEM, failure, text_of, usage},
    import::Indexes,
    notation::{show_count, show_name},
    output::note,
};

const TOKEN_VARIABLE: &str = "BRAID_TOKEN";

/// Age of the state that a server without `--write` shows.
const REFRESH: Duration = Duration::from_millis(100);

/// Age of a reader that is reported. The snapshots of scans live for a minute after their last use.
const OLD_READER: Duration = Duration::from_secs(120);

pub fn serve(arguments: &ServeArguments) -> Result<u8> {
    check_directory(&arguments.db)?;
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(read_tls(certificate, key)?),
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let log =
        arguments.log.as_deref().map(|path| AccessFile::open(path, arguments.log_keys)).transpose()?.map(Arc::new);
    let journal = Journal::default();
    let db = arguments.write.then(|| open_with(&journal, arguments)).transpose();
    let db = db.context("cannot serve it with --write; without, it is served beside the process that has it open")?;
    let store = match &db {
        Some(db) => Store::owner(db),
        // Takes no lock: an owner may come and go.
        None => Store::follower(builder_of(arguments).refresh_every(Some(REFRESH)).open_follower(&arguments.db)?),
    };
    let given = arguments.token.clone().map_or_else(token_of_environment, |token| Ok(Some(token)))?;
    let is_given = given.is_some();
    let options = Options::new().write(arguments.write).rules(ImportRules).name(name_of(&arguments.db));
    let options = options.limits(limits_of(arguments));
    let options = if arguments.write { options.journal(journal) } else { options };
    let options = given.into_iter().fold(options, Options::token);
    let options = tls.into_iter().fold(options, Options::tls);
    let options = log.iter().fold(options, |options, log| options.access_log(Arc::clone(log) as _));
    let server = Server::bind(arguments.listen, store, options).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => usage(error.to_string()),
        io::ErrorKind::AddrInUse => failure(
            SYSTEM,
            format!("another program listens at {}: choose another port with --listen", arguments.listen),
        ),
        _ => anyhow::Error::new(error).context(format!("cannot listen at {}", arguments.listen)),
    })?;
    stop_on_signal(server.stopper())?;
    let access = if arguments.write { "for reading and writing" } else { "for reading" };
    let (address, others) = usable(server.address());
    note!("braid: serving {} {access} at {scheme}://{address}/trees{others}", arguments.db.display());
    match is_given {
        true => note!("braid: page {scheme}://{address}/"),
        false => {
            note!("braid: token {}", server.token());
            // Browsers keep the fragment to themselves.
            note!("braid: page {scheme}://{address}/#token={}", server.token());
        }
    }
    let possible = server.connections();
    if possible < arguments.connections.unwrap_or(0) as usize {
        note!(
            "braid: takes at most {} connections at once, since the process may open few files: raise `ulimit -n`",
            show_count(possible as u64)
        );
    }
    let served = server.run();
    // Before the end of the log, whose reader may be slow.
    let closed = db.map_or(Ok(()), |db| db.close());
    if let Some(log) = log {
        log.finish();
    }
    served.context("the server failed")?;
    closed?;
    note!("braid: stopped");
    Ok(OK)
}

/// Returns an address that a client can connect to, and a remark: the unspecified address (0.0.0.0)
/// stands for all of this machine.
fn usable(address: SocketAddr) -> (SocketAddr, &'static str) {
    let loopback: IpAddr = match address.ip() {
        ip if !ip.is_unspecified() => return (address, ""),
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    (SocketAddr::new(loopback, address.port()), " and at every other address of this machine")
}

fn limits_of(arguments: &ServeArguments) -> Limits {
    let mut limits = Limits::default();
    limits.connections = arguments.connections.map_or(limits.connections, |count| count as usize);
    limits
}

fn builder_of(arguments: &ServeArguments) -> Builder {
    let builder = builder(&arguments.open).reader_age_warn(OLD_READER);
    // The default leaves tables their half of the descriptors.
    let tables = arguments.connections.and_then(|_| limits_of(arguments).open_files_max());
    tables.into_iter().fold(builder, Builder::open_files_max)
}

/// Opens the database for writing, with its events in the journal.
fn open_with(journal: &Journal, arguments: &ServeArguments) -> Result<Db> {
    let listener = journal.clone();
    let builder = builder_of(arguments).create(false).on_event(move |event| listener.note(event));
    let builder = arguments.keep.into_iter().fold(builder, Builder::log_retention);
    Ok(builder.open(&arguments.db)?)
}

/// Returns the last part of the path: that of `.` is the directory's name.
fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| whole.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn read_tls(certificate: &Path, key: &Path) -> Result<Tls> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let (certificate_text, key_text) = (read(certificate)?, read(key)?);
    Tls::from_pem(&certificate_text, &key_text)
        .map_err(|error| usage(format!("cannot use {} with {} for TLS: {error}", certificate.display(), key.display())))
}

fn token_of_environment() -> Result<Option<String>> {
    match std::env::var(TOKEN_VARIABLE) {
        Ok(token) => Ok(Some(token)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(usage(format!("{TOKEN_VARIABLE} is not UTF-8 text: a token has visible ASCII characters only")))
        }
    }
}

/// Refuses writes that would leave the indexes of `braid import --index` outdated, and changes of
/// the tree that names them.
#[derive(Debug)]
struct ImportRules;

impl Rules for ImportRules {
    fn check_records(&self, db: &Db, tree: &str) -> std::result::Result<(), String> {
        // Only trees with many values per key are indexes; others are written often.
        if db.open_tree(tree).is_err()
            && let Some(owner) = owner_of_index(db, tree).map_err(|error| text_of(&error))?
        {
            return Err(format!(
                "the tree {} is an index of the tree {}: write that one with `braid put`, `braid del` or `braid import`",
                show_name(tree),
                show_name(&owner)
            ));
        }
        let indexes = refuse_own_tree(tree).and_then(|()| Indexes::stored_specs(db, tree));
        let indexes = indexes.map_err(|error| text_of(&error))?;
        match indexes.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "the tree {} has indexes, which the service does not keep: write it with `braid put`, `braid del` or \
                 `braid import`, or drop them with `braid index drop`",
                show_name(tree)
            )),
        }
    }

    fn check_create(&self, _: &Db, tree: &str) -> std::result::Result<(), String> {
        refuse_own_tree(tree).map_err(|error| text_of(&error))
    }

    fn check_drop(&self, db: &Db, tree: &str) -> std::result::Result<(), String> {
        self.check_create(db, tree)?;
        let owner = owner_of_index(db, tree).map_err(|error| text_of(&error))?;
        if let Some(owner) = owner {
            return Err(is_index_of(tree, &owner));
        }
        let indexes = Indexes::stored_specs(db, tree).map_err(|error| text_of(&error))?;
        match indexes.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "the tree {} has indexes, which would stay behind: drop it with `braid drop-tree`",
                show_name(tree)
            )),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::usable;

    /// The link to the page was `https://0.0.0.0:8443/`.
    #[test]
    fn printed_address_can_be_opened() {
        let shown = |address: &str| usable(address.parse().unwrap());
        for (bound, printed) in [("0.0.0.0:8443", "127.0.0.1:8443"), ("[::]:1", "[::1]:1")] {
            let (address, others) = shown(bound);
            assert_eq!((address.to_string().as_str(), others.is_empty()), (printed, false));
        }
        for bound in ["127.0.0.1:80", "192.0.2.1:80", "[::1]:80"] {
            assert_eq!(shown(bound), (bound.parse().unwrap(), ""));
        }
    }
}
