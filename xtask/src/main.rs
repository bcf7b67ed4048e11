//! `cargo xtask COMMAND`: checks of the source tree beyond cargo and clippy.

#[cfg(feature = "public-api")]
mod public_api;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy [--graph] [ROOT]
       cargo xtask-public-api

  tidy     check layers, sizes, names, unsafe islands; exit 1 if anything is out of order
  --graph  also print which layer imports which
  ROOT     the workspace to look at; the present one if left out

  public-api  compare the public interface with crates/*/public-api.txt; with BRAIDDB_BLESS=1,
              write it. Needs the feature public-api, which the alias xtask-public-api sets";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (flags, words): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|argument| argument.starts_with("--"));
    let known = flags.iter().all(|flag| *flag == "--graph");
    match words.as_slice() {
        ["tidy"] if known => tidy::main(&tidy::workspace_root(), flags.contains(&"--graph")),
        ["tidy", root] if known => tidy::main(root.as_ref(), flags.contains(&"--graph")),
        #[cfg(feature = "public-api")]
        ["public-api"] if flags.is_empty() => public_api::main(&tidy::workspace_root()),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}
