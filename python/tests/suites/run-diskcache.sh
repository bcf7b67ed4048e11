#!/usr/bin/env bash
# Runs the tests of the package diskcache over braiddb.Cache.
#
#   python/tests/suites/run-diskcache.sh PYTHON [argument of pytest...]
#
# PYTHON has the packages braiddb and pytest. Exits with 3 if the package index is not there.
set -euo pipefail
suites=$(cd "$(dirname "$0")" && pwd)
python=$1
shift

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary diskcache \
    --require-hashes --requirement "$suites/diskcache.txt" --dest "$work" 2>"$work/log"; then
    cat "$work/log" >&2
    ! grep -q HASHES "$work/log" || exit 1
    echo "SKIPPED: diskcache cannot be downloaded"
    exit 3
fi
tar -xzf "$work"/diskcache-*.tar.gz -C "$work"
cd "$work"/diskcache-*/
export TMPDIR=$work
PYTHONPATH=$PWD:$suites${PYTHONPATH:+:$PYTHONPATH} "$python" -m pytest -q -p no:cacheprovider -p over_diskcache "$@" \
    tests/test_{core,recipes,deque,index,fanout}.py
