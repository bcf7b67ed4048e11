//! `braid completions` and `braid man`.

use crate::common;

use common::Workplace;
use std::{
    fs,
    process::{Command, Stdio},
};

/// Returns the commands that the help lists.
fn listed(help: &str) -> Vec<String> {
    let commands = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = commands.lines().take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("    "));
    lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

fn all_commands(place: &Workplace) -> Vec<String> {
    let mut found = Vec::new();
    for name in listed(&place.ok("-h")) {
        found.extend(listed(&place.ok(&format!("{name} -h"))).iter().map(|inner| format!("{name}-{inner}")));
        found.push(name);
    }
    assert!(found.contains(&"backup-create".to_owned()) && found.contains(&"get".to_owned()), "{found:?}");
    found
}

#[test]
fn completions_of_each_shell_name_each_command() {
    let place = Workplace::new();
    let commands: Vec<String> = all_commands(&place).into_iter().filter(|name| !name.contains('-')).collect();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.ok(&format!("completions {shell}"));
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
        }
        let has_option = script.contains("--db") || script.contains("-l db");
        assert!(has_option, "{shell}");
    }
    place.fails(2, "completions tcsh");
}

/// Checks the syntax of scripts with the shells that are installed.
#[test]
fn completions_are_valid_for_installed_shells() {
    let place = Workplace::new();
    for shell in ["bash", "zsh", "fish"] {
        let path = place.write(shell, place.ok(&format!("completions {shell}")));
        let mut check = Command::new(shell);
        match check.arg("-n").arg(path).stdout(Stdio::null()).output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => eprintln!("{shell} is not installed"),
        }
    }
}

#[test]
fn man_writes_a_page_for_each_command() {
    let place = Workplace::with_database();
    assert!(place.ok("man pages").ends_with("pages in pages\n"));
    let commands = all_commands(&place);
    for command in &commands {
        let page = fs::read_to_string(place.path(&format!("pages/braid-{command}.1"))).unwrap();
        assert!(page.contains(&format!(".TH BRAID-{} 1", command.to_uppercase())), "{page}");
    }
    let root = fs::read_to_string(place.path("pages/braid.1")).unwrap();
    assert!(root.contains("Exit codes"), "{root}");
    assert_eq!(fs::read_dir(place.path("pages")).unwrap().count(), commands.len() + 1);
    place.fails(4, "man none/pages");
    place.fails(2, "man db");
}
