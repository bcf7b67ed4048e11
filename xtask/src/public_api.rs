//! Compares the public interface of the published libraries with `crates/*/public-api.txt`.
//!
//! The compiler lists the interface as rustdoc JSON, which a stable toolchain only writes with
//! `RUSTC_BOOTSTRAP`. Its format changes with the toolchain, so another toolchain than the one that
//! the parser fits is reported with the exit code [`OTHER_FORMAT`], and nothing is compared.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The format that the crate `public-api` reads: that of Rust 1.95.
const FORMAT_VERSION: &str = "\"format_version\":57}";

/// Exit code if the toolchain writes another format.
const OTHER_FORMAT: u8 = 3;

/// Environment variable: writes the listings instead of comparing them.
const BLESS: &str = "BRAIDDB_BLESS";

/// Crates and all their features that change the interface. Zstandard does not, and is slow to
/// build.
const CRATES: [(&str, &str); 2] = [("braiddb", "bytes,futures,json"), ("braiddb-typed", "derive,msgpack")];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

enum Outcome {
    Same,
    Changed,
    OtherFormat,
}

pub fn main(root: &Path) -> ExitCode {
    let mut code = 0;
    for (name, features) in CRATES {
        code = code.max(match check(root, name, features) {
            Ok(Outcome::Same) => 0,
            Ok(Outcome::Changed) => 1,
            Ok(Outcome::OtherFormat) => OTHER_FORMAT,
            Err(error) => {
                eprintln!("public-api: {name}: {error}");
                1
            }
        });
    }
    ExitCode::from(code)
}

fn check(root: &Path, name: &str, features: &str) -> Result<Outcome> {
    let json = rustdoc_json(root, name, features)?;
    if !fs::read_to_string(&json)?.ends_with(FORMAT_VERSION) {
        println!("public-api: this toolchain's rustdoc does not write {FORMAT_VERSION:?}, which xtask can read");
        return Ok(Outcome::OtherFormat);
    }
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build()?;
    let present: String = api.items().map(|item| format!("{item}\n")).collect();
    let path = root.join("crates").join(name).join("public-api.txt");
    if env::var_os(BLESS).is_some() {
        fs::write(&path, present)?;
        return Ok(Outcome::Same);
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    if listed == present {
        return Ok(Outcome::Same);
    }
    print_difference(&listed, &present);
    println!("public-api: {} is out of date: `{BLESS}=1 cargo xtask-public-api` writes it", path.display());
    Ok(Outcome::Changed)
}

fn print_difference(listed: &str, present: &str) {
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (listed.lines().collect(), present.lines().collect());
    before.difference(&after).for_each(|line| println!("-{line}"));
    after.difference(&before).for_each(|line| println!("+{line}"));
}

/// Builds in a folder of its own: `RUSTC_BOOTSTRAP` would make other builds start over.
fn rustdoc_json(root: &Path, name: &str, features: &str) -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("public-api");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        .args(["rustdoc", "--quiet", "--locked", "--lib", "--package", name])
        .args(["--no-default-features", "--features", features])
        .args(["--", "-Zunstable-options", "--output-format=json"])
        .status()?;
    if !status.success() {
        return Err("rustdoc failed".into());
    }
    Ok(target.join("doc").join(format!("{}.json", name.replace('-', "_"))))
}
