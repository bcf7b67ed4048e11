package io.github.braiddb;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Writes that one commit applies together, to any trees of the database, in order. A write costs two
 * copies; only {@link #commit()} calls the native library. After that the batch is empty and can be
 * used again. Threads take turns.
 *
 * <p>A write throws {@link InvalidArgumentException} if the tree is another database's, or the batch
 * would exceed 2,147,483,639 bytes, and {@link ClosedException} after {@link #close}.
 */
public final class Batch implements AutoCloseable {
    private static final int PUT = 0;
    private static final int DELETE = 1;
    private static final int DELETE_RANGE = 2;
    private static final int MERGE = 3;
    private static final int ADD = 4;
    private static final int DELETE_PAIR = 5;
    private static final int CURSOR = 6;
    private static final int PUT_EXPIRING = 7;

    private static final int EXPIRY_AFTER = 1;
    private static final int EXPIRY_AT = 2;

    private final Database database;
    private final List<Handle> trees = new ArrayList<>();
    private final Map<Handle, Integer> indexes = new IdentityHashMap<>();
    private Handle lastTree;
    private int lastIndex;
    private Scratch writes = Scratch.HELD.take(0);
    private int len;
    private int count;

    Batch(Database database) {
        this.database = database;
    }

    private int index(Handle tree, Place place) {
        if (place.database != database) {
            throw new InvalidArgumentException("the tree is another database's");
        }
        if (tree != lastTree) {
            lastIndex = indexes.computeIfAbsent(tree, added -> {
                trees.add(added);
                return trees.size() - 1;
            });
            lastTree = tree;
        }
        return lastIndex;
    }

    /** Begins a write whose arguments take so many bytes. Nothing is written if this fails. */
    private ByteBuffer begin(int write, int tree, long argumentsLen) {
        if (writes == null) {
            throw new ClosedException("the batch was closed");
        }
        long needed = len + 5 + argumentsLen;
        if (needed > writes.capacity()) {
            long twice = Math.min(2L * writes.capacity(), Integer.MAX_VALUE - 8);
            Scratch larger = Scratch.of(Math.max(needed, twice));
            larger.buffer.put(0, writes.buffer, 0, len);
            Scratch.HELD.give(writes);
            writes = larger;
        }
        ByteBuffer buffer = writes.buffer.position(len);
        return buffer.put((byte) write).putInt(tree);
    }

    private static void put(ByteBuffer buffer, byte[] bytes) {
        buffer.putInt(bytes.length).put(bytes);
    }

    private void end(ByteBuffer buffer) {
        len = buffer.position();
        count++;
    }

    /**
     * Sets the value of a key.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @return this
     */
    public synchronized Batch put(Tree tree, byte[] key, byte[] value) {
        ByteBuffer buffer = begin(PUT, index(tree.handle, tree.place), 8L + key.length + value.length);
        put(buffer, key);
        put(buffer, value);
        end(buffer);
        return this;
    }

    /**
     * Sets a value that expires some time after the commit.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @param ttl the time until it expires
     * @return this
     */
    public Batch put(Tree tree, byte[] key, byte[] value, Duration ttl) {
        return putExpiring(tree, key, value, EXPIRY_AFTER, Tree.micros(ttl));
    }

    /**
     * Sets a value that expires at a time.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @param expires the time
     * @return this
     */
    public Batch putUntil(Tree tree, byte[] key, byte[] value, Instant expires) {
        return putExpiring(tree, key, value, EXPIRY_AT, Tree.micros(expires));
    }

    private synchronized Batch putExpiring(Tree tree, byte[] key, byte[] value, int kind, long micros) {
        ByteBuffer buffer = begin(
                PUT_EXPIRING, index(tree.handle, tree.place), 17L + key.length + value.length);
        buffer.put((byte) kind).putLong(micros);
        put(buffer, key);
        put(buffer, value);
        end(buffer);
        return this;
    }

    /**
     * Deletes a key.
     *
     * @param tree the tree
     * @param key the key
     * @return this
     */
    public synchronized Batch delete(Tree tree, byte[] key) {
        return delete(tree.handle, tree.place, key);
    }

    /**
     * Deletes a key with all its values.
     *
     * @param tree the tree
     * @param key the key
     * @return this
     */
    public synchronized Batch delete(MultiTree tree, byte[] key) {
        return delete(tree.handle, tree.place, key);
    }

    private Batch delete(Handle tree, Place place, byte[] key) {
        ByteBuffer buffer = begin(DELETE, index(tree, place), 4L + key.length);
        put(buffer, key);
        end(buffer);
        return this;
    }

    /**
     * Deletes all keys of a range.
     *
     * @param tree the tree
     * @param range the range, whose direction and limit are ignored
     * @return this
     */
    public synchronized Batch deleteRange(Tree tree, KeyRange range) {
        return deleteRange(tree.handle, tree.place, range);
    }

    /**
     * Deletes all keys of a range with their values.
     *
     * @param tree the tree
     * @param range the range, whose direction and limit are ignored
     * @return this
     */
    public synchronized Batch deleteRange(MultiTree tree, KeyRange range) {
        return deleteRange(tree.handle, tree.place, range);
    }

    private Batch deleteRange(Handle tree, Place place, KeyRange range) {
        byte[] encoded = range.encode().toBytes();
        ByteBuffer buffer = begin(DELETE_RANGE, index(tree, place), encoded.length);
        end(buffer.put(encoded));
        return this;
    }

    /**
     * Adds to a number, as {@link Tree#add}.
     *
     * @param tree the tree
     * @param key the key
     * @param delta the number to add
     * @return this
     */
    public Batch add(Tree tree, byte[] key, long delta) {
        return merge(tree, key, "add", BaseTree.addend(delta));
    }

    /**
     * Combines a value with an operand, as {@link Tree#merge}.
     *
     * @param tree the tree
     * @param key the key
     * @param function the name of the function; the commit fails if it is unknown
     * @param operand its operand
     * @return this
     */
    public synchronized Batch merge(Tree tree, byte[] key, String function, byte[] operand) {
        byte[] name = function.getBytes(StandardCharsets.UTF_8);
        ByteBuffer buffer = begin(
                MERGE, index(tree.handle, tree.place), 12L + name.length + key.length + operand.length);
        put(buffer, name);
        put(buffer, key);
        put(buffer, operand);
        end(buffer);
        return this;
    }

    /**
     * Adds a pair.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @return this
     */
    public Batch add(MultiTree tree, byte[] key, byte[] value) {
        return pair(ADD, tree, key, value);
    }

    /**
     * Deletes a pair.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @return this
     */
    public Batch deletePair(MultiTree tree, byte[] key, byte[] value) {
        return pair(DELETE_PAIR, tree, key, value);
    }

    private synchronized Batch pair(int write, MultiTree tree, byte[] key, byte[] value) {
        ByteBuffer buffer = begin(write, index(tree.handle, tree.place), 8L + key.length + value.length);
        put(buffer, key);
        put(buffer, value);
        end(buffer);
        return this;
    }

    /**
     * Sets bytes that the commit stores beside its writes, as
     * {@link Transaction#setApplicationCursor}.
     *
     * @param cursor the bytes
     * @return this
     */
    public synchronized Batch setApplicationCursor(byte[] cursor) {
        ByteBuffer buffer = begin(CURSOR, 0, 4L + cursor.length);
        put(buffer, cursor);
        end(buffer);
        return this;
    }

    /**
     * Returns the number of writes since the last commit.
     *
     * @return the number
     */
    public synchronized int size() {
        return count;
    }

    /**
     * Returns the memory of the writes since the last commit.
     *
     * @return bytes
     */
    public synchronized long sizeInBytes() {
        return len;
    }

    /** Discards the writes. */
    public synchronized void clear() {
        len = 0;
        count = 0;
        trees.clear();
        indexes.clear();
        lastTree = null;
    }

    /**
     * Commits the writes, and waits as the database's durability says. The batch is empty then.
     *
     * @return the number of the commit
     * @throws DiskFullException if there is no space; nothing was written, and the batch keeps its
     *     writes
     * @throws OutcomeUnknownException if the sync failed
     */
    public long commit() {
        return commit(-1);
    }

    /**
     * Commits the writes with their own durability, as {@link #commit()}.
     *
     * @param durability what the call waits for
     * @return the number of the commit
     */
    public long commit(Durability durability) {
        return commit(Objects.requireNonNull(durability, "durability").ordinal());
    }

    private synchronized long commit(int durability) {
        database.checkOpen();
        if (writes == null) {
            throw new ClosedException("the batch was closed");
        }
        Encoder handles = new Encoder();
        trees.forEach(tree -> handles.number(tree.address));
        Scratch scratch = handles.scratch();
        try {
            long sequence = scratch.check(Native.batchCommit(
                    database.handle.address, durability, handles.len(), writes.address, len,
                    scratch.address, scratch.capacity()));
            clear();
            return sequence;
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    /** Discards the writes and releases the memory. Does nothing if it is closed. */
    @Override
    public synchronized void close() {
        clear();
        if (writes != null) {
            Scratch.HELD.give(writes);
            writes = null;
        }
    }
}
