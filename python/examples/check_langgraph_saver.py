"""Runs the conformance suite of LangGraph over the saver of langgraph_saver.py.

    pip install -r requirements.txt && python check_langgraph_saver.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import braiddb
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES
from langgraph_saver import BraidSaver


def check(folder: Path, shared: bool) -> int:
    """Return the number of tests that passed. Raises if one failed or was skipped."""

    @checkpointer_test(name="BraidSaver, shared" if shared else "BraidSaver")
    async def saver() -> AsyncIterator[BraidSaver]:
        options = {"durability": "buffered", "shared": shared, "create_parents": True}
        with braiddb.open(folder / "owner", **options) as db:
            if not shared:
                yield BraidSaver(db)
                return
            with braiddb.open(folder / "owner", **options) as member:
                yield BraidSaver(member)

    report = asyncio.run(validate(saver))
    report.print_report()
    results = report.results
    for name, result in results.items():
        for failure in result.failures:
            print(f"{name}: {failure}")
    # The suite's own verdict leaves out capabilities that it did not find.
    if len(results) < len(ALL_CAPABILITIES) or not all(r.passed for r in results.values()):
        sys.exit("the saver does not conform")
    return sum(result.tests_passed for result in results.values())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        counts = [check(Path(folder) / str(shared), shared) for shared in (False, True)]
    print(f"{sum(counts)} passed, 0 failed")


if __name__ == "__main__":
    main()
