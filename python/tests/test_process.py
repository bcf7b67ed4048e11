"""Forks, kills, and the end of the interpreter."""

import os
import signal
import subprocess
import sys
import textwrap

import braiddb
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def start(code, *args, **options):
    """Start a program in another interpreter."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *map(str, args)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def finish(process):
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_of_fork_gets_an_error_and_harms_nothing(db, path):
    tree, snapshot = db["t"], db.snapshot()
    tree[b"a"] = b"1"
    tx, rows = db.write(), iter(tree.items())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        calls = [
            lambda: tree[b"a"],
            lambda: tree.put(b"a", b"2"),
            lambda: next(rows),
            lambda: tx.commit(),
            lambda: snapshot["t"],
            lambda: db["other"],
            lambda: db.close(),
        ]
        failed = []
        for number, call in enumerate(calls):
            try:
                call()
                failed.append(f"call {number} worked")
            except braiddb.Forked as error:
                if "fork of process" not in str(error):
                    failed.append(str(error))
            except BaseException as error:
                failed.append(repr(error))
        del call, calls, tree, snapshot, tx, rows
        os.write(write, repr(failed).encode())
        os._exit(0)
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"[]"
    tree[b"b"] = b"2"
    assert dict(tree.items()) == {b"a": b"1", b"b": b"2"}
    db.close()
    with braiddb.open(path) as db:
        assert len(db["t"]) == 2 and db.verify()["is_sound"]


def test_child_of_fork_leaks_the_last_handle(path):
    code, output = finish(
        start(
            """
            import braiddb, gc, os, signal, sys, warnings
            warnings.simplefilter("ignore")
            db = braiddb.open(sys.argv[1])
            db["t"][b"a"] = b"1"
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                del db
                gc.collect()
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            db["t"][b"b"] = b"2"
            print(status, os.path.exists(os.path.join(sys.argv[1], "CURRENT")))
            """,
            path,
        )
    )
    assert (code, output) == (0, "0 True\n")
    with braiddb.open(path) as db:
        assert len(db["t"]) == 2


def test_killed_process_loses_no_durable_commit(path):
    process = start(
        """
        import braiddb, sys
        tree = braiddb.open(sys.argv[1])["t"]
        for i in range(10**9):
            tree[b"%09d" % i] = b"%d" % i
            print(i, flush=True)
        """,
        path,
    )
    for line in process.stdout:
        if int(line) >= 100:
            break
    process.kill()
    rest = [int(word) for word in process.stdout.read().split()]
    assert process.wait() == -signal.SIGKILL
    acknowledged = max([100, *rest[:-1]])
    with braiddb.open(path) as db:
        tree = db["t"]
        assert len(tree) > acknowledged
        assert list(tree.items()) == [(b"%09d" % i, b"%d" % i) for i in range(len(tree))]
        assert db.verify()["is_sound"]


def test_interpreter_ends_with_open_handles(path):
    code, output = finish(
        start(
            """
            import braiddb, sys, threading, time
            db = braiddb.open(sys.argv[1], durability="none", merge={"f": lambda k, v, o: o})
            tree = db["t"]
            tree.update((b"%04d" % i, b"") for i in range(5000))
            tree.merge(b"m", "f", b"1")
            tx, snapshot, rows = db.write(), db.snapshot(), iter(tree.items())
            next(rows)
            tx["t"][b"never"] = b""
            watcher = db.watch()
            def write():
                while True:
                    tree[b"loop"] = b"1"
            def wait():
                for commit in watcher:
                    pass
            for work in (write, wait):
                threading.Thread(target=work, daemon=True).start()
            time.sleep(0.2)
            print("end")
            """,
            path,
        )
    )
    assert code == 0 and output.startswith("end"), output
    assert "Fatal" not in output and "panicked" not in output, output
    with braiddb.open(path, merge={"f": lambda key, value, operand: operand}) as db:
        assert b"0000" in db["t"] and b"4999" in db["t"] and b"never" not in db["t"]


@pytest.mark.parametrize("durability", ["buffered", "none"])
def test_interpreter_closes_a_database_of_which_a_tree_is_left(path, durability):
    # Only databases whose wrapper lived were closed, so commits in memory were lost.
    code, output = finish(
        start(
            """
            import braiddb, gc, sys
            merge = {"f": lambda key, value, operand: operand}
            tree = braiddb.open(sys.argv[1], durability=sys.argv[2], merge=merge)["t"]
            gc.collect()
            tree.update((b"%04d" % i, b"") for i in range(100))
            tree.merge(b"m", "f", b"1")
            # As an object that outlives the interpreter's modules.
            import ctypes
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(tree))
            """,
            path,
            durability,
        )
    )
    assert (code, output) == (0, "")
    with braiddb.open(path, merge={"f": lambda key, value, operand: operand}) as db:
        assert len(db["t"]) == 101


def test_fork_leaves_the_end_of_a_database_to_the_parent(path):
    code, output = finish(
        start(
            """
            import braiddb, os, sys, warnings
            warnings.simplefilter("ignore")
            tree = braiddb.open(sys.argv[1], durability="buffered")["t"]
            tree[b"a"] = b"1"
            child = os.fork()
            if child == 0:
                sys.exit(0)  # Runs the functions of atexit.
            status = os.waitpid(child, 0)[1]
            tree[b"b"] = b"2"
            print(status)
            """,
            path,
        )
    )
    assert (code, output) == (0, "0\n")
    with braiddb.open(path) as db:
        assert len(db["t"]) == 2


def test_interrupt_ends_a_wait(path):
    process = start(
        """
        import braiddb, signal, sys
        # A shell's background jobs ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with braiddb.open(sys.argv[1]) as db:
            try:
                print("ready", flush=True)
                next(db.watch())
            except KeyboardInterrupt:
                print("interrupted")
        """,
        path,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert finish(process) == (0, "interrupted\n")


def test_other_process_follows_and_is_locked_out(db, path):
    tree = db["t"]
    tree[b"a"] = b"1"
    code, output = finish(
        start(
            """
            import braiddb, sys
            try:
                braiddb.open(sys.argv[1])
            except braiddb.Locked:
                print("locked")
            follower = braiddb.follow(sys.argv[1])
            print(follower.db()["t"][b"a"])
            """,
            path,
        )
    )
    assert (code, output) == (0, "locked\nb'1'\n")
    follower = braiddb.follow(path, refresh_every=1000)
    tree[b"a"] = b"2"
    assert follower.refresh()
    assert follower.db()["t"][b"a"] == b"2"
    with pytest.raises(braiddb.ReadOnly):
        follower.db()["t"][b"a"] = b"3"
