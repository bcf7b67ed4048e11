//! The HTTP service of BraidDB: the command `braid serve`, and the same as a library.
//!
//! `docs/http.md` is the reference of the protocol. Records are resources: `GET`, `PUT` and `DELETE`
//! of `/trees/{tree}/{key}`, with the record's version as `ETag`.
//!
//! **Threads.** A few tokio workers drive all connections. A durable write waits in the engine's
//! queue of asynchronous commits and blocks no thread. Short engine calls run on the workers while
//! they are fast; others run in a pool of limited size (INVARIANT H1, `place.rs`).
//!
//! **Memory.** A connection has a header buffer, an output buffer and at most one chunk of a body,
//! each of 64 KiB or a limit in [`Limits`]. Uploads of more than 64 KiB are few at a time.
//!
//! ```no_run
//! use braid_server::{Options, Server, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = braiddb::Db::open("app.db")?;
//! let options = Options::new().write(true);
//! let server = Server::bind("127.0.0.1:8080".parse()?, Store::owner(&db), options)?;
//! println!("http://{} with the token {}", server.address(), server.token());
//! server.run()?; // until `Stopper::stop`
//! db.close()?;
//! # Ok(())
//! # }
//! ```

mod access;
mod backup;
mod batch;
mod body;
mod changes;
mod coding;
mod compress;
mod conditions;
mod connection;
mod decompress;
mod descriptors;
mod event_text;
mod guard;
mod journal;
mod json;
mod live;
mod load;
mod metrics;
mod monitor;
mod opened;
mod options;
mod page;
mod pairs;
mod place;
mod problem;
mod query;
mod range;
mod record;
mod route;
mod rows;
mod rules;
mod scan;
mod server;
mod service;
mod snapshots;
mod stats;
mod store;
mod ticket;
#[cfg(feature = "tls")]
mod tls;
mod token;
mod tree_changes;
mod trees;
mod turns;
mod upload;
#[cfg(feature = "tls")]
mod validity;

pub use access::{Access, AccessLog};
pub use journal::Journal;
pub use options::{Limits, Options};
pub use rules::Rules;
pub use server::{Server, Stopper};
pub use store::Store;
#[cfg(feature = "tls")]
pub use tls::Tls;
