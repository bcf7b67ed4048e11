"""Random operations beside a dict, with reopens."""

import shutil
import tempfile

import braiddb
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

some = [b"a", b"ab", b"b", b"\xff", b"\xff\xff"]
keys = st.binary(min_size=1, max_size=2) | st.sampled_from(some)
values = st.binary(max_size=5) | st.integers(1, 9000).map(lambda size: b"v" * size)
bounds = st.none() | keys


def within(model, prefix, start, stop):
    return {
        key: value
        for key, value in model.items()
        if (prefix is None or key.startswith(prefix))
        and (start is None or key >= start)
        and (stop is None or key < stop)
    }


class TreeBesideDict(RuleBasedStateMachine):
    """`self.tree` is the tree itself, or that of an open transaction."""

    @initialize()
    def begin(self):
        self.path = tempfile.mkdtemp()
        self.model, self.tx, self.snapshot = {}, None, None
        self.open()

    def open(self):
        self.db = braiddb.open(self.path, durability="buffered", memory=1 << 20)
        self.tree = self.db["t"]

    def teardown(self):
        if hasattr(self, "db"):
            self.db.close()
            shutil.rmtree(self.path)

    @rule(key=keys, value=values)
    def put(self, key, value):
        self.tree[key] = value
        self.model[key] = value

    @rule(rows=st.dictionaries(keys, values, max_size=8))
    def update(self, rows):
        self.tree.update(rows)
        self.model.update(rows)

    @rule(key=keys)
    def delete(self, key):
        try:
            del self.tree[key]
            was_there = True
        except KeyError:
            was_there = False
        assert was_there == (self.model.pop(key, None) is not None)

    @rule(key=keys)
    def pop(self, key):
        assert self.tree.pop(key, None) == self.model.pop(key, None)

    @rule(key=keys, expected=st.none() | values, new=st.none() | values, is_right=st.booleans())
    def compare_and_set(self, key, expected, new, is_right):
        present = self.model.get(key)
        expected = present if is_right else expected
        assert self.tree.compare_and_set(key, expected, new) == (expected == present)
        if expected == present:
            self.model.pop(key, None)
            if new is not None:
                self.model[key] = new

    @rule(is_first=st.booleans())
    def pop_end(self, is_first):
        row = self.tree.pop_first() if is_first else self.tree.pop_last()
        if not self.model:
            assert row is None
        else:
            key = min(self.model) if is_first else max(self.model)
            assert row == (key, self.model.pop(key))

    @rule(prefix=bounds, start=bounds, stop=bounds)
    def delete_range(self, prefix, start, stop):
        self.tree.delete_range(prefix, start, stop)
        for key in within(self.model, prefix, start, stop):
            del self.model[key]

    @rule(prefix=bounds, start=bounds, stop=bounds, is_reverse=st.booleans())
    def scan(self, prefix, start, stop, is_reverse):
        wanted = sorted(within(self.model, prefix, start, stop).items(), reverse=is_reverse)
        options = {"prefix": prefix, "start": start, "stop": stop, "reverse": is_reverse}
        assert list(self.tree.items(**options)) == wanted
        assert list(self.tree.keys(**options)) == [key for key, _ in wanted]
        assert list(self.tree.values(**options)) == [value for _, value in wanted]
        assert self.tree.count(prefix, start, stop) == len(wanted)

    @rule(wanted=st.lists(keys, max_size=6))
    def get_many(self, wanted):
        assert self.tree.get_many(wanted) == [self.model.get(key) for key in wanted]

    @precondition(lambda self: self.tx is None)
    @rule(compact=st.booleans())
    def flush(self, compact):
        self.db.compact() if compact else self.db.flush()

    @precondition(lambda self: self.tx is None)
    @rule()
    def reopen(self):
        self.snapshot = None
        self.db.close()
        self.open()

    @precondition(lambda self: self.tx is None)
    @rule()
    def take_snapshot(self):
        self.snapshot = (self.db.snapshot(), dict(self.model))

    @precondition(lambda self: self.tx is None)
    @rule()
    def begin_transaction(self):
        self.tx, self.before = self.db.write(), dict(self.model)
        self.tree = self.tx["t"]

    @precondition(lambda self: self.tx is not None)
    @rule(is_commit=st.booleans())
    def end_transaction(self, is_commit):
        if is_commit:
            self.tx.commit()
        else:
            self.tx.rollback()
            self.model = self.before
        self.tx, self.tree = None, self.db["t"]

    @invariant()
    def agrees(self):
        if hasattr(self, "tree"):
            assert dict(self.tree.items()) == self.model and len(self.tree) == len(self.model)
            if self.snapshot is not None:
                snapshot, model = self.snapshot
                assert dict(snapshot["t"].items()) == model


TestTreeBesideDict = TreeBesideDict.TestCase
TestTreeBesideDict.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
