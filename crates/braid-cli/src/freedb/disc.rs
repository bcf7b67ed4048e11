//! The stored form of a disc: the JSON of a record in the tree `albums`.
//!
//! ```json
//! {"number":17,"category":"rock","disc_ids":["a50e0a0d"],"artist":"..","title":"..","year":1999,"genre":"..",
//!  "tracks":["..",".."],"extended":"..","track_extended":["..",".."],"play_order":[1,2],
//!  "length_seconds":3600,"offsets":[150,18000],"revision":3,"submitted_via":".."}
//! ```
//!
//! Missing data is omitted, except `number`, `category`, `disc_ids`, `artist`, `title` and
//! `tracks`.

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disc {
    pub number: u64,
    pub category: String,
    /// Ids of eight lower-case hexadecimal digits: those in the file, then that of its name if
    /// different.
    pub disc_ids: Vec<String>,
    /// DTITLE before ` / `.
    pub artist: String,
    /// DTITLE after ` / `; same as the artist if there is no ` / `.
    pub title: String,
    /// DYEAR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub year: Option<u16>,
    /// DGENRE.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub genre: String,
    /// TTITLE0 and following.
    pub tracks: Vec<String>,
    /// EXTD.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub extended: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub track_extended: Vec<String>,
    /// PLAYORDER.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub play_order: Vec<u32>,
    /// Playing time, from the comments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_seconds: Option<u32>,
    /// Start of each track in frames of 1/75 s, from the comments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offsets: Vec<u32>,
    /// From the comments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The submitting program, from the comments.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub submitted_via: String,
}
