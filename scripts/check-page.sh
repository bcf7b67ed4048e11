#!/usr/bin/env bash
# Clicks through the page of `braid serve` in a headless Chromium. Any error or refused load in the
# browser's console fails the check.
#
#   scripts/check-page.sh [--long] [--screens DIR] [--braid PROGRAM]
#
# Exits with 3 and SKIPPED without Chromium, or if Playwright for Python cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "SKIPPED: $*"
    exit 3
}

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[[ -n $chromium ]] || skip "there is no chromium (on Debian: apt-get install chromium)"
command -v python3 >/dev/null || skip "there is no python3"

target=$(cargo metadata --format-version 1 --no-deps | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)
readonly venv=$target/page-venv playwright="playwright>=1.50,<2"
if ! "$venv/bin/python" -c 'import playwright' 2>/dev/null; then
    python3 -m venv "$venv" 2>/dev/null || skip "python3 has no venv (on Debian: apt-get install python3-venv)"
    # Uses the system's browser: Playwright's own are not downloaded.
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$playwright" || skip "pip cannot install playwright"
fi

arguments=("$@")
if [[ " $* " != *" --braid "* ]]; then
    cargo build --quiet --locked --package braid-cli
    arguments+=(--braid "$target/debug/braid")
fi
"$venv/bin/python" scripts/check_page.py --chromium "$chromium" ${arguments[@]+"${arguments[@]}"}
