//! Runs commands from a pipe, a file or an argument.
//!
//! The first command that fails ends the script with its exit code, and an open transaction is rolled
//! back. An answer such as "no such key" ends nothing; the script then ends with code 1.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};

use super::{
    session::{Outcome, Session},
    syntax,
    words::{self, Word},
};
use crate::{
    exit::{self, OK, usage},
    output,
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
}

impl<'a> Script<'a> {
    pub fn new(session: &'a mut Session, out: &'a mut dyn Write, keep_going: bool) -> Script<'a> {
        Script { session, out, keep_going, failure: None, answer: OK, begun: None }
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
                    self.fail(At { line: number, command: 0 }, &usage("it is not UTF-8: write bytes as \\xNN"))?
                }
            };
            if ends {
                break;
            }
        }
        if let Some(begun) = self.begun.filter(|_| self.failure.is_none() && self.session.has_transaction()) {
            let why =
                usage(format!("the commands end without `commit` or `rollback`: nothing since line {begun} is stored"));
            self.fail(At { line: number, command: 0 }, &why)?;
        }
        Ok(self.failure.unwrap_or(self.answer))
    }

    /// Returns true if the script ends here.
    fn line(&mut self, line: &str, number: usize) -> Result<bool> {
        let found = words::split(line);
        let is_one = found.commands.iter().filter(|words| !words.is_empty()).count() < 2;
        let at = |index: usize| At { line: number, command: if is_one { 0 } else { index + 1 } };
        if let Some(quote) = found.open_quote {
            let index = found.commands.len() - 1;
            return self.fail(at(index), &usage(format!("the quote {quote} is not closed")));
        }
        for (index, words) in found.commands.iter().enumerate().filter(|(_, words)| !words.is_empty()) {
            if self.command(words, at(index))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn command(&mut self, words: &[Word], at: At) -> Result<bool> {
        let was_open = self.session.has_transaction();
        let done = syntax::parse(words).and_then(|statement| self.session.run(statement, self.out));
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
            Err(error) => self.fail(at, &error),
        }
    }

    fn fail(&mut self, at: At, error: &anyhow::Error) -> Result<bool> {
        let code = exit::code_of(error);
        output::report_error(code, &format!("{at}: {}", exit::text_of(error)));
        self.failure.get_or_insert(code);
        Ok(!self.keep_going)
    }
}
