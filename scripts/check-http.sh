#!/usr/bin/env bash
# Checks `braid serve` with other programs' HTTP clients: curl and, from a temporary environment,
# Python's httpx with httpx-sse. Conditional requests, ranges, backups, and change streams that
# resume after the server was killed. Validates the OpenAPI description.
#
#   scripts/check-http.sh [path of braid]
#
# Builds `braid` unless its path is given. Ends with code 3 if there is no curl or Python, or if the
# packages cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly packages=(httpx==0.28.1 httpx-sse==0.4.3 openapi-spec-validator==0.9.0)

skip() {
    printf 'SKIPPED: %s\n' "$*"
    exit 3
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v curl >/dev/null || skip "there is no curl"
python3 -m venv "$work/venv" || skip "there is no python3 with venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" ||
    skip "${packages[*]} cannot be installed: can the package registry be reached?"
braid=${1-}
if [[ -z $braid ]]; then
    cargo build --quiet --locked --package braid-cli
    braid=${CARGO_TARGET_DIR:-target}/debug/braid
fi
"$work/venv/bin/python" scripts/check_http.py "$braid" "$work"
