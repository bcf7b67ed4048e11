#!/usr/bin/env bash
# Does the engine compile for systems that are not here? The compiler and the sources of the standard library are Debian's, which are
# installed if need be; the library is checked for each target anew. Nothing is run: see scripts/test-foreign.sh for that.
#
#   scripts/check-targets.sh             all targets
#   scripts/check-targets.sh TARGET...   only these
#   scripts/check-targets.sh --install   none: only sees to it that the compiler is there; ends with 3 if it cannot be had
#
# Zstandard is left out everywhere: it needs a C compiler for the target.
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

# Nothing is compiled to the end, so nothing need be optimised; and the standard library goes without what can be left out of it.
export RUSTC=$rustc RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/targets
"$rustc" --version
[[ $# -gt 0 ]] || set -- "${engine[@]}"

# A warning is an error: what is not used on a system is said to be so.
check() {
    RUSTFLAGS="-D warnings" "$cargo" check --quiet --locked --package braiddb --no-default-features --features json \
        -Zbuild-std=std,panic_abort -Zbuild-std-features= "${@/#/--target=}"
}

# All together, which keeps all cores at work; where that fails, each for itself, to tell which.
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
