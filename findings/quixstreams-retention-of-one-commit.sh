#!/usr/bin/env bash
# Quix Streams: the timestamped state store drops a late row only if a newer row is in the same commit.
#
# Seen with `quixstreams` 3.28.1 (PyPI), whose stores are RocksDB databases. A timestamped store keeps
# a key's rows for `grace_ms` before its latest one. Here grace is 1,000 ms, and a row of time 1,000
# comes after one of time 10,000:
#
#   | commits                        | rows afterwards | latest at time 5,000 |
#   |--------------------------------|-----------------|----------------------|
#   | both rows in one commit        | new             | none                 |
#   | each row in a commit of its own | late, new      | late                 |
#
# The limit of a key is written to one column family and read from another, so each commit begins
# without it. The same input gives other results if commits fall elsewhere, as after a restart.
#
# Needs python3 and a network. Fails if the library behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check quixstreams==3.28.1

cat >seen.py <<'PYTHON'
from quixstreams.state.rocksdb.timestamped import TimestampedStorePartition

NEW, LATE = (10_000, "new"), (1_000, "late")

for folder, commits in [("together", [[NEW, LATE]]), ("apart", [[NEW], [LATE]])]:
    with TimestampedStorePartition(path=folder, grace_ms=1_000, keep_duplicates=False) as store:
        for rows in commits:
            with store.begin() as commit:
                for time, value in rows:
                    commit.set_for_timestamp(timestamp=time, value=value, prefix=b"key")
        with store.begin() as reads:
            rows = reads.get_interval(start=0, end=20_000, prefix=b"key")
            print(folder, rows, reads.get_latest(timestamp=5_000, prefix=b"key"))
PYTHON

seen=$(venv/bin/python seen.py 2>/dev/null)
printf '%s\n' "$seen"
[[ $seen == "together ['new'] None
apart ['late', 'new'] late" ]]
echo "as described"
