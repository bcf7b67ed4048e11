//! A disc as it is stored: the JSON of a record in the tree `albums`.
//!
//! ```json
//! {"number":17,"category":"rock","disc_ids":["a50e0a0d"],"artist":"..","title":"..","year":1999,"genre":"..",
//!  "tracks":["..",".."],"extended":"..","track_extended":["..",".."],"play_order":[1,2],
//!  "length_seconds":3600,"offsets":[150,18000],"revision":3,"submitted_via":".."}
//! ```
//!
//! What a file does not say is left out, but for `number`, `category`, `disc_ids`, `artist`, `title` and `tracks`.

use serde::Serialize;

/// One disc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Disc {
    /// The number of the record in the dump: its key.
    pub number: u64,
    /// The folder.
    pub category: String,
    /// The ids, eight lower-case hexadecimal digits each: those of the file and then that of its name, if it is
    /// another.
    pub disc_ids: Vec<String>,
    /// Before the ` / ` of DTITLE.
    pub artist: String,
    /// After it; the same as the artist where there is no ` / `.
    pub title: String,
    /// DYEAR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub year: Option<u16>,
    /// DGENRE.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub genre: String,
    /// TTITLE0 and on.
    pub tracks: Vec<String>,
    /// EXTD.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub extended: String,
    /// EXTT0 and on, as many as there are tracks; empty if all of them are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub track_extended: Vec<String>,
    /// PLAYORDER.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub play_order: Vec<u32>,
    /// From the comments: the playing time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_seconds: Option<u32>,
    /// From the comments: where each track begins, in frames of 1/75 s.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offsets: Vec<u32>,
    /// From the comments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// From the comments: the program that sent it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub submitted_via: String,
}
