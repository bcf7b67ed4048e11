//! Typed trees for [BraidDB](braiddb): keys are tuples, values are serde types, and secondary
//! indexes are kept in the same commit.
//!
//! - **Keys** have the encoding of FoundationDB's tuple layer: libraries of many languages read it,
//!   and its byte order is the order of the tuples ([`TupleKey`], `#[derive(TupleKey)]`).
//! - **Values** are [`Json`] by default, [`MessagePack`], [`Raw`] bytes, or of a codec of your own
//!   ([`ValueCodec`]). The tree's catalog entry names the codec, so every tool can decode the tree.
//! - **Indexes** are declared once, in [`TypedTree::builder`]. They may be unique. A record and its
//!   entries are written by one transaction and expire together.
//!
//! ```
//! # fn main() -> braiddb_typed::Result<()> {
//! use braiddb_typed::{TupleKey, TypedTree};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, PartialEq, TupleKey)]
//! struct Place {
//!     country: String,
//!     city: String,
//! }
//!
//! #[derive(Debug, PartialEq, Serialize, Deserialize)]
//! struct Weather {
//!     celsius: f64,
//! }
//!
//! let db = braiddb::Db::in_memory()?;
//! let weather: TypedTree<Place, Weather> = TypedTree::open(&db, "weather")?;
//! let place = |country: &str, city: &str| Place { country: country.to_owned(), city: city.to_owned() };
//! weather.put(&place("pt", "Porto"), &Weather { celsius: 19.5 })?;
//! weather.put(&place("pt", "Lisboa"), &Weather { celsius: 23.0 })?;
//! weather.put(&place("se", "Lund"), &Weather { celsius: 11.5 })?;
//!
//! let records = weather.prefix(&("pt",)).collect::<braiddb_typed::Result<Vec<_>>>()?;
//! let cities: Vec<&str> = records.iter().map(|(place, _)| place.city.as_str()).collect();
//! assert_eq!(cities, ["Lisboa", "Porto"]);
//! let (last, _) = weather.last()?.unwrap();
//! assert_eq!(last.country, "se");
//! # Ok(())
//! # }
//! ```

mod batch;
mod builder;
mod codec;
mod definitions;
mod element;
mod entry;
mod error;
pub mod guard;
mod key;
mod maintenance;
mod puts;
mod schema;
mod source;
pub mod text;
mod tree;
mod view;
mod write;

pub use batch::TypedBatch;
#[cfg(feature = "derive")]
pub use braiddb_typed_derive::TupleKey;
pub use builder::{Builder, KEY_CODEC};
#[cfg(feature = "msgpack")]
pub use codec::MessagePack;
pub use codec::{Json, Raw, ValueCodec};
pub use error::{BoxError, Error, Result};
pub use foundationdb_tuple as tuple;
pub use key::{BEYOND_RECORDS, Timestamp, TupleKey};
pub use maintenance::{IndexProblem, IndexProblemKind, IndexReport};
pub use tree::TypedTree;
pub use view::{IndexRecords, Records, View};
pub use write::InTransaction;

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
enum Readme {}

/// The examples of the guide's page about keys, which use both crates.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/modelling.md")]
enum Modelling {}
