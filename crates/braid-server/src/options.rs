//! Options and limits of a server.

#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{access::AccessLog, descriptors, journal::Journal, rules::Rules};
use std::{sync::Arc, time::Duration};

/// Options of a [`Server`](crate::Server).
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    pub(crate) token: Option<String>,
    pub(crate) write: bool,
    pub(crate) limits: Limits,
    pub(crate) rules: Option<Arc<dyn Rules>>,
    pub(crate) name: Option<String>,
    pub(crate) access: Option<Arc<dyn AccessLog>>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    pub(crate) journal: Option<Journal>,
}

impl Options {
    /// Returns the defaults: for reading, with a random token.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the bearer token that requests must have: at least 16 visible ASCII characters.
    pub fn token(self, token: impl Into<String>) -> Options {
        Options { token: Some(token.into()), ..self }
    }

    /// Permits writes. Without it they get the status 403.
    pub fn write(self, write: bool) -> Options {
        Options { write, ..self }
    }

    /// Sets the limits that protect the process from its clients.
    pub fn limits(self, limits: Limits) -> Options {
        Options { limits, ..self }
    }

    /// Sets the name of the database that the page at `/` shows.
    pub fn name(self, name: impl Into<String>) -> Options {
        Options { name: Some(name.into()), ..self }
    }

    /// Sets the journal whose events the page shows.
    pub fn journal(self, journal: Journal) -> Options {
        Options { journal: Some(journal), ..self }
    }

    /// Sets rules for trees that clients must not write.
    pub fn rules(self, rules: impl Rules + 'static) -> Options {
        Options { rules: Some(Arc::new(rules)), ..self }
    }

    /// Reports each request to a log. Requests that are not HTTP, and failed handshakes, are not reported.
    pub fn access_log(self, log: Arc<dyn AccessLog>) -> Options {
        Options { access: Some(log), ..self }
    }

    /// Encrypts all connections, and permits to listen at other addresses than loopback ones. Then
    /// the certificate's names replace the check of `Host`.
    ///
    /// ```no_run
    /// use braid_server::{Options, Tls};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let tls = Tls::from_pem(&std::fs::read("db.pem")?, &std::fs::read("db.key")?)?;
    /// let options = Options::new().tls(tls);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: Tls) -> Options {
        Options { tls: Some(tls), ..self }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}

/// Limits that protect the process from its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum open connections. Further ones wait in the system's queue. There are fewer if the
    /// database needs the descriptors that the process may open: see [`Limits::open_files_max`].
    pub connections: usize,
    /// Maximum bytes of a request's head; a longer one gets the status 431.
    pub head_bytes: usize,
    /// Maximum bytes of a value in a `PUT`; a longer one gets the status 413.
    pub value_bytes: u64,
    /// Maximum bytes of a batch, which is held in memory.
    pub batch_bytes: u64,
    /// Maximum operations of a batch; a longer one gets the status 413.
    pub batch_operations: usize,
    /// Maximum bodies of more than 64 KiB that are received at once. Each takes up to 10 MiB of
    /// memory, and a batch its size. Further ones wait.
    pub uploads: usize,
    /// Maximum responses that are compressed at once, with about 1 MiB of memory each. Further ones
    /// are sent as they are.
    pub codings: usize,
    /// Maximum time for the handshake of TLS.
    pub handshake_time: Duration,
    /// Maximum time for the head of a request, also after the previous response.
    pub head_time: Duration,
    /// Time that a connection may wait for its client during a body, besides the time that its bytes
    /// take at `rate_min`.
    pub patience: Duration,
    /// Minimum rate of bodies in both directions, in bytes a second.
    pub rate_min: u64,
    /// Maximum snapshots kept for the next pages of scans. The one unused for longest is dropped
    /// first.
    pub snapshots: usize,
    /// Lifetime of a kept snapshot after its last use.
    pub snapshot_life: Duration,
    /// Maximum change streams. Each holds up to 2 MiB, or twice the largest commit; further ones get
    /// the status 503.
    pub streams: usize,
    /// Maximum downloads of backups. Each holds up to 8 MiB; further ones get the status 503.
    pub backups: usize,
    /// Maximum pause in a change stream. An idle one sends a comment then, so that both sides notice a
    /// broken connection.
    pub heartbeat: Duration,
    /// Lifetime of a ticket for change streams after its last use.
    pub ticket_life: Duration,
    /// Maximum time to finish running requests after a stop.
    pub drain: Duration,
}

impl Limits {
    /// Returns the value for [`Builder::open_files_max`](braiddb::Builder::open_files_max) with which the
    /// process has descriptors for all `connections`, or `None` if the default leaves enough. The
    /// database keeps at least a quarter of the descriptors (`ulimit -n`).
    pub fn open_files_max(&self) -> Option<usize> {
        descriptors::tables_max(self.connections, descriptors::limit())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            head_bytes: 32 << 10,
            value_bytes: 1 << 30,
            batch_bytes: 16 << 20,
            batch_operations: 100_000,
            uploads: 16,
            codings: 32,
            handshake_time: Duration::from_secs(10),
            head_time: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            rate_min: 16 << 10,
            snapshots: 64,
            snapshot_life: Duration::from_secs(60),
            streams: 128,
            backups: 2,
            heartbeat: Duration::from_secs(15),
            ticket_life: Duration::from_secs(3600),
            drain: Duration::from_secs(10),
        }
    }
}
