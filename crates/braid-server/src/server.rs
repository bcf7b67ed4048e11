//! The listening socket, its connections, and the stop.

use crate::{
    connection::{self, first_of, stopped},
    descriptors, monitor,
    options::Options,
    service::Service,
    store::Store,
};
use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};
use tokio::{
    runtime,
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};

/// Maximum threads for calls that may take long.
const POOL_THREADS: usize = 64;
/// Pause after a failed accept: usually all descriptors of the process are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_secs(1);

/// An HTTP server. Its address is a loopback one, unless it has TLS.
///
/// [`Server::bind`] listens, so clients may connect; [`Server::run`] answers them.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    service: Arc<Service>,
    workers: usize,
    stop: Arc<watch::Sender<bool>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Stops a [`Server`] from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Ends [`Server::run`] when the running requests are answered, or after
    /// [`Limits::drain`](crate::Limits). A second call has no effect.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Listens at an address; port 0 chooses a free one. Refuses addresses other than loopback ones
    /// if the options have no TLS.
    pub fn bind(address: SocketAddr, store: Store, options: Options) -> io::Result<Server> {
        if !address.ip().is_loopback() && !options.is_encrypted() {
            let message = format!(
                "{} is not a loopback address: give a TLS certificate, or listen at 127.0.0.1 or [::1] and reach \
                 it through SSH or a proxy with TLS",
                address.ip()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let workers = thread::available_parallelism().map_or(2, |count| count.get().max(2));
        let service = Arc::new(Service::new(store, options, workers)?);
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Server { listener, address, service, workers, stop: Arc::new(watch::channel(false).0) })
    }

    /// Returns the address with the port chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bearer token that requests must have.
    pub fn token(&self) -> &str {
        self.service.token()
    }

    /// Returns the maximum of open connections: [`Limits::connections`](crate::Limits), or fewer if the
    /// process may not open as many descriptors (`ulimit -n`).
    pub fn connections(&self) -> usize {
        let tables = self.service.db().stats().open_files_max;
        descriptors::connections_max(self.service.limits().connections, descriptors::limit(), tables)
    }

    /// Returns a handle that ends [`Server::run`].
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Serves until [`Stopper::stop`]. The database stays open: close it afterwards.
    ///
    /// Starts threads of its own and blocks this one. Inside an asynchronous runtime, call it on a
    /// thread that may block, such as one of `tokio::task::spawn_blocking`.
    ///
    /// # Panics
    ///
    /// If the thread drives tasks of a tokio runtime.
    pub fn run(self) -> io::Result<()> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(self.workers)
            .max_blocking_threads(POOL_THREADS)
            .thread_name("braid-http")
            .enable_io()
            .enable_time()
            .build()?;
        let served = runtime.block_on(self.serve());
        runtime.shutdown_timeout(TICK);
        served
    }

    async fn serve(self) -> io::Result<()> {
        let connections = self.connections();
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let limits = self.service.limits().clone();
        let turns = Arc::new(Semaphore::new(connections));
        let mut stop = self.stop.subscribe();
        let snapshots = Arc::clone(self.service.snapshots());
        tokio::spawn(async move {
            loop {
                sleep(TICK).await;
                snapshots.drop_expired();
            }
        });
        tokio::spawn(monitor::sample(Arc::downgrade(&self.service)));
        let accept = async {
            loop {
                let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let served = connection::serve(Arc::clone(&self.service), stream, peer, self.stop.subscribe());
                        tokio::spawn(async move {
                            served.await;
                            drop(turn);
                        });
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                }
            }
        };
        let _ = first_of(accept, stopped(&mut stop)).await;
        // Refuses new connections at once.
        drop(listener);
        self.service.streams().end_all();
        let all = turns.acquire_many(u32::try_from(connections).unwrap_or(u32::MAX));
        let _ = timeout(limits.drain, all).await;
        self.service.snapshots().drop_all();
        Ok(())
    }
}
