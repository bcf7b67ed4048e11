//! Runs the examples of docs/guide as doctests. A published crate lacks that folder, so nothing else
//! may include it.

#[doc = include_str!("../../../docs/guide/getting-started.md")]
enum GettingStarted {}
#[doc = include_str!("../../../docs/guide/transactions.md")]
enum Transactions {}
#[doc = include_str!("../../../docs/guide/durability.md")]
enum Durability {}
#[doc = include_str!("../../../docs/guide/tuning.md")]
enum Tuning {}
#[doc = include_str!("../../../docs/guide/processes.md")]
enum Processes {}
#[doc = include_str!("../../../docs/guide/operations.md")]
enum Operations {}
#[doc = include_str!("../../../docs/guide/migrating.md")]
enum Migrating {}
#[doc = include_str!("../../../docs/guide/faq.md")]
enum Faq {}
