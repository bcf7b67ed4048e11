//! Tests of the built `braid` command.

mod archive_gaps;
mod backup;
mod backup_databases;
mod bench;
mod beside_writer;
mod common;
mod creation;
mod damage_keys;
mod database_argument;
mod demo;
mod dump;
mod exit_codes;
mod exit_table;
mod explain;
mod export;
mod find_numbers;
mod freedb;
mod full_disk;
#[cfg(feature = "completions")]
mod generate;
mod import_contents;
mod import_dirt;
mod import_failures;
mod import_formats;
mod import_inputs;
mod import_progress;
mod import_rejects;
mod import_resume;
mod import_tables;
mod index;
mod index_interrupted;
mod index_rules;
#[cfg(target_os = "linux")]
mod interrupts;
mod keys;
mod leftovers;
mod named_commands;
#[cfg(unix)]
mod outputs;
mod places;
mod point;
#[cfg(target_os = "linux")]
mod read_only;
mod salvage;
mod scan;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "shell")]
mod shell;
mod stats;
mod text_form;
#[cfg(feature = "top")]
mod top;
mod tree_commands;
mod trees;
mod typed;
mod upgrade;
mod verbose;
mod verify;
mod watch;
