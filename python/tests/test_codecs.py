"""Codecs, and the tuple encoding against the vectors of braiddb-typed."""

import json
import math
import struct
import uuid
from pathlib import Path

import braiddb
import pytest
from braiddb import _tuple
from hypothesis import given, settings
from hypothesis import strategies as st

VECTORS = Path(__file__).parents[2] / "crates/braiddb-typed/tests/vectors.json"


def element(value):
    """Return the element that an entry of the vectors means."""
    if isinstance(value, list):
        return tuple(map(element, value))
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    if kind == "bytes":
        return bytes.fromhex(text)
    if kind == "uuid":
        return uuid.UUID(text)
    if kind == "int":
        return int(text, 16)
    if kind == "versionstamp":
        return braiddb.Versionstamp(bytes.fromhex(text))
    form = {"float": ">f", "double": ">d"}[kind]
    number = struct.unpack(form, bytes.fromhex(text))[0] if isinstance(text, str) else text
    return braiddb.Float32(number) if kind == "float" else number


def exact(value):
    """Return a text that differs for types and for NaNs with other bits."""
    if isinstance(value, tuple):
        return f"({','.join(map(exact, value))})"
    inner = struct.pack(">d", value) if isinstance(value, float) else value
    return f"{type(value).__name__} {inner!r}"


def test_tuples_match_vectors():
    vectors = json.loads(VECTORS.read_text())["vectors"]
    assert len(vectors) > 100
    for vector in vectors:
        key, data = element(vector["key"]), bytes.fromhex(vector["bytes"])
        assert _tuple.pack(key) == data, vector
        assert exact(_tuple.unpack(data)) == exact(key), vector


elements = st.recursive(
    st.none()
    | st.binary(max_size=6)
    | st.text(max_size=4)
    | st.integers(-(2**80), 2**80)
    | st.integers(-300, 300)
    | st.booleans()
    | st.uuids()
    | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
tuples = st.lists(elements, max_size=4).map(tuple)

#: Beside other programs, an example can take longer than the library's limit of 200 ms.
UNHURRIED = settings(deadline=None)


@UNHURRIED
@given(tuples)
def test_tuple_survives_encoding(key):
    assert repr(_tuple.unpack(_tuple.pack(key))) == repr(key)


ordered = st.tuples(st.integers(-(2**70), 2**70), st.text(max_size=3), st.floats(allow_nan=False))


@UNHURRIED
@given(ordered, ordered)
def test_bytes_sort_as_tuples(a, b):
    def key(value):
        number, text, real = value
        return number, text.encode(), (real, math.copysign(1, real))

    assert (key(a) < key(b)) == (_tuple.pack(a) < _tuple.pack(b))


@UNHURRIED
@given(st.binary(max_size=20))
def test_no_tuple_is_a_value_error(data):
    try:
        _tuple.unpack(data)
    except ValueError:
        pass


def test_codecs_convert_keys_and_values(db):
    text = db.tree("text", key=str, value="json")
    text["é"], text["a"] = {"a": [1, None, "ü"]}, 2.5
    assert list(text) == ["a", "é"] and text["é"] == {"a": [1, None, "ü"]} and len(text) == 2
    assert text.codec == "utf8/json" == db["text"].codec
    assert db["text"]["a".encode()] == b"2.5"
    number = db.tree("number", key=int, value=int)
    number.update({3: 30, -5: -50, 0: 0})
    assert list(number.items()) == [(-5, -50), (0, 0), (3, 30)]
    number.merge(3, "add", 12)
    assert number[3] == 42 and list(number[0:3]) == [(0, 0)]
    assert list(number.keys(start=0, reverse=True)) == [3, 0]
    with pytest.raises(TypeError):
        number.keys(prefix=3).__iter__()
    for wrong in ("x", 1 << 63):
        with pytest.raises((TypeError, ValueError)):
            number[wrong] = 1
    orders = db.tree("orders", key=tuple, value="msgpack")
    orders[("se", "Lund", 2)], orders[("se", "Kiel", 9)] = {"n": b"1"}, [1]
    assert list(orders.keys(prefix=("se", "Lund"))) == [("se", "Lund", 2)]
    assert orders[("se", "Lund", 2)] == {"n": b"1"}
    with pytest.raises(TypeError):
        orders["se"] = 1
    with pytest.raises(KeyError):
        orders[("no",)]


def test_codec_tree_has_methods_of_tree(db):
    tree = db.tree("t", key=str, value="json")
    tree.put("a", 1, ttl=100)
    assert tree.get_with_expiry("a")[0] == 1 and tree.get_with_expiry("a")[1] is not None
    assert tree.compare_and_set("a", 1, 2) and not tree.compare_and_set("a", 1, 3)
    assert tree.fetch_update("a", lambda value: value + 1) == 2 and tree["a"] == 3
    assert tree.put_if_absent("b", 5) and not tree.put_if_absent("b", 6)
    assert tree.setdefault("b", 9) == 5 and tree.setdefault("c", []) == []
    assert tree.get_many(["a", "no"]) == [3, None] and tree.get("no", 7) == 7
    assert tree.first() == ("a", 3) and tree.last() == ("c", [])
    assert tree.pop_first() == ("a", 3) and tree.pop_last() == ("c", []) and tree.pop("b") == 5
    assert tree.pop("b", None) is None and tree.pop_first() is None
    with pytest.raises(KeyError):
        tree.pop("b")
    tree.extend(((f"{i:03}", i) for i in range(50)), batch=20)
    assert sum(tree.values()) == 1225 and tree.count(prefix="01") == 10
    assert ("010", 10) in tree.items(prefix="01") and "020" not in tree.keys(prefix="01")
    del tree["010":"020"]
    tree.delete("000")
    tree.delete("000")
    tree.delete_many(["001", "002"])
    with pytest.raises(KeyError):
        del tree["000"]
    assert len(tree) == 37
    tree.delete_range(prefix="04")
    assert tree.popitem() == ("039", 39)
    tree.clear()
    assert not tree and tree == {}


def test_tree_keeps_its_codec(db, path):
    db.tree("t", key=str, value="json")["a"] = 1
    db.tree("t", key=str, value="json")["b"] = 1
    for other in ({"key": str, "value": "msgpack"}, {"key": str}, {"value": "json"}):
        with pytest.raises(braiddb.InvalidArgument):
            db.tree("t", **other)
    db["raw"][b"a"] = b"1"
    with pytest.raises(braiddb.InvalidArgument):
        db.tree("raw", key=str, value="json")
    assert db.tree("raw", key=str, value="json", declare=True)["a"] == 1
    with pytest.raises(ValueError):
        db.tree("u", key="json")
    upper = braiddb.Codec("upper", lambda text: text.upper().encode(), bytes.decode)
    tree = db.tree("own", key=upper)
    tree["a"] = b"1"
    assert list(tree) == ["A"] and tree.codec == "upper/raw"


def test_pickle_is_only_used_if_named(db):
    tree = db.tree("p", key=str, value="pickle")
    tree["a"] = {1, 2}
    assert tree["a"] == {1, 2}
    with pytest.raises(TypeError):
        db.tree("j", key=str, value="json")["a"] = {1, 2}


def test_typed_tree_with_indexes_is_only_read(db):
    raw = db.tree("orders", key=tuple, value="json").raw
    raw[_tuple.pack(("a", 1))], raw[_tuple.pack(("b", 2))] = b"10", b"20"
    raw[b"\xff\x00"], raw[b"\xff" + _tuple.pack(("cents", 10, "a"))] = b"definitions", b""
    orders = db.tree("orders", key=tuple, value="json")
    assert dict(orders.items()) == {("a", 1): 10, ("b", 2): 20} == orders and len(orders) == 2
    assert orders.last() == (("b", 2), 20) and list(orders.keys(prefix=())) == [("a", 1), ("b", 2)]
    with db.write() as tx:
        for view in (orders, tx[orders]):
            assert not hasattr(view, "put")
            with pytest.raises(TypeError):
                view[("c", 3)] = 30

def test_prefix_of_tuple_ends_with_its_elements(db):
    orders = db.tree("orders", key=tuple, value=int)
    for number, key in enumerate([("se",), ("se", 1), ("se\0x", 1), ("sf",), (("a",), 1), (("a", None), 1)]):
        orders[key] = number
    assert list(orders.keys(prefix=("se",))) == [("se",), ("se", 1)]
    assert orders.count(prefix=(("a",),)) == 1
    assert list(orders.keys(prefix=("se",), start=("se", 0))) == [("se", 1)]
    orders.delete_range(prefix=("se",))
    assert ("se\0x", 1) in orders and len(orders) == 4
