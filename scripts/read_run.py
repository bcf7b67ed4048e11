#!/usr/bin/env python3
"""Prints a run file of BraidDB: an independent reader, written from docs/internals/format.md alone.

    scripts/read_run.py [--keys | --view | --tombstones | --summary] FILE.run

  (nothing)     each entry: key in hexadecimal, sequence number, kind, value in hexadecimal
  --keys        key, sequence number and kind from the key chunks
  --view        key, sequence number and kind in the order of the embedded view, with its stale mark
  --tombstones  range tombstones: start, end, sequence number
  --summary     the fields of the footer

Checks the whole file first. Uses only the standard library; Zstandard needs Python 3.14 or the zstd
command. Not for large files. read_db.py reads a whole database.
"""

import sys
from pathlib import Path

from reader.fields import Corrupt, Unsupported
from reader.run import Run
from reader.view import View

KINDS = {1: "value", 2: "tombstone", 3: "blob", 4: "merge", 5: "expiring", 6: "multi-value"}


def main(arguments):
    flags = [argument for argument in arguments if argument.startswith("--")]
    paths = [argument for argument in arguments if not argument.startswith("--")]
    flag = flags[0] if flags else "--entries"
    if len(flags) > 1 or len(paths) != 1:
        raise SystemExit(__doc__)
    run = Run(Path(paths[0]).read_bytes())
    run.verify()
    in_view = View.of_run(run).verify() if run.footer["view_length"] else []
    if flag == "--entries":
        for key, sequence, kind, value in run.entries():
            print(key.hex(), sequence, KINDS[kind], value.hex() or "-")
    elif flag == "--keys":
        for key, sequence, kind in run.keys():
            print(key.hex(), sequence, KINDS[kind])
    elif flag == "--tombstones":
        for start, end, sequence in run.range_tombstones():
            print(start.hex(), end.hex(), sequence)
    elif flag == "--view":
        for _, _, (key, sequence, kind, _), is_stale in in_view:
            print(key.hex(), sequence, KINDS[kind], "stale" if is_stale else "-")
    elif flag == "--summary":
        for name, value in run.footer.items():
            print(f"{name}: {value}")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Corrupt, ValueError, IndexError) as error:
        raise SystemExit(f"read_run: damaged: {error}") from None
    except Unsupported as error:
        raise SystemExit(f"read_run: {error}") from None
