//! Dispatches the command line to the commands.

use std::time::Instant;

use anyhow::Result;

#[cfg(feature = "completions")]
use super::generate;
#[cfg(feature = "serve")]
use super::serve;
use super::{
    backup, copy_tree, count, created, dump, explain, export, find, import, index, maintenance, point, salvage, scan,
    stats, tree_names, verify, watch,
};
use crate::{arguments::Command, bench, demo};

pub fn run(command: Command) -> Result<u8> {
    let begun = Instant::now();
    let done = run_command(command);
    tracing::info!("the command took {:.1?}", begun.elapsed());
    if done.is_err() {
        created::remove_if_empty();
    }
    done
}

fn run_command(command: Command) -> Result<u8> {
    match command {
        Command::Create(arguments) => maintenance::create(&arguments),
        Command::Get(arguments) => point::get(&arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Put(arguments) => point::put(&arguments),
        Command::Del(arguments) => point::del(&arguments),
        Command::Count(arguments) => count::count(&arguments),
        Command::Scan(arguments) => scan::scan(&arguments),
        Command::Trees(arguments) => maintenance::trees(&arguments),
        Command::DropTree(arguments) => tree_names::drop_tree(&arguments),
        Command::RenameTree(arguments) => tree_names::rename_tree(&arguments),
        Command::CopyTree(arguments) => copy_tree::copy_tree(&arguments),
        Command::Import(arguments) => import::import(arguments),
        Command::Index(command) => index::index(&command),
        Command::Find(arguments) => find::find(&arguments),
        Command::Export(arguments) => export::export(&arguments),
        Command::Watch(arguments) => watch::watch(&arguments),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Stats(arguments) => stats::stats(&arguments),
        #[cfg(feature = "top")]
        Command::Top(arguments) => crate::top::run(&arguments),
        Command::Verify(arguments) => verify::verify(&arguments),
        Command::Compact(arguments) => maintenance::compact(&arguments),
        Command::Backup(command) => backup::backup(&command),
        Command::Restore(arguments) => backup::restore(&arguments),
        Command::Archive(arguments) => backup::archive(&arguments),
        Command::Checkpoint(arguments) => backup::checkpoint(&arguments),
        Command::Dump(arguments) => dump::dump(&arguments),
        Command::Load(arguments) => dump::load(&arguments),
        Command::Salvage(arguments) => salvage::salvage(&arguments),
        Command::Upgrade(arguments) => maintenance::upgrade(&arguments),
        Command::Inspect(arguments) => maintenance::inspect(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        #[cfg(feature = "shell")]
        Command::Shell(arguments) => crate::shell::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        #[cfg(feature = "completions")]
        Command::Completions(arguments) => generate::completions(&arguments),
        #[cfg(feature = "completions")]
        Command::Man(arguments) => generate::man(&arguments),
    }
}
