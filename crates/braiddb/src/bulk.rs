//! Loads of many records, and tables that are built elsewhere.

pub use crate::db::{
    BulkLoader, BulkOptions, BulkProgress, Loaded, MultiBulkLoader, TableBuilder, TableInfo, TableSpec, UnsortedLoader,
};
