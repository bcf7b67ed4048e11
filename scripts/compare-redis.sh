#!/usr/bin/env bash
# Compares gets and durable puts over HTTP with Redis, under the same load.
#
#     scripts/compare-redis.sh [SECONDS] [CLIENTS]
#
# Redis syncs its log before each answer to a write (`appendfsync always`). Its files and those of
# the service are in TMPDIR, which should be on a disk.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v redis-server >/dev/null; then
    echo "SKIPPED: there is no redis-server"
    exit 0
fi
seconds=${1:-3}
clients=${2:-8}
port=${REDIS_PORT:-7391}
files=$(mktemp -d)
redis-server --version
redis-server --bind 127.0.0.1 --port "$port" --dir "$files" --save '' --appendonly yes --appendfsync always \
    --auto-aof-rewrite-percentage 0 --loglevel warning >/dev/null &
redis=$!
trap 'kill "$redis" 2>/dev/null; wait "$redis" 2>/dev/null || true; rm -rf "$files"' EXIT
until redis-cli -p "$port" ping >/dev/null 2>&1; do
    kill -0 "$redis" || { echo "redis-server ended"; exit 1; }
    sleep 0.1
done

cargo build --quiet --release -p braid-server --example http_load
load=${CARGO_TARGET_DIR:-target}/release/examples/http_load
echo "gets of 100 bytes, $clients clients"
"$load" gets "$seconds" "$clients" "127.0.0.1:$port"
echo "durable puts of 100 bytes, $clients clients"
"$load" puts "$seconds" "$clients" "127.0.0.1:$port"
