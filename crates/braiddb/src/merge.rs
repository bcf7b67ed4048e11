//! Merge functions of a database, and the sets of the function `union`.

pub use crate::{
    codec::{decode_set, encode_set},
    db::MergeFunctionHandle,
};
