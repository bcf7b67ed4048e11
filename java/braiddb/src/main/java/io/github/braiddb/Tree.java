package io.github.braiddb;

import java.lang.ref.Reference;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Objects;
import java.util.concurrent.ConcurrentNavigableMap;

/**
 * A tree of a database: an ordered map of bytes with its own name. Each write is a commit of its
 * own; a {@link Transaction} or a {@link Batch} commits several together. All threads may use it.
 *
 * <p>A write waits until it is durable, as {@link Options#durability} says, and throws
 * {@link DiskFullException} if there is no space, {@link ReadOnlyException} if the database takes no
 * writes, and {@link InvalidArgumentException} for a key that is too long.
 */
public final class Tree extends BaseTree {
    private static final int EXPIRY_OF_TREE = 0;
    private static final int EXPIRY_AFTER = 1;
    private static final int EXPIRY_AT = 2;
    private static final int EXPIRY_KEPT = 3;

    Tree(Database database, Handle handle) {
        super(handle, database.latest());
    }

    static long micros(Duration duration) {
        try {
            return Math.addExact(
                    Math.multiplyExact(duration.getSeconds(), 1_000_000L), duration.getNano() / 1000);
        } catch (ArithmeticException e) {
            throw new InvalidArgumentException("the duration is too long: " + duration);
        }
    }

    static long micros(Instant time) {
        try {
            return ChronoUnit.MICROS.between(Instant.EPOCH, time);
        } catch (ArithmeticException e) {
            throw new InvalidArgumentException("the time is too far: " + time);
        }
    }

    private static int number(Durability durability) {
        return Objects.requireNonNull(durability, "durability").ordinal();
    }

    /**
     * Sets the value of a key.
     *
     * @param key the key
     * @param value the value
     */
    public void put(byte[] key, byte[] value) {
        putAs(key, value, EXPIRY_OF_TREE, 0, -1);
    }

    /**
     * Sets the value of a key with its own durability.
     *
     * @param key the key
     * @param value the value
     * @param durability what the call waits for
     */
    public void put(byte[] key, byte[] value, Durability durability) {
        putAs(key, value, EXPIRY_OF_TREE, 0, number(durability));
    }

    /**
     * Sets a value that expires: it is absent from then on, and its space is freed by merges.
     *
     * @param key the key
     * @param value the value
     * @param ttl the time until it expires, from this call on
     */
    public void put(byte[] key, byte[] value, Duration ttl) {
        putAs(key, value, EXPIRY_AFTER, micros(ttl), -1);
    }

    /**
     * Sets a value that expires at a time.
     *
     * @param key the key
     * @param value the value
     * @param expires the time
     */
    public void putUntil(byte[] key, byte[] value, Instant expires) {
        putAs(key, value, EXPIRY_AT, micros(expires), -1);
    }

    /**
     * Sets the value of a key and keeps the time at which its row expires.
     *
     * @param key the key
     * @param value the value
     */
    public void putKeepingTtl(byte[] key, byte[] value) {
        putAs(key, value, EXPIRY_KEPT, 0, -1);
    }

    /**
     * Sets a value and returns the earlier one, as one step. Reads the key: {@link #put} is faster.
     *
     * @param key the key
     * @param value the value
     * @return the earlier value; null if the key was absent
     */
    public byte[] getAndPut(byte[] key, byte[] value) {
        return insertAt(key, value);
    }

    /**
     * Sets a value if the key is absent, as one step.
     *
     * @param key the key
     * @param value the value
     * @return true if it was absent
     */
    public boolean putIfAbsent(byte[] key, byte[] value) {
        return putIfAbsentAt(key, value);
    }

    /**
     * Replaces a value if it is the expected one, as one step.
     *
     * @param key the key
     * @param expected the expected value; null if the key must be absent
     * @param update the new value; null deletes the key
     * @return true if the value was the expected one
     */
    public boolean compareAndSet(byte[] key, byte[] expected, byte[] update) {
        return compareAndSetAt(key, expected, update);
    }

    /**
     * Adds to a number of eight bytes, in little-endian order, without a read. An absent key counts
     * as 0; overflow wraps around.
     *
     * @param key the key
     * @param delta the number to add
     */
    public void add(byte[] key, long delta) {
        merge(key, "add", addend(delta));
    }

    /**
     * Combines a value with an operand by a merge function of the engine, such as "add", "max" or
     * "append", without a read.
     *
     * @param key the key
     * @param function the name of the function
     * @param operand its operand
     * @throws NotFoundException if there is no such function
     */
    public void merge(byte[] key, String function, byte[] operand) {
        mergeAs(key, function, operand, -1);
    }

    /**
     * Deletes a key; does nothing if it is absent.
     *
     * @param key the key
     */
    public void delete(byte[] key) {
        deleteAs(key, -1);
    }

    /**
     * Deletes a key with its own durability.
     *
     * @param key the key
     * @param durability what the call waits for
     */
    public void delete(byte[] key, Durability durability) {
        deleteAs(key, number(durability));
    }

    /**
     * Deletes a key and returns its value, as one step. Reads the key: {@link #delete} is faster.
     *
     * @param key the key
     * @return the value; null if the key was absent
     */
    public byte[] remove(byte[] key) {
        return removeAt(key);
    }

    /**
     * Deletes all keys of a range. Takes about the time of one put, however many there are.
     *
     * @param range the range, whose direction and limit are ignored
     */
    public void deleteRange(KeyRange range) {
        deleteRangeAt(range);
    }

    /** Deletes all keys, as {@link #deleteRange}. */
    public void clear() {
        deleteRange(KeyRange.all());
    }

    /**
     * Removes and returns the first row, as one step: no two calls return the same one.
     *
     * @return the row; null if the tree is empty
     */
    public Row popFirst() {
        return pop(0);
    }

    /**
     * Removes and returns the last row, as one step: no two calls return the same one.
     *
     * @return the row; null if the tree is empty
     */
    public Row popLast() {
        return pop(1);
    }

    /**
     * Estimates the number of keys, without a read of the tree.
     *
     * @return the estimate
     */
    public long countEstimate() {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            place.database.checkOpen();
            return scratch.check(Native.treeLenEstimate(handle.address, scratch.address, scratch.capacity()));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns this tree as a map, in the order of unsigned bytes. Its parts and iterators are views
     * of the latest state; an iterator sees the tree as it was at its begin.
     *
     * @return the map, which stays valid until the close of the database
     */
    public ConcurrentNavigableMap<byte[], byte[]> asMap() {
        return new TreeMapView(this);
    }

    /**
     * Begins a load of rows in strictly ascending order of keys. They are written to files directly,
     * without the log, several times as fast as batches.
     *
     * @return the loader, whose {@link BulkLoader#finish} commits all rows together
     * @throws InvalidArgumentException if the tree is not empty where rows come
     */
    public BulkLoader bulkLoader() {
        return BulkLoader.open(this, true, -1);
    }

    /**
     * Begins a load of rows in any order, which are sorted on the disk. The last row of a key counts.
     *
     * @return the loader, whose {@link BulkLoader#finish} commits all rows together
     */
    public BulkLoader unsortedLoader() {
        return BulkLoader.open(this, false, -1);
    }

    /**
     * As {@link #unsortedLoader()}, with a limit.
     *
     * @param memory bytes of rows that are sorted in memory at a time
     * @return the loader
     */
    public BulkLoader unsortedLoader(long memory) {
        if (memory < 0) {
            throw new InvalidArgumentException("the memory is negative: " + memory);
        }
        return BulkLoader.open(this, false, memory);
    }

    @Override
    public String toString() {
        return "Tree[" + (place.database.isClosed() ? "closed" : name()) + "]";
    }
}
