#!/usr/bin/env bash
# rocksdict: a snapshot's `get` reads the snapshot, its iterators read the live database.
#
# Seen with `rocksdict` 0.3.29 (PyPI). After the snapshot was taken, a key is overwritten, one is
# added and one removed:
#
#   | call on the snapshot             | shows          |
#   |----------------------------------|----------------|
#   | snapshot[key]                    | the snapshot   |
#   | keys(), values(), items(), iter() | the live data |
#
# Nothing is raised, and one loop can see rows of several moments. Pass a snapshot only to gets.
#
# Needs python3 and a network. Fails if the library behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check rocksdict==0.3.29

cat >seen.py <<'PYTHON'
from rocksdict import Rdict

db = Rdict("db")
for number in range(4):
    db[number] = "before"
snapshot = db.snapshot()
db[1] = "after"
db[9] = "after"
del db[0]

print("gets", [(key, snapshot[key]) for key in range(4)])
print("keys", list(snapshot.keys()))
print("values", list(snapshot.values()))
print("items", list(snapshot.items()))
rows, iterator = [], snapshot.iter()
iterator.seek_to_first()
while iterator.valid():
    rows.append((iterator.key(), iterator.value()))
    iterator.next()
print("iter", rows)
PYTHON

seen=$(venv/bin/python seen.py)
printf '%s\n' "$seen"
[[ $seen == "gets [(0, 'before'), (1, 'before'), (2, 'before'), (3, 'before')]
keys [1, 2, 3, 9]
values ['after', 'before', 'before', 'after']
items [(1, 'after'), (2, 'before'), (3, 'before'), (9, 'after')]
iter [(1, 'after'), (2, 'before'), (3, 'before'), (9, 'after')]" ]]
echo "as described"
