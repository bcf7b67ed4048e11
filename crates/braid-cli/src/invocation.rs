//! Parses the command line.
//!
//! `--db` and the environment variable `BRAID_DB` replace the argument DB. So a line is parsed twice:
//! with DB as the first argument, and without it. If both parses succeed, the line has two meanings
//! and is refused.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, error::ErrorKind};

use crate::{
    arguments::Arguments,
    exit::{self, USAGE},
    output,
};

pub const DATABASE_VARIABLE: &str = "BRAID_DB";

const DATABASE: &str = "db";
const DATABASE_OPTION: &str = "database";
const JSON: &str = "json";

pub struct Invocation {
    pub arguments: Arguments,
    pub is_json: bool,
}

pub enum Refusal {
    /// An error of the parser, or its help.
    Clap(clap::Error),
    Ambiguous(String),
}

/// Returns the command with all options, for help, completions and manual pages.
pub fn command() -> Command {
    let option = |command: Command| {
        let option = Arg::new(DATABASE_OPTION)
            .long(DATABASE)
            .value_name("DB")
            .value_parser(clap::value_parser!(std::path::PathBuf))
            .conflicts_with(DATABASE)
            .help("The database, in place of the argument DB [default: that of the environment variable BRAID_DB]");
        command.arg(option)
    };
    change_each(whole(), &option)
}

/// Returns the command whose options take negative numbers as values, so that the error names the
/// value. Without it, clap advises to write `--limit -- -1`, which fails too.
fn whole() -> Command {
    fn changed(command: Command) -> Command {
        let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let command = command.mut_args(|argument| match argument.get_action().takes_values() {
            true if !argument.is_positional() && !argument.is_allow_hyphen_values_set() => {
                argument.allow_negative_numbers(true)
            }
            _ => argument,
        });
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, changed))
    }
    changed(Arguments::command())
}

/// Returns the command with `--db` in place of the argument DB.
fn command_without_argument(default: Option<&OsStr>) -> Command {
    let change = |command: Command| {
        command.mut_arg(DATABASE, |argument| {
            let argument = argument.long(DATABASE).value_name("DB");
            match default {
                Some(path) => argument.required(false).default_value(path.to_owned()),
                None => argument,
            }
        })
    };
    change_each(whole(), &change)
}

/// Changes each command that takes a database as its first argument.
fn change_each(command: Command, change: &impl Fn(Command) -> Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let takes_database = command.get_positionals().next().is_some_and(|argument| argument.get_id() == DATABASE);
    let command = if takes_database { change(command) } else { command };
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |inner| change_each(inner, change)))
}

pub fn parse(line: &[OsString], variable: Option<OsString>) -> Result<Invocation, Refusal> {
    let variable = variable.filter(|path| !path.is_empty());
    let has_option = line.iter().any(|word| word == "--db" || word.as_encoded_bytes().starts_with(b"--db="));
    let with_argument = match with_argument(line) {
        Ok((found, takes_database)) if !takes_database => return Ok(found),
        other => other.map(|(found, _)| found),
    };
    if variable.is_none() && !has_option {
        return with_argument.map_err(Refusal::Clap);
    }
    let matches = command_without_argument(variable.as_deref()).try_get_matches_from(line);
    match (with_argument, matches.and_then(invocation)) {
        (Ok(_), Ok(_)) => Err(Refusal::Ambiguous(ambiguity(line, variable))),
        (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
        (Err(error), Err(_)) if is_answer(&error) => Err(Refusal::Clap(error)),
        (Err(error), Err(_)) if !has_option && error.kind() != ErrorKind::MissingRequiredArgument => {
            Err(Refusal::Clap(error))
        }
        (Err(_), Err(error)) => Err(Refusal::Clap(error)),
    }
}

/// Also returns whether the command takes a database.
fn with_argument(line: &[OsString]) -> Result<(Invocation, bool), clap::Error> {
    let matches = command().try_get_matches_from(line)?;
    let option = leaf(&matches).try_contains_id(DATABASE_OPTION).ok();
    match option {
        Some(true) => Err(clap::Error::new(ErrorKind::ArgumentConflict)),
        _ => Ok((invocation(matches)?, option.is_some())),
    }
}

fn invocation(matches: ArgMatches) -> Result<Invocation, clap::Error> {
    let is_json = leaf(&matches).try_get_one::<bool>(JSON).ok().flatten() == Some(&true);
    Ok(Invocation { arguments: Arguments::from_arg_matches(&matches)?, is_json })
}

fn leaf(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| leaf(inner))
}

fn is_answer(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

fn ambiguity(line: &[OsString], variable: Option<OsString>) -> String {
    let words: Vec<String> = line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words = words.join(" ");
    match variable {
        Some(path) => format!(
            "{DATABASE_VARIABLE} is set to {}, so `braid {words}` has two meanings: its first argument is a database, or it \
             is not. Name the database with --db",
            path.display()
        ),
        None => {
            format!("`braid {words}` has two meanings: write options before `--`, and their values as --option=value")
        }
    }
}

/// Ends the process. Prints an object if the line asks for JSON.
pub fn refuse(refusal: &Refusal, line: &[OsString]) -> ! {
    let is_json = line.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    output::set_json(is_json);
    match refusal {
        Refusal::Ambiguous(why) => {
            output::report_error(USAGE, why);
            std::process::exit(i32::from(USAGE))
        }
        Refusal::Clap(error) if is_json && !is_answer(error) => {
            let text = exit::with_advice(error);
            let text = text.split("\n\n").next().unwrap_or_default();
            output::report_error(USAGE, text.trim_start_matches("error: ").trim_end());
            std::process::exit(i32::from(USAGE))
        }
        Refusal::Clap(error) => exit::refuse_arguments(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Command as Wanted;

    fn parsed(line: &str, variable: Option<&str>) -> Result<Invocation, String> {
        let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        parse(&line, variable.map(OsString::from)).map_err(|refusal| match refusal {
            Refusal::Clap(error) => error.to_string(),
            Refusal::Ambiguous(why) => format!("ambiguous: {why}"),
        })
    }

    fn database_of(line: &str, variable: Option<&str>) -> Result<String, String> {
        let path = match parsed(line, variable)?.arguments.command {
            Wanted::Get(arguments) => arguments.db,
            Wanted::Del(arguments) => arguments.db,
            Wanted::Export(arguments) => arguments.db,
            Wanted::Dump(arguments) => arguments.db,
            Wanted::Stats(arguments) => arguments.db,
            Wanted::Restore(arguments) => arguments.db,
            other => panic!("{other:?}"),
        };
        Ok(path.display().to_string())
    }

    #[test]
    fn database_comes_from_argument_option_or_variable() {
        for (line, variable, expected) in [
            ("braid get a t k", None, "a"),
            ("braid get --db a t k", None, "a"),
            ("braid get t k --db=a", None, "a"),
            ("braid get t k", Some("env"), "env"),
            ("braid get a t k", Some("env"), "a"),
            ("braid get --db a t k", Some("env"), "a"),
            ("braid stats", Some("env"), "env"),
            ("braid stats", Some("-env"), "-env"),
            ("braid stats a", Some("env"), "a"),
            ("braid export", Some("env"), "env"),
            ("braid export --db a b c", Some("env"), "a"),
            ("braid export b --db a", None, "a"),
            ("braid dump", Some("env"), "env"),
            ("braid dump a b", Some("env"), "a"),
            ("braid del t k", Some("env"), "env"),
            ("braid del a t --prefix k", Some("env"), "a"),
            ("braid del t --prefix k", Some("env"), "env"),
            // A command that makes a database takes none from the variable.
            ("braid restore b a", Some("env"), "a"),
            ("braid stats a", Some(""), "a"),
        ] {
            assert_eq!(database_of(line, variable).as_deref(), Ok(expected), "{line} {variable:?}");
        }
    }

    #[test]
    fn line_with_two_meanings_is_refused() {
        for line in ["braid export a", "braid dump a", "braid export a b"] {
            let why = database_of(line, Some("env")).unwrap_err();
            assert!(why.starts_with("ambiguous: BRAID_DB is set to env"), "{why}");
        }
    }

    #[test]
    fn missing_or_second_database_is_refused() {
        for (line, variable, part) in [
            ("braid get t k", None, "KEY"),
            ("braid stats", None, "DB"),
            ("braid stats", Some(""), "DB"),
            ("braid stats --db a b", None, "unexpected argument"),
            ("braid stats --db", None, "a value is required"),
            ("braid get t", Some("env"), "KEY"),
            ("braid restore b", Some("env"), "DB"),
            ("braid get t k --oops", Some("env"), "--oops"),
            ("braid scan a t --limit -1", None, "invalid value '-1' for '--limit <N>'"),
            ("braid scan t --limit -1", Some("env"), "invalid value '-1' for '--limit <N>'"),
        ] {
            let why = database_of(line, variable).unwrap_err();
            assert!(why.contains(part) && !why.starts_with("ambiguous"), "{line}: {why}");
        }
    }

    #[test]
    fn json_of_any_depth_is_found() {
        assert!(parsed("braid stats a --json", None).is_ok_and(|found| found.is_json));
        assert!(parsed("braid backup list a --json", None).is_ok_and(|found| found.is_json));
        assert!(parsed("braid stats --json", Some("env")).is_ok_and(|found| found.is_json));
        assert!(parsed("braid stats a", None).is_ok_and(|found| !found.is_json));
    }

    #[test]
    fn command_of_completions_is_valid() {
        command().debug_assert();
        command_without_argument(Some(OsStr::new("env"))).debug_assert();
    }
}
