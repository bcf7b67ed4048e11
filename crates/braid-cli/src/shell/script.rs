//! Runs commands from a pipe, a file or an argument.
//!
//! The first command that fails ends the script with its exit code, and an open transaction is rolled
//! back. An answer such as "no such key" ends nothing; the script then ends with code 1.
//!
//! With `--keep-going` a script continues. INVARIANT: a command never runs in another place than the
//! one that its script names. So after an error in a transaction, or in its `begin`, nothing runs
//! until `commit`, which then fails, or `rollback`. After an error in `use`, no tree is in use; after one
//! in `at`, nothing reads or writes until an `at` succeeds.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};

use super::{
    session::{Outcome, Session},
    syntax::{self, Statement},
    words::{self, Word},
};
use crate::{
    exit::{self, OK, usage},
    output::{self, note},
};

/// A place in the commands, for messages.
#[derive(Clone, Copy)]
pub struct At {
    /// From 1.
    pub line: usize,
    /// From 1; 0 if the line has only one command.
    pub command: usize,
}

impl std::fmt::Display for At {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.command {
            0 => write!(out, "line {}", self.line),
            command => write!(out, "line {}, command {command}", self.line),
        }
    }
}

pub struct Script<'a> {
    pub session: &'a mut Session,
    pub out: &'a mut dyn Write,
    pub keep_going: bool,
    /// The code of the first error.
    failure: Option<u8>,
    /// The code of the answers.
    answer: u8,
    /// The line of `begin`.
    begun: Option<usize>,
    /// The first error in the transaction of `begun`, which must not be committed any more.
    lost: Option<At>,
}

impl<'a> Script<'a> {
    pub fn new(session: &'a mut Session, out: &'a mut dyn Write, keep_going: bool) -> Script<'a> {
        Script { session, out, keep_going, failure: None, answer: OK, begun: None, lost: None }
    }

    /// Runs all lines, and reports errors. Fails only if input or output does.
    pub fn run(&mut self, input: &mut dyn BufRead) -> Result<u8> {
        let (mut bytes, mut number) = (Vec::new(), 0);
        loop {
            bytes.clear();
            if input.read_until(b'\n', &mut bytes).context("cannot read the commands")? == 0 {
                break;
            }
            number += 1;
            let ends = match std::str::from_utf8(&bytes) {
                Ok(line) => self.line(line, number)?,
                Err(_) => {
                    let found = words::split(&String::from_utf8_lossy(&bytes));
                    let why = usage("it is not UTF-8: write bytes as \\xNN");
                    self.fail_line(At { line: number, command: 0 }, &why, &found.commands)?
                }
            };
            if ends {
                break;
            }
        }
        self.end(number)?;
        Ok(self.failure.unwrap_or(self.answer))
    }

    /// Reports a transaction that nothing ended.
    fn end(&mut self, number: usize) -> Result<()> {
        let is_open = self.session.has_transaction();
        let Some(begun) = self.begun.filter(|_| is_open || (self.lost.is_some() && self.keep_going)) else {
            return Ok(());
        };
        if self.failure.is_some() && !self.keep_going {
            note!("braid: the transaction of line {begun} is rolled back: nothing of it is stored");
            return Ok(());
        }
        let why = format!("the commands end without `commit` or `rollback`: nothing since line {begun} is stored");
        self.fail(At { line: number, command: 0 }, &usage(why)).map(drop)
    }

    /// Returns true if the script ends here.
    fn line(&mut self, line: &str, number: usize) -> Result<bool> {
        let found = words::split(line);
        let is_one = found.commands.iter().filter(|words| !words.is_empty()).count() < 2;
        let at = |index: usize| At { line: number, command: if is_one { 0 } else { index + 1 } };
        if let Some(quote) = found.open_quote {
            let index = found.commands.len() - 1;
            return self.fail_line(at(index), &usage(format!("the quote {quote} is not closed")), &found.commands);
        }
        for (index, words) in found.commands.iter().enumerate().filter(|(_, words)| !words.is_empty()) {
            if self.command(words, at(index))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn command(&mut self, words: &[Word], at: At) -> Result<bool> {
        if let Some(lost) = self.lost {
            return self.command_of_lost(lost, words, at);
        }
        let was_open = self.session.has_transaction();
        let parsed = syntax::parse(words);
        let ends = matches!(parsed, Ok(Statement::Commit { .. } | Statement::Rollback { savepoint: None }));
        let done = parsed.and_then(|statement| self.session.run(statement, self.out));
        if !was_open && self.session.has_transaction() {
            self.begun = Some(at.line);
        }
        self.out.flush()?;
        match done {
            Ok(Outcome::Quit) => Ok(true),
            Ok(Outcome::Done(code)) => {
                self.answer = self.answer.max(code);
                Ok(false)
            }
            Err(error) if exit::code_of(&error) == OK => Err(error),
            Err(error) if ends => self.fail(at, &error),
            Err(error) => self.fail_line(at, &error, &[words.to_vec()]),
        }
    }

    /// Runs a command after an error in a transaction, or in its `begin`.
    fn command_of_lost(&mut self, lost: At, words: &[Word], at: At) -> Result<bool> {
        let name = words.first().map(|word| word.text.as_str()).unwrap_or_default();
        let why = match syntax::parse(words) {
            Ok(Statement::Quit) => return Ok(true),
            Ok(Statement::Rollback { savepoint: None }) => {
                self.roll_back()?;
                return Ok(false);
            }
            Ok(Statement::Commit { .. }) => {
                self.roll_back()?;
                format!("not committed, but rolled back, since {lost} failed")
            }
            _ => {
                self.session.forget_place_of(name);
                format!("{name} is not run, since {lost} of its transaction failed: `rollback` comes first")
            }
        };
        self.fail(at, &usage(why))
    }

    fn roll_back(&mut self) -> Result<()> {
        self.lost = None;
        if self.session.has_transaction() {
            self.session.run(Statement::Rollback { savepoint: None }, self.out)?;
        }
        Ok(())
    }

    /// Reports an error of commands that did not run.
    fn fail_line(&mut self, at: At, error: &anyhow::Error, commands: &[Vec<Word>]) -> Result<bool> {
        let names = || commands.iter().filter_map(|words| Some(words.first()?.text.as_str()));
        let begins = names().any(|name| name == "begin");
        if begins && !self.session.has_transaction() {
            self.begun = Some(at.line);
        }
        if begins || self.session.has_transaction() {
            self.lost.get_or_insert(at);
        }
        names().for_each(|name| self.session.forget_place_of(name));
        self.fail(at, error)
    }

    fn fail(&mut self, at: At, error: &anyhow::Error) -> Result<bool> {
        let code = exit::code_of(error);
        output::report_error(code, &format!("{at}: {}", exit::text_of(error)));
        self.failure.get_or_insert(code);
        Ok(!self.keep_going)
    }
}
