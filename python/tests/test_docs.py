"""Runs the Python blocks of the documents, in order."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["python/README.md", "docs/guide/python.md"])
def test_blocks_of_document_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert blocks
    names = {"__name__": "document"}
    for block in blocks:
        # Keep the line numbers of the document.
        before = "\n" * (text.count("\n", 0, block.start()) + 1)
        exec(compile(before + block[1], str(ROOT / name), "exec"), names)
