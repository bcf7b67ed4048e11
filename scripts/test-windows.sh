#!/usr/bin/env bash
# Runs all tests as Windows programs (x86_64-pc-windows-gnu) under Wine, and exchanges databases
# between both systems. Debian's compilers, library sources and Wine are installed if missing.
#
#   scripts/test-windows.sh [--full] [smoke|debug|release|files|debug-files]...
#                                         default: debug, release and files
#   scripts/test-windows.sh --install     only installs the tools; exits with 3 on failure
#
#   smoke            debug build: system-dependent tests, and a few cases of each battery
#   debug, release   all tests in that profile at a tenth of their volume, or in full with --full
#   files            databases written by each system, read by the other (scripts/check_format.sh)
#   debug-files      the same with debug builds, which exist after the tests
#
# docs/internals/platforms.md lists the limits of Wine.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly target=x86_64-pc-windows-gnu
readonly needed=(rustc-web cargo-web rust-web-src gcc-mingw-w64-x86-64 wine wine64)

if [[ ! -d /usr/lib/rustlib/src/rust/library ]] || ! dpkg -s "${needed[@]}" >/dev/null 2>&1; then
    if [[ $EUID -ne 0 ]] || ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${needed[@]}"; }; then
        echo "windows: install Debian's ${needed[*]} first" >&2
        exit 3
    fi
fi
volume=0.1
case ${1-} in
    --install) exit 0 ;;
    --full)
        volume=1
        shift
        ;;
esac
[[ $# -gt 0 ]] || set -- debug release files

here=${CARGO_TARGET_DIR:-target}/windows
mkdir -p "$here/dll"
here=$(cd "$here" && pwd)
x86_64-w64-mingw32-gcc -shared -O2 -s -o "$here/dll/bcryptprimitives.dll" scripts/windows/bcryptprimitives.c -ladvapi32

# A separate Wine prefix without dialogs or windows.
export WINEPREFIX=$here/prefix WINEDEBUG=-all WINEPATH="Z:${here//\//\\}\\dll" WINEDLLOVERRIDES="mscoree,mshtml="
mkdir -p "$WINEPREFIX"
trap 'wineserver -k >/dev/null 2>&1 || true' EXIT
# Debian's wineserver exits with the last program and rejects one that starts then; keep one alive.
wineserver -k >/dev/null 2>&1 || true
wineserver -p </dev/null >/dev/null 2>&1
wineboot --init >/dev/null 2>&1
wine cmd /c ver | tr -d '\r'

# Runs a program. Wine fails to start one of a few hundred: a program with no output except Wine's
# own error is restarted, at most twice. Output goes through files, because Wine's services inherit
# pipes and would keep readers waiting.
#
# Each battery runs in its own process, one test at a time, because all threads wait while Wine's
# heap scans freed memory: the first battery takes 57 s, or 163 s with two tests at a time.
cat >"$here/runner" <<'RUNNER'
#!/usr/bin/env bash
said=$(mktemp) complaint=$(mktemp)
trap 'rm -f "$said" "$complaint"' EXIT

run() {
    local try code
    for try in 1 2 3; do
        wine "$@" >"$said" 2>"$complaint"
        code=$?
        cat "$said"
        cat "$complaint" >&2
        [[ $code -ne 0 && $try -lt 3 && ! -s $said ]] && grep -q '^wine client error:0:' "$complaint" || return "$code"
        echo "windows: Wine did not begin $1; once more" >&2
    done
}

# Filters name rooms of the engine; the simulated disk has few tests, and all of them run.
[[ $1 != *braiddb_sim-*.exe ]] || set -- "$1"

batteries=()
if [[ $# -eq 1 && $1 == *simulated-*.exe ]]; then
    run "$1" --list >/dev/null || exit
    mapfile -t batteries < <(tr -d '\r' <"$said" | sed -n 's/^\([a-z0-9_]*\)::.*: test$/\1/p' | sort -u)
    # A test outside all batteries would be skipped silently.
    if [[ ${#batteries[@]} -eq 0 ]] || tr -d '\r' <"$said" | grep -q '^[a-z0-9_]*: test$'; then
        echo "windows: in $1 all tests should be in batteries" >&2
        exit 1
    fi
fi
[[ ${#batteries[@]} -gt 0 ]] || { run "$@"; exit; }
failed=0
for battery in "${batteries[@]}"; do
    RUST_TEST_THREADS=1 run "$1" "$battery::" || failed=1
done
exit "$failed"
RUNNER
chmod +x "$here/runner"

windows_cargo() {
    RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_RELEASE_DEBUG=0 \
        CARGO_TARGET_DIR=$here \
        CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=$here/runner \
        /usr/bin/cargo "$1" --locked --target "$target" -Zbuild-std=std,panic_abort,test "${@:2}"
}

# Makes a Windows program callable from this system.
wrapper() {
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$here/runner" "$2" >"$here/$1"
    chmod +x "$here/$1"
}

# Examples have no tests and are not built. The engine's own tests are one large program that
# compiles on one processor for minutes; the other tests run meanwhile.
tests() {
    export BRAIDDB_VOLUME=${BRAIDDB_VOLUME:-$volume}
    local all=(--workspace --exclude xtask --exclude tools "$@") others=(--bins --test '*') said=$here/others.log failed=0
    windows_cargo test "${all[@]}" "${others[@]}" --no-run
    windows_cargo test "${all[@]}" "${others[@]}" --no-fail-fast >"$said" 2>&1 &
    # Cargo's build lock would block the other tests: wait until they run.
    while kill -0 $! 2>/dev/null && ! grep -q '^ *Running ' "$said"; do
        sleep 1
    done
    windows_cargo test "${all[@]}" --lib --no-run || failed=1
    wait $! || failed=1
    cat "$said"
    [[ $failed -eq 0 ]] && windows_cargo test "${all[@]}" --lib --no-fail-fast
}

# The packages of .ci/run: one resolution of features, so the engine compiles once.
readonly shipped=(--package braiddb --package braiddb-typed --package braiddb-sim --package braid-server --package braid-cli)

# Engine tests that depend on the system, except those that compute in memory for minutes.
readonly smoke_rooms=(platform:: wal:: version:: db:: cache:: dump:: shared:: salvage::tests::places)
readonly smoke_skips=(wal::tests::damage db::engine::tests::thread_pool db::handles::tests::multi db::read::tests::merge_operands db::maintenance::tests::io_throttle db::handles::tests::transactions db::handles::tests::cursor
    db::maintenance::tests::merging db::maintenance::tests::flush_limits db::read::tests::range_deletes
    db::maintenance::garbage_limit all_is_as_in_a_model dump::tests::load_of_large_tree
    shared::tests::owner::commit_that_stalls shared::tests::owner::close_of_owner_ends)

# Processes that share a database: owners killed, and all calls of a member. The other tests wait for
# timeouts, or write much.
readonly smoke_shared=(processes:: multi:: calls_of_member transaction_outlives writes_continue member_sees)

smoke() {
    export BRAIDDB_VOLUME=${BRAIDDB_VOLUME:-0.02}
    local skips=("${smoke_skips[@]/#/--skip=}") smoke_tests=() file
    for file in crates/{braiddb,braiddb-sim}/tests/{*.rs,*/main.rs}; do
        [[ $file == */shared/main.rs ]] || smoke_tests+=("--test=$(basename "${file%/main.rs}" .rs)")
    done
    windows_cargo test "${shipped[@]}" --lib "${smoke_tests[@]}" --test=shared --no-run
    windows_cargo test "${shipped[@]}" "${smoke_tests[@]}"
    windows_cargo test "${shipped[@]}" --test=shared -- "${smoke_shared[@]}"
    windows_cargo test "${shipped[@]}" --lib -- "${smoke_rooms[@]}" "${skips[@]}"
}

# files FOLDER [--release]: uses programs of that profile, which cargo puts into FOLDER.
files() {
    local folder=$1 profile=("${@:2}")
    local what=("${profile[@]}" "${shipped[@]}" --package tools --bin braid --bin every_kind)
    windows_cargo build --quiet "${what[@]}"
    cargo build --quiet --locked "${what[@]}"
    local ours=${CARGO_TARGET_DIR:-target}/$folder
    wrapper braid "$here/$target/$folder/braid.exe"
    wrapper every_kind "$here/$target/$folder/every_kind.exe"
    echo "windows: written there, read here"
    scripts/check_format.sh "$ours/braid" "$here/every_kind"
    echo "windows: written here, read there"
    scripts/check_format.sh "$here/braid" "$ours/every_kind"
}

for what in "$@"; do
    began=$SECONDS
    echo "windows: $what"
    case $what in
        smoke) smoke ;;
        debug) tests ;;
        release) tests --release ;;
        files) files release --release ;;
        debug-files) files debug ;;
        *)
            echo "windows: smoke, debug, release, files or debug-files, not '$what'" >&2
            exit 2
            ;;
    esac
    printf 'windows: %s: ok, %d s\n' "$what" "$((SECONDS - began))"
done
