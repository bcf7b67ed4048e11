"""Runs the tests of the package diskcache over `braiddb.Cache`: a plugin of pytest.

    suites/run-diskcache.sh PYTHON

The tests come from diskcache's source archive, whose version and hash `diskcache.txt` has. Before
they import diskcache, this module replaces the class `Cache`, the exception `Timeout` and the
settings in it. So the tests of `Deque`, `Index`, `FanoutCache` and the recipes run that code of
diskcache on our cache.

`LISTED` has the tests that cannot apply, each with its reason. The run fails if another test fails,
if a listed one passes, or if a listed one is not there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types

import braiddb
import braiddb.cache
import pytest

_SQLITE = "replaces the connection to SQLite, which our cache lacks"
_FILES = "expects that large values are files in the directory"
_DISK = "replaces or subclasses the object that lays out rows of SQLite and files"

LISTED = {
    "test_core.py::test_disk_reset": _DISK,
    "test_core.py::test_custom_disk": _DISK,
    "test_core.py::test_custom_filename_disk": _DISK,
    "test_core.py::test_pragma_error": _SQLITE,
    "test_core.py::test_close_error": _SQLITE,
    "test_core.py::test_get_keyerror4": _FILES,
    "test_core.py::test_set_timeout": _SQLITE,
    "test_core.py::test_get_ioerror_fast_path": _DISK,
    "test_core.py::test_pop_ioerror": _DISK,
    "test_core.py::test_path": _FILES,
    "test_core.py::test_check": _FILES,
    "test_core.py::test_integrity_check": "writes into the file of SQLite",
    "test_core.py::test_add_timeout": _SQLITE,
    "test_core.py::test_pull_ioerror": _DISK,
    "test_core.py::test_peek_ioerror": _DISK,
    "test_core.py::test_peekitem_ioerror": _DISK,
    "test_core.py::test_custom_eviction_policy": "the policy is a statement of SQL",
    "test_core.py::test_disk_write_os_error": _FILES,
    "test_fanout.py::test_custom_filename_disk": _DISK,
}

#: Tests whose result says nothing. They do not run.
UNUSED = {
    "test_core.py::test_cleanup_dirs": "counts files: the engine has segments of its log",
    "test_core.py::test_pragmas": "loops over settings of SQLite, of which there are none",
}


def _diskcache() -> types.ModuleType:
    """Import diskcache with our cache in the place of its own."""
    spec = importlib.util.find_spec("diskcache")
    assert spec is not None and spec.submodule_search_locations is not None
    package = types.ModuleType("diskcache")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["diskcache"] = package
    core = importlib.import_module("diskcache.core")

    class Cache(braiddb.Cache):
        """Has pickles and exact times of use, as diskcache has them."""

        def __init__(self, directory=None, timeout=60, disk=core.Disk, **settings):
            is_layout = isinstance(disk, type) and issubclass(disk, core.Disk)
            settings = {"pickle": True, "use_interval": 0, **settings}
            super().__init__(directory, timeout, None if is_layout else disk, **settings)

        @property
        def disk(self):
            # FanoutCache hashes keys by it.
            return core.Disk(self.directory, pickle_protocol=5)

    Cache.__module__, Cache.__qualname__ = core.__name__, "Cache"  # For pickles of caches.
    core.Cache = Cache
    core.Timeout = braiddb.Timeout
    core.DEFAULT_SETTINGS = {**braiddb.cache.DEFAULT_SETTINGS, "use_interval": 0}
    del sys.modules["diskcache"]
    whole = importlib.import_module("diskcache")
    whole.core = core  # type: ignore[attr-defined]
    return whole


diskcache = _diskcache()
assert issubclass(diskcache.Cache, braiddb.Cache)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the listed tests."""
    names = {item.nodeid.rpartition("/")[2]: item for item in items}
    for name, reason in LISTED.items():
        names[name].add_marker(pytest.mark.xfail(reason=reason, strict=True))
    for name, reason in UNUSED.items():
        names[name].add_marker(pytest.mark.skip(reason=reason))
