//! Bulk loads: sort, spill, write runs and install them.

pub mod bulk;
pub mod dumped;
pub mod entries;
pub mod external_table;
pub mod install;
pub mod placement;
pub mod sorter;
pub mod spill;
mod table_export;
#[cfg(test)]
pub mod tests;
pub mod writer;
