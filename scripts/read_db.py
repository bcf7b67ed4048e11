#!/usr/bin/env python3
"""Prints the contents of a BraidDB database: an independent reader, written from docs/internals/format.md alone.

    scripts/read_db.py DIR          each pair: tree, tab, key in hexadecimal, tab, value in hexadecimal
    scripts/read_db.py --has-zstd   exits with 1 if this machine cannot read Zstandard

Opens every file, checks all checksums, the runs against their views and the manifest against the
files, and replays the log. Counts each kind of item on standard error. Read-only, without a lock.
Uses only the standard library; Zstandard needs Python 3.14 or the zstd command. Not for large databases.

Exits with 3 if a file is damaged, with 4 if Zstandard is needed and missing.
"""

import sys
from pathlib import Path

from reader.database import Database
from reader.fields import Corrupt, Unsupported, unpack_zstandard


def main(arguments):
    if arguments == ["--has-zstd"]:
        unpack_zstandard(bytes.fromhex("28b52ffd2000010000"))
        return
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    database = Database(Path(arguments[0]))
    for tree, key, value in database.contents():
        database.count("pairs")
        print(tree, key.hex(), value.hex(), sep="\t")
    for what, count in sorted(database.counts.items()):
        print(f"{count:8} {what}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Unsupported as error:
        print(f"read_db: SKIPPED: {error}", file=sys.stderr)
        sys.exit(1 if sys.argv[1:] == ["--has-zstd"] else 4)
    except (Corrupt, ValueError, IndexError) as error:
        print(f"read_db: damaged: {error}", file=sys.stderr)
        sys.exit(3)
