"""The dbm interface, with CPython's own tests where the interpreter has them."""

import shelve
import unittest

import braiddb.dbm
import pytest

try:
    from test import mapping_tests, test_dbm, test_shelve
except ImportError:  # Some systems package CPython without its tests.
    mapping_tests = test_dbm = test_shelve = None

needs_tests = pytest.mark.skipif(test_dbm is None, reason="the interpreter has no package test")


def test_dbm_opens_by_flag(path):
    with pytest.raises(braiddb.dbm.error):
        braiddb.dbm.open(path)
    with pytest.raises(braiddb.dbm.error):
        braiddb.dbm.open(path, "w")
    with pytest.raises(ValueError):
        braiddb.dbm.open(path, "x")
    assert braiddb.dbm.whichdb(path) is None
    with braiddb.dbm.open(path, "c") as db:
        db["é"], db[b"a"] = "1", b"2"
        assert db["é".encode()] == b"1" and db["a"] == b"2" and "a" in db and len(db) == 2
        assert db.keys() == [b"a", "é".encode()] and db.get("no", b"x") == b"x"
        assert db.setdefault("a", "z") == b"2" and db.setdefault("b", "z") == b"z"
        with pytest.raises(KeyError):
            db["no"]
        with pytest.raises(KeyError):
            del db["no"]
        with pytest.raises(TypeError):
            db[1] = "x"
        db.sync()
    with pytest.raises(braiddb.dbm.error):
        db["a"]
    db.close()
    assert braiddb.dbm.whichdb(path) == "braiddb.dbm"
    with braiddb.dbm.open(path) as db:
        assert db["a"] == b"2"
        with pytest.raises(braiddb.dbm.error):
            db["a"] = "3"
    with braiddb.dbm.open(path, "w") as db:
        del db["a"]
        assert "a" not in db
    with braiddb.dbm.open(path, "n") as db:
        assert len(db) == 0


def test_dbm_errors_are_those_of_the_module(path):
    db = braiddb.dbm.open(path, "c")
    db[""], db[b"a"], db["b"] = "", bytearray(b"1"), b"2"
    assert db[b""] == b"" and len(db) == 3 and db
    rows, items = iter(db), iter(db.items())
    assert next(rows) == b"" and next(items) == (b"", b"")
    with pytest.raises(braiddb.dbm.error):
        db[b"k" * 100_000] = b""
    with pytest.raises(braiddb.dbm.error):
        braiddb.dbm.open(path, "w")  # It is open.
    assert dict(db) == {b"": b"", b"a": b"1", b"b": b"2"} and db.pop("a") == b"1"
    assert db.popitem() in ((b"", b""), (b"b", b"2")) and db.get("no", 5) == 5
    db.update({"x": "y"})
    assert db["x"] == b"y"
    db.clear()
    assert not db and len(db) == 0
    db.close()
    loops = [lambda: next(rows), lambda: next(items)]
    for use in (*loops, db.sync, db.keys, db.clear, lambda: len(db)):
        with pytest.raises(braiddb.dbm.error, match="closed"):
            use()
    with braiddb.open(path) as other:
        other["tree"][b"k"] = b"v"
        del other["dbm"]
    with pytest.raises(braiddb.dbm.error):
        braiddb.dbm.open(path)
    with braiddb.dbm.open(path, "n") as db:
        assert db.keys() == []
    with braiddb.dbm.open(path) as db:
        for use in (db.clear, lambda: db.setdefault("a"), lambda: db.update(a="b")):
            with pytest.raises(braiddb.dbm.error, match="reading"):
                use()
        db.sync()
    with braiddb.open(path) as other:
        assert other["tree"][b"k"] == b"v"
    with pytest.raises(OSError):
        braiddb.dbm.open(path / "no" / "parent", "c")
    file = path.with_name("file")
    file.write_bytes(b"text")
    with pytest.raises(braiddb.dbm.error):
        braiddb.dbm.open(file, "c")
    assert braiddb.dbm.whichdb(file) is None
    braiddb.dbm.open(bytes(file), "n").close()
    assert braiddb.dbm.whichdb(bytes(file)) == "braiddb.dbm"


def test_shelf_stores_objects(path):
    with shelve.Shelf(braiddb.dbm.open(path, "c")) as shelf:
        shelf["a"] = {"b": (1, 2)}
    with shelve.Shelf(braiddb.dbm.open(path, "r")) as shelf:
        assert shelf["a"] == {"b": (1, 2)} and list(shelf) == ["a"]


def run(case):
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    problems = [text for _, text in result.failures + result.errors]
    assert result.testsRun > 9 and not problems, "\n".join(problems)


@needs_tests
def test_mapping_tests_of_cpython_pass(tmp_path):
    count = iter(range(10_000))
    open_dbs = []

    class TreeTest(mapping_tests.BasicTestMappingProtocol):
        """A tree of text and JSON beside the tests for dict-like classes."""

        def _empty_mapping(self):
            db = braiddb.in_memory(memory=1 << 20)
            open_dbs.append(db)
            return db.tree(f"t{next(count)}", key=str, value="json")

        type2test = property(lambda self: self._new)

        def _new(self, other=()):
            tree = self._empty_mapping()
            tree.update(other)
            return tree

        def _reference(self):
            return {"1": "2", "key1": "value1", "key2": [1, 2, 3]}

        def tearDown(self):
            while open_dbs:
                open_dbs.pop().close()

    run(TreeTest)


@pytest.fixture
def as_default(tmp_path, monkeypatch):
    """Put this module in the place of the others."""
    import dbm

    monkeypatch.setattr(dbm, "_defaultmod", braiddb.dbm)
    monkeypatch.setitem(dbm._modules, "braiddb.dbm", braiddb.dbm)
    monkeypatch.setattr(dbm, "_names", ["braiddb.dbm"])
    monkeypatch.setattr(dbm, "whichdb", braiddb.dbm.whichdb)
    monkeypatch.setattr(dbm, "error", (*dbm.error, braiddb.dbm.error))
    monkeypatch.chdir(tmp_path)


@needs_tests
def test_dbm_tests_of_cpython_pass(as_default):

    class Case(test_dbm.AnyDBMTestCase, unittest.TestCase):
        module = braiddb.dbm

    run(Case)


@needs_tests
def test_shelve_tests_of_cpython_pass(as_default):

    class Case(test_shelve.TestCase):
        """Some tests create files beside the database, whose names shelve.open does not create."""

    run(Case)
