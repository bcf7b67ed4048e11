//! `braid completions` and `braid man`

use std::{fs, io::Write};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    arguments::{CompletionsArguments, ManArguments},
    exit::OK,
    invocation::command,
    notation::show_counted,
    output::{Stdout, print_line},
    places::{check_outside_databases, check_parent},
};

pub fn completions(arguments: &CompletionsArguments) -> Result<u8> {
    // The generators panic if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command(), "braid", &mut script);
    let mut out = Stdout::new();
    out.write_all(&script)?;
    out.finish()?;
    Ok(OK)
}

pub fn man(arguments: &ManArguments) -> Result<u8> {
    let dir = &arguments.dir;
    check_outside_databases(dir, "the manual pages")?;
    if !dir.is_dir() {
        check_parent(dir)?;
        fs::create_dir(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let mut pages = Vec::new();
    write_pages(command(), "braid", &mut pages)?;
    for (name, page) in &pages {
        let path = dir.join(name);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match arguments.json {
        true => print_line(json!({"pages": pages.iter().map(|(name, _)| name).collect::<Vec<_>>()}))?,
        false => print_line(format_args!("{} in {}", show_counted(pages.len() as u64, "page"), dir.display()))?,
    }
    Ok(OK)
}

/// Renders a page for the command and one for each of its commands.
fn write_pages(command: clap::Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let command = command.display_name(name).bin_name(name.replace('-', " ")).disable_help_subcommand(true);
    for inner in command.get_subcommands() {
        write_pages(inner.clone().version(env!("CARGO_PKG_VERSION")), &format!("{name}-{}", inner.get_name()), pages)?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).title(name.to_uppercase()).manual("BraidDB").render(&mut page)?;
    pages.push((format!("{name}.1"), page));
    Ok(())
}
