#!/usr/bin/env bash
# FoundationDB's tuple libraries for Python and Node pack the largest 64-bit integer differently.
#
# Seen with `foundationdb` 8.0.0 (PyPI) and `fdb-tuple` 1.0.0 (npm):
#
#   | tuple           | Python                 | Node                 |
#   |-----------------|------------------------|----------------------|
#   | (2^64 - 1,)     | 1d08ffffffffffffffff   | 1cffffffffffffffff   |
#   | (-(2^64 - 1),)  | 0bf70000000000000000   | 0c0000000000000000   |
#   | (2^64 - 2,)     | 1cfffffffffffffffe     | 1cfffffffffffffffe   |
#
# The specification (design/tuple.md of FoundationDB) has codes 0c to 1c for integers of up to eight
# bytes, and 0b and 1d for longer ones. Python packs these two eight-byte integers as long ones, with
# the length byte 08. It unpacks Node's bytes, but packs the result differently. So a record under
# one of these keys that Node wrote is not found by Python, and the reverse. Neither library raises.
#
# Needs python3, node, npm and a network. Fails if a library behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check foundationdb==8.0.0
npm install --silent --no-audit --no-fund --prefix . fdb-tuple@1.0.0 >npm.log 2>&1 || { cat npm.log; exit 1; }

cat >seen.py <<'PYTHON'
from fdb.tuple import pack, unpack

for number in (2**64 - 1, -(2**64 - 1), 2**64 - 2):
    print(pack((number,)).hex())
node = bytes.fromhex("1cffffffffffffffff")
print(unpack(node) == (2**64 - 1,), pack(unpack(node)) == node)
PYTHON
cat >seen.js <<'NODE'
const { pack } = require('fdb-tuple')
for (const number of [2n ** 64n - 1n, -(2n ** 64n - 1n), 2n ** 64n - 2n]) {
  console.log(pack([number]).toString('hex'))
}
NODE

python_seen=$(venv/bin/python seen.py)
node_seen=$(node seen.js)
printf 'Python:\n%s\nNode:\n%s\n' "$python_seen" "$node_seen"
[[ $python_seen == $'1d08ffffffffffffffff\n0bf70000000000000000\n1cfffffffffffffffe\nTrue False' ]]
[[ $node_seen == $'1cffffffffffffffff\n0c0000000000000000\n1cfffffffffffffffe' ]]
echo "as described"
