package io.github.braiddb;

import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;

/** Reads and writes of a tree of many values per key, in any place. */
abstract sealed class BaseMultiTree implements ReadableMultiTree
        permits MultiTree, SnapshotMultiTree, TransactionMultiTree {
    final Handle handle;
    final Place place;

    BaseMultiTree(Handle handle, Place place) {
        this.handle = handle;
        this.place = place;
    }

    /** Runs a call. The caller keeps this tree reachable. */
    private long run(Scratch scratch, BaseTree.Call call) {
        long at = place.acquire();
        try {
            return call.run(handle.address, at, scratch.address, scratch.capacity());
        } finally {
            place.release();
        }
    }

    /** Runs a write. */
    private long write(Scratch scratch, BaseTree.Call call) {
        long at = place.acquire();
        try {
            place.noteWrite();
            return call.run(handle.address, at, scratch.address, scratch.capacity());
        } finally {
            place.release();
        }
    }

    @Override
    public final String name() {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            place.database.checkOpen();
            long result = Native.treeName(handle.address, scratch.address, scratch.capacity());
            return new String(scratch.value(result, 0), StandardCharsets.UTF_8);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final boolean contains(byte[] key) {
        return firstValue(key) != null;
    }

    @Override
    public final boolean containsPair(byte[] key, byte[] value) {
        Scratch scratch = Scratch.with(key, value);
        try {
            return scratch.check(run(scratch, (tree, at, address, capacity) ->
                    Native.multiContainsPair(tree, at, key.length, value.length, address, capacity))) != 0;
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final long countValues(byte[] key) {
        Scratch scratch = Scratch.with(key);
        try {
            return scratch.check(run(scratch, (tree, at, address, capacity) ->
                    Native.multiCountValues(tree, at, key.length, address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final long count(KeyRange range) {
        Encoder encoder = range.encode();
        Scratch scratch = encoder.scratch();
        try {
            return scratch.check(run(scratch, (tree, at, address, capacity) ->
                    Native.multiCount(tree, at, encoder.len(), address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    private byte[] endValue(byte[] key, int isLast) {
        Scratch scratch = Scratch.with(key);
        try {
            return scratch.value(
                    run(scratch, (tree, at, address, capacity) ->
                            Native.multiEndValue(tree, at, isLast, key.length, address, capacity)),
                    key.length);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final byte[] firstValue(byte[] key) {
        return endValue(key, 0);
    }

    @Override
    public final byte[] lastValue(byte[] key) {
        return endValue(key, 1);
    }

    @Override
    public final RowIterator values(byte[] key) {
        return RowIterator.ofValues(this, handle, place, key, false);
    }

    @Override
    public final RowIterator valuesReversed(byte[] key) {
        return RowIterator.ofValues(this, handle, place, key, true);
    }

    @Override
    public final RowIterator scan(KeyRange range) {
        return RowIterator.ofRange(this, handle, place, range, false);
    }

    // Writes of the latest state and of transactions.

    final void addAt(byte[] key, byte[] value) {
        Scratch scratch = Scratch.with(key, value);
        try {
            scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.multiAdd(tree, at, key.length, value.length, address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final void deletePairAt(byte[] key, byte[] value) {
        Scratch scratch = Scratch.with(key, value);
        try {
            scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.multiDeletePair(tree, at, key.length, value.length, address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final void deleteAt(byte[] key) {
        Scratch scratch = Scratch.with(key);
        try {
            scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.multiDelete(tree, at, key.length, address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final void deleteRangeAt(KeyRange range) {
        Encoder encoder = range.encode();
        Scratch scratch = encoder.scratch();
        try {
            scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.multiDeleteRange(tree, at, encoder.len(), address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final Row pop(int isLast) {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            Decoder row = scratch.decoder(
                    write(scratch, (tree, at, address, capacity) ->
                            Native.multiPop(tree, at, isLast, address, capacity)), 0);
            return row == null ? null : row.row();
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }
}
