#!/usr/bin/env bash
# Cargo chooses rustyline 19.0.0 for a project of Rust 1.89, which cannot compile it.
#
# Seen with rustyline 19.0.0 and 18.0.1 (crates.io) and cargo 1.89. Since resolver 3, cargo passes
# over versions whose `rust-version` is newer than that of the project. rustyline's manifest has no
# `rust-version`, and version 19 uses the macro `cfg_select`, stable since Rust 1.95:
#
#   | requirement | chosen | cargo check with Rust 1.89     |
#   |-------------|--------|--------------------------------|
#   | ">=18"      | 19.0.0 | unstable library feature       |
#   | "18"        | 18.0.1 | compiles                       |
#
# Needs rustup and a network; installs Rust 1.89 if it is missing. Versions are bounded, so that
# a new one does not matter. Fails if the crates behave differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export CARGO_TARGET_DIR=$work/target
rustup run 1.89 cargo --version 2>/dev/null || rustup toolchain install 1.89 --profile minimal

mkdir src
echo 'fn main() {}' >src/main.rs

# Prints the version that cargo chooses for a requirement, and whether it compiles.
try() {
    rm -f Cargo.lock
    cat >Cargo.toml <<TOML
[package]
name = "seen"
version = "0.1.0"
edition = "2024"
rust-version = "1.89"

[dependencies]
rustyline = { version = "$1", default-features = false }

[workspace]
TOML
    cargo +1.89 generate-lockfile --quiet
    local chosen result
    chosen=$(cargo +1.89 pkgid rustyline | sed 's/.*@//')
    if cargo +1.89 check --quiet 2>errors; then
        result=compiles
    else
        result=$(grep -o 'unstable library feature' errors | sort -u)
    fi
    echo "$1: $chosen, $result"
}

seen=$(try ">=18, <=19.0.0" && try "18, <=18.0.1")
printf '%s\n' "$seen"
[[ $seen == '>=18, <=19.0.0: 19.0.0, unstable library feature
18, <=18.0.1: 18.0.1, compiles' ]]
echo "as described"
