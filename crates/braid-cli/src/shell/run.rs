//! Opens the database of `braid shell`, and chooses between terminal and script.

use std::io::{self, IsTerminal as _};

use anyhow::Result;

use super::{
    editor,
    script::Script,
    session::{Access, Session},
};
use crate::{
    arguments::ShellArguments,
    commands::{NamedTree, open_follower, open_for_writing},
    interrupt::{self, Pace},
    output::{self, Stdout},
};

pub fn run(arguments: &ShellArguments) -> Result<u8> {
    let access = match arguments.write {
        true => Access::Owner(open_for_writing(&arguments.db, &arguments.open).map_err(|error| {
            let advice = "without --write, the shell reads it beside the process that has it open";
            if is_locked(&error) { error.context(advice) } else { error }
        })?),
        false => Access::Follower(open_follower(&arguments.db, &arguments.open)?),
    };
    let mut session = Session::new(access, arguments.durability.into(), arguments.json);
    if let Some(name) = &arguments.tree {
        drop(NamedTree::open(&session.db(), name)?);
        session.tree = Some(name.clone());
    }
    let is_terminal = io::stdin().is_terminal() && output::is_terminal();
    let code = if is_terminal && arguments.commands.is_empty() {
        editor::run(&mut session, arguments)
    } else {
        run_script(&mut session, arguments)
    };
    session.close()?;
    code
}

fn is_locked(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<braiddb::Error>(), Some(braiddb::Error::Locked { .. }))
}

fn run_script(session: &mut Session, arguments: &ShellArguments) -> Result<u8> {
    interrupt::begin(Pace::AtOnce, |_| {
        "commands before the running one are done; a transaction that was not committed is rolled back".to_owned()
    });
    let mut out = Stdout::new();
    let mut script = Script::new(session, &mut out, arguments.keep_going);
    let code = match arguments.commands.as_slice() {
        [] => script.run(&mut io::stdin().lock())?,
        commands => script.run(&mut commands.join("\n").as_bytes())?,
    };
    out.finish()?;
    Ok(code)
}
