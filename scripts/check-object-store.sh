#!/usr/bin/env bash
# Runs crates/braiddb-object-store/tests/s3.rs against S3 servers of others: moto, from a temporary
# Python environment, and versitygw, built by Go if there is one. The tests put a proxy between that
# fails requests. `braid backup` and `braid restore` then use the same servers.
#
#   scripts/check-object-store.sh [moto] [versitygw]
#
# BRAIDDB_SEED chooses the failures. Ends with code 3 if a server could not be had.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly moto='moto[s3,server]==5.2.5'
readonly versitygw=v1.8.0
export AWS_ACCESS_KEY_ID=braiddb AWS_SECRET_ACCESS_KEY=braiddb-secret AWS_REGION=us-east-1
unset AWS_ENDPOINT_URL AWS_SESSION_TOKEN
export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1

servers=("$@")
[[ $# -gt 0 ]] || servers=(moto versitygw)
skipped=0
skip() {
    printf 'SKIPPED: %s\n' "$*"
    skipped=1
}

work=$(mktemp -d)
server=
cleanup() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    chmod -R u+w "$work" && rm -rf "$work"
}
trap cleanup EXIT

if ! python3 -m venv "$work/venv" || ! "$work/venv/bin/pip" install --quiet --disable-pip-version-check "$moto"; then
    echo "SKIPPED: there is no python3 with venv, or $moto cannot be installed: can the package registry be reached?"
    exit 3
fi
cargo test --quiet --locked --package braiddb-object-store --features s3 --test s3 --no-run
# In a folder of its own: other stages build the command without the feature.
target=$(cargo metadata --format-version 1 --no-deps | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)
cargo build --quiet --locked --package braid-cli --features s3
cp "$target/debug/braid" "$work/braid"

# Backs a database up with the command, and restores it.
check_command() {
    local place=s3://braiddb/command/music braid=$work/braid expected
    rm -rf "$work/db" "$work/restored"
    "$braid" put --create "$work/db" albums first one
    "$braid" backup create "$work/db" "$place"
    "$braid" put "$work/db" albums second two
    "$braid" backup create "$work/db" "$place" --keep 1
    [[ $("$braid" backup list "$place" | cut -f1) == 2 ]] || { echo "the list has other backups than 2" >&2; exit 1; }
    "$braid" backup verify "$place"
    "$braid" restore "$place" "$work/restored"
    expected=$("$braid" scan "$work/db" albums)
    [[ $("$braid" scan "$work/restored" albums) == "$expected" ]] || { echo "restored other records" >&2; exit 1; }
    "$braid" backup delete "$place" 2
    # Without backups.
    if "$braid" backup list "$place" 2>/dev/null; then exit 1; fi
    if "$braid" restore "$place-absent" "$work/absent" 2>/dev/null || [[ -e $work/absent ]]; then exit 1; fi
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Waits for the server, makes the bucket, runs the tests, and stops the server.
check() {
    local name=$1 port=$2
    "$work/venv/bin/python" - "$port" <<'PYTHON'
import sys, time, boto3
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}")
for attempt in range(100):
    try:
        s3.create_bucket(Bucket="braiddb")
        break
    except Exception as error:
        if attempt == 99:
            raise
        time.sleep(0.2)
PYTHON
    echo "object store: $name"
    BRAIDDB_S3_ENDPOINT=http://127.0.0.1:$port \
        cargo test --quiet --locked --package braiddb-object-store --features s3 --test s3
    AWS_ENDPOINT_URL=http://127.0.0.1:$port check_command
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
}

for name in "${servers[@]}"; do
    port=$(free_port)
    case $name in
    moto)
        "$work/venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
        server=$!
        ;;
    versitygw)
        gateway=$(command -v versitygw || true)
        if [[ -z $gateway ]]; then
            if ! command -v go >/dev/null; then
                skip "versitygw: there is no Go to build it, and none installed"
                continue
            fi
            GOBIN=$work/bin GOFLAGS=-modcacherw go install "github.com/versity/versitygw/cmd/versitygw@$versitygw" || {
                skip "versitygw $versitygw cannot be built: can the module proxy be reached?"
                continue
            }
            gateway=$work/bin/versitygw
        fi
        mkdir -p "$work/data"
        "$gateway" --port "127.0.0.1:$port" --access "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" \
            posix "$work/data" >"$work/versitygw.log" 2>&1 &
        server=$!
        ;;
    *)
        echo "there is no server '$name': moto and versitygw" >&2
        exit 2
        ;;
    esac
    check "$name" "$port"
done
[[ $skipped -eq 0 ]] || exit 3
