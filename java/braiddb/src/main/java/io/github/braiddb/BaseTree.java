package io.github.braiddb;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;

/** Reads and writes of a tree in any place. */
abstract sealed class BaseTree implements ReadableTree permits Tree, SnapshotTree, TransactionTree {
    final Handle handle;
    final Place place;

    BaseTree(Handle handle, Place place) {
        this.handle = handle;
        this.place = place;
    }

    /** A call of the native library with a place. */
    interface Call {
        long run(long tree, long place, long address, int capacity);
    }

    /** Runs a call. The caller keeps this tree reachable. */
    final long run(Scratch scratch, Call call) {
        long at = place.acquire();
        try {
            return call.run(handle.address, at, scratch.address, scratch.capacity());
        } finally {
            place.release();
        }
    }

    /** Runs a write. */
    final long write(Scratch scratch, Call call) {
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
    public final byte[] get(byte[] key) {
        Scratch scratch = Scratch.with(key);
        try {
            // Without a lambda: this is the hot path.
            long at = place.acquire();
            long result;
            try {
                result = Native.treeGet(handle.address, at, key.length, scratch.address, scratch.capacity());
            } finally {
                place.release();
            }
            return scratch.value(result, key.length);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final List<byte[]> getAll(List<byte[]> keys) {
        Encoder encoder = new Encoder();
        int count = 0;
        for (byte[] key : keys) {
            encoder.bytes(Objects.requireNonNull(key, "key"));
            count++;
        }
        Scratch scratch = encoder.scratch();
        try {
            int len = encoder.len();
            Decoder values = scratch.decoder(
                    run(scratch, (tree, at, address, capacity) ->
                            Native.treeGetMany(tree, at, len, address, capacity)), len);
            List<byte[]> list = new ArrayList<>(count);
            while (list.size() < count) {
                list.add(values.bytes());
            }
            return list;
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final boolean contains(byte[] key) {
        Scratch scratch = Scratch.with(key);
        try {
            return scratch.check(run(scratch, (tree, at, address, capacity) ->
                    Native.treeContains(tree, at, key.length, address, capacity))) != 0;
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final Optional<Expiring> getWithExpiry(byte[] key) {
        Scratch scratch = Scratch.with(key);
        try {
            Decoder found = scratch.decoder(
                    run(scratch, (tree, at, address, capacity) ->
                            Native.treeGetWithExpiry(tree, at, key.length, address, capacity)), key.length);
            if (found == null) {
                return Optional.empty();
            }
            Instant expires = found.time();
            return Optional.of(new Expiring(found.bytes(), expires));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    private Row end(int isLast) {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            Decoder row = scratch.decoder(
                    run(scratch, (tree, at, address, capacity) ->
                            Native.treeEnd(tree, at, isLast, address, capacity)), 0);
            return row == null ? null : row.row();
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final Row first() {
        return end(0);
    }

    @Override
    public final Row last() {
        return end(1);
    }

    @Override
    public final long count(KeyRange range) {
        Encoder encoder = range.encode();
        Scratch scratch = encoder.scratch();
        try {
            return scratch.check(run(scratch, (tree, at, address, capacity) ->
                    Native.treeCount(tree, at, encoder.len(), address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    @Override
    public final RowIterator scan(KeyRange range) {
        return RowIterator.ofRange(this, handle, place, range, false);
    }

    @Override
    public final RowIterator scanKeys(KeyRange range) {
        return RowIterator.ofRange(this, handle, place, range, true);
    }

    // Writes of the latest state and of transactions.

    final long putAs(byte[] key, byte[] value, int expiryKind, long expiry, int durability) {
        Scratch scratch = Scratch.with(key, value);
        try {
            long at = place.acquire();
            long result;
            try {
                place.noteWrite();
                result = Native.treePut(
                        handle.address, at, key.length, value.length, expiryKind, expiry, durability,
                        scratch.address, scratch.capacity());
            } finally {
                place.release();
            }
            return scratch.check(result);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final long deleteAs(byte[] key, int durability) {
        Scratch scratch = Scratch.with(key);
        try {
            return scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.treeDelete(tree, at, key.length, durability, address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final byte[] insertAt(byte[] key, byte[] value) {
        Scratch scratch = Scratch.with(key, value);
        try {
            return scratch.value(write(scratch, (tree, at, address, capacity) ->
                    Native.treeInsert(tree, at, key.length, value.length, address, capacity)), 0);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final byte[] removeAt(byte[] key) {
        Scratch scratch = Scratch.with(key);
        try {
            return scratch.value(write(scratch, (tree, at, address, capacity) ->
                    Native.treeRemove(tree, at, key.length, address, capacity)), key.length);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final boolean putIfAbsentAt(byte[] key, byte[] value) {
        Scratch scratch = Scratch.with(key, value);
        try {
            return scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.treePutIfAbsent(tree, at, key.length, value.length, address, capacity))) != 0;
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final boolean compareAndSetAt(byte[] key, byte[] expected, byte[] update) {
        Encoder encoder = new Encoder().bytes(Objects.requireNonNull(key, "key")).bytes(expected).bytes(update);
        Scratch scratch = encoder.scratch();
        try {
            return scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.treeCompareAndSet(tree, at, encoder.len(), address, capacity))) != 0;
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    final long mergeAs(byte[] key, String function, byte[] operand, int durability) {
        Encoder encoder = new Encoder()
                .text(Objects.requireNonNull(function, "function"))
                .bytes(Objects.requireNonNull(key, "key"))
                .bytes(Objects.requireNonNull(operand, "operand"));
        Scratch scratch = encoder.scratch();
        try {
            return scratch.check(write(scratch, (tree, at, address, capacity) ->
                    Native.treeMerge(tree, at, durability, encoder.len(), address, capacity)));
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
                    Native.treeDeleteRange(tree, at, encoder.len(), address, capacity)));
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
                            Native.treePop(tree, at, isLast, address, capacity)), 0);
            return row == null ? null : row.row();
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    /** Encodes a number as the merge function "add" takes it. */
    static byte[] addend(long number) {
        return ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(number).array();
    }
}
