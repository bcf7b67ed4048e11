//! The help of the shell, from its table of commands.

use std::io::Write;

use anyhow::Result;

use super::syntax::{SPECS, Spec, spec_of};
use crate::exit::{NOT_FOUND, failure};

const NOTES: &str = "
A command without TREE works on the current tree: see `use`. Keys and values are in the text form, in
which they are printed: \\\\ is a backslash, \\xNN any byte. 'a b' and \"a b\" are one word, and so is a
JSON array or object. `;` separates commands, # begins a comment, and Ctrl-C ends a command.
`help COMMAND` lists the options.
";

pub fn write(command: Option<&str>, out: &mut dyn Write) -> Result<()> {
    let Some(name) = command else {
        let width = SPECS.iter().map(|spec| form(spec).len()).max().unwrap_or(0);
        for spec in SPECS {
            writeln!(out, "{:width$}  {}", form(spec), spec.summary)?;
        }
        out.write_all(NOTES.as_bytes())?;
        return Ok(());
    };
    let spec = spec_of(name).ok_or_else(|| failure(NOT_FOUND, format!("there is no command {name:?}")))?;
    writeln!(out, "{}: {}", form(spec), spec.summary)?;
    let shown = |name: &str, has_value: bool| format!("{name}{}", if has_value { " VALUE" } else { "" });
    let width = spec.options.iter().map(|option| shown(option.name, option.value.is_some()).len()).max().unwrap_or(0);
    for option in spec.options {
        writeln!(out, "  {:width$}  {}", shown(option.name, option.value.is_some()), option.summary)?;
    }
    Ok(())
}

fn form(spec: &Spec) -> String {
    format!("{} {}", spec.name, spec.usage).trim_end().to_owned()
}
