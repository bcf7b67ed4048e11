#!/usr/bin/env bash
# A transaction of diskcache that is rolled back loses the large values that it touched.
#
# Seen with `diskcache` 5.6.3 (PyPI). A key holds 100,000 bytes. In `with cache.transact():` the
# program changes the key, then raises an exception, so the transaction is rolled back:
#
#   | change in the transaction | afterwards `get` finds the old value | `key in cache` |
#   |---------------------------|--------------------------------------|----------------|
#   | set to a large value      | no                                   | yes            |
#   | set to a small value      | no                                   | yes            |
#   | delete                    | no                                   | yes            |
#
# Values from 32 KiB on are in files of their own. `set` and `delete` remove the old file when they
# return, not when the outer transaction commits. The rollback brings the row back, but not its file.
# `check` then reports the missing file; nothing is raised before. Small values do come back.
#
# Needs python3 and a network. Fails if the library behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check diskcache==5.6.3

cat >seen.py <<'PYTHON'
import diskcache


class Undo(Exception):
    pass


def roll_back(cache, value, change):
    cache.set("k", value)
    try:
        with cache.transact():
            change()
            raise Undo
    except Undo:
        pass
    missing = any("file not found" in str(warning.message) for warning in cache.check())
    return cache.get("k") == value, "k" in cache, missing


old, new = b"x" * 100_000, b"y" * 100_000
with diskcache.Cache("cache") as cache:
    print("large to large", *roll_back(cache, old, lambda: cache.set("k", new)))
    print("large to small", *roll_back(cache, old, lambda: cache.set("k", b"small")))
    print("large deleted", *roll_back(cache, old, lambda: cache.delete("k")))
    cache.clear()
    print("small to small", *roll_back(cache, b"old", lambda: cache.set("k", b"new")))
PYTHON

seen=$(venv/bin/python seen.py)
printf '%s\n' "old value found, key present, file missing" "$seen"
[[ $seen == "large to large False True True
large to small False True True
large deleted False True True
small to small True True False" ]]
echo "as described"
