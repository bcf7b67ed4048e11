//! The shell on a terminal: line editor, history and Ctrl-C.

use std::{
    borrow::Cow,
    cell::RefCell,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rustyline::{
    CompletionType, Config, Context, Editor, Helper,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::FileHistory,
    validate::Validator,
};

use super::{
    complete,
    session::{Outcome, Session},
    syntax, words,
};
use crate::{
    arguments::ShellArguments,
    exit::{self, OK, usage},
    notation::show_name,
    output::{self, Stdout, note},
};

const HISTORY_LINES: usize = 10_000;

pub fn run(session: &mut Session, arguments: &ShellArguments) -> Result<u8> {
    #[cfg(unix)]
    signal_hook::flag::register(signal_hook::consts::SIGINT, session.stop_flag()).context("cannot catch Ctrl-C")?;
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .history_ignore_dups(true)
        .and_then(|config| config.max_history_size(HISTORY_LINES))
        .context("cannot configure the line editor")?
        .build();
    let history = history_file(arguments)?;
    let session = RefCell::new(session);
    let mut editor: Editor<Assistant<'_, '_>, FileHistory> =
        Editor::with_config(config).context("cannot use the terminal")?;
    editor.set_helper(Some(Assistant { session: &session }));
    if let Some(path) = history.as_deref().filter(|path| path.exists()) {
        editor.load_history(path).unwrap_or_else(|error| note!("braid: cannot read {}: {error}", path.display()));
    }
    note!("{}", greeting(arguments, &session.borrow()));
    let done = read_lines(&mut editor, &session, arguments);
    if session.borrow().has_transaction() {
        note!("braid: the transaction was not committed, and is rolled back");
    }
    if let Some(path) = &history {
        editor.append_history(path).unwrap_or_else(|error| note!("braid: cannot write {}: {error}", path.display()));
    }
    done.map(|()| OK)
}

fn read_lines(
    editor: &mut Editor<Assistant<'_, '_>, FileHistory>,
    session: &RefCell<&mut Session>,
    arguments: &ShellArguments,
) -> Result<()> {
    loop {
        let prompt = prompt(&session.borrow(), &arguments.db);
        match editor.readline(&prompt) {
            Ok(line) => {
                editor.add_history_entry(&line).context("cannot keep the history")?;
                if run_line(&mut session.borrow_mut(), &line)? {
                    return Ok(());
                }
            }
            // Ctrl-C discards the line.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error).context("cannot read from the terminal"),
        }
    }
}

/// Runs the commands of a line up to the first error. Returns true to end the shell.
fn run_line(session: &mut Session, line: &str) -> Result<bool> {
    let found = words::split(line);
    if let Some(quote) = found.open_quote {
        report(&usage(format!("the quote {quote} is not closed")));
        return Ok(false);
    }
    for words in found.commands.iter().filter(|words| !words.is_empty()) {
        let mut out = Stdout::new();
        let done = syntax::parse(words).and_then(|statement| session.run(statement, &mut out));
        out.finish()?;
        match done {
            Ok(Outcome::Quit) => return Ok(true),
            Ok(Outcome::Done(_)) => {}
            Err(error) if exit::code_of(&error) == OK => return Err(error),
            Err(error) => {
                report(&error);
                return Ok(false);
            }
        }
    }
    Ok(false)
}

fn report(error: &anyhow::Error) {
    output::report_error(exit::code_of(error), &exit::text_of(error));
}

fn greeting(arguments: &ShellArguments, session: &Session) -> String {
    let access = if session.is_read_only() { "for reading; --write permits writes" } else { "for reading and writing" };
    format!("{} is open {access}. `help` lists the commands.", arguments.db.display())
}

/// Database, current tree, snapshot, and a star while a transaction is open.
fn prompt(session: &Session, db: &Path) -> String {
    let mut prompt = db.file_name().unwrap_or(db.as_os_str()).to_string_lossy().into_owned();
    if let Some(tree) = session.current_tree() {
        prompt.push(' ');
        prompt.push_str(&show_name(tree));
    }
    if let Some(snapshot) = session.snapshot_in_use() {
        prompt.push('@');
        prompt.push_str(snapshot);
    }
    if session.has_transaction() {
        prompt.push('*');
    }
    prompt + "> "
}

/// Returns the file of the history, in a directory that only the user can read.
fn history_file(arguments: &ShellArguments) -> Result<Option<PathBuf>> {
    let Some(folder) = state_folder().filter(|_| !arguments.no_history) else { return Ok(None) };
    if let Err(error) = create_private(&folder) {
        note!("braid: no history: cannot create {}: {error}", folder.display());
        return Ok(None);
    }
    Ok(Some(folder.join("history")))
}

fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn state_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || variable("HOME");
    let base = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Application Support"))
    } else {
        variable("XDG_STATE_HOME").or_else(|| home().map(|home| home.join(".local/state")))
    };
    base.map(|base| base.join("braid"))
}

struct Assistant<'a, 'b> {
    session: &'a RefCell<&'b mut Session>,
}

impl Completer for Assistant<'_, '_> {
    type Candidate = Pair;

    fn complete(&self, line: &str, place: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = complete::complete(&self.session.borrow(), &line[..place]);
        let pair = |text: String| Pair { display: text.trim_end().to_owned(), replacement: text };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Assistant<'_, '_> {
    type Hint = String;

    fn hint(&self, line: &str, place: usize, _: &Context<'_>) -> Option<String> {
        if place < line.len() { None } else { complete::hint(line) }
    }
}

impl Highlighter for Assistant<'_, '_> {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[2m{hint}\x1b[m"))
    }
}

impl Validator for Assistant<'_, '_> {}

impl Helper for Assistant<'_, '_> {}
