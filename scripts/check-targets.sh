#!/usr/bin/env bash
# Checks that the engine compiles for other systems, with Debian's compiler and standard library
# sources (installed if missing). Runs nothing; see scripts/test-foreign.sh.
#
#   scripts/check-targets.sh             all targets
#   scripts/check-targets.sh TARGET...   only these
#   scripts/check-targets.sh --install   only installs the compiler; exits with 3 on failure
#
# Excludes Zstandard, which needs a C compiler for the target.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly engine=(
    aarch64-apple-darwin x86_64-apple-darwin x86_64-unknown-freebsd aarch64-linux-android wasm32-wasip1
    i686-unknown-linux-gnu aarch64-unknown-linux-gnu s390x-unknown-linux-gnu
)
readonly rustc=/usr/bin/rustc cargo=/usr/bin/cargo

if [[ ! -d /usr/lib/rustlib/src/rust/library ]] || ! dpkg -s rustc-web cargo-web rust-web-src >/dev/null 2>&1; then
    if [[ $EUID -ne 0 ]] || ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends rustc-web cargo-web rust-web-src; }; then
        echo "targets: install Debian's rustc-web, cargo-web and rust-web-src first" >&2
        exit 3
    fi
fi
[[ ${1-} != --install ]] || exit 0

# `check` generates no code, so optimisation and optional std features are off.
export RUSTC=$rustc RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/targets
"$rustc" --version
[[ $# -gt 0 ]] || set -- "${engine[@]}"

# Warnings are errors: code unused on a system must be marked.
check() {
    RUSTFLAGS="-D warnings" "$cargo" check --quiet --locked --package braiddb --no-default-features --features json \
        -Zbuild-std=std,panic_abort -Zbuild-std-features= "${@/#/--target=}"
}

# All targets at once use all cores; after a failure, each separately to find the bad one.
failed=()
if check "$@"; then
    printf 'targets: %s compiles\n' "$@"
else
    for target in "$@"; do
        check "$target" || failed+=("$target")
    done
fi
[[ ${#failed[@]} -eq 0 ]] || { echo "targets: the engine does not compile for ${failed[*]}" >&2; exit 1; }
printf '%d passed, 0 failed\n' "$#"
