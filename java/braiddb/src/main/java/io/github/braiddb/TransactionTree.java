package io.github.braiddb;

import java.time.Duration;
import java.time.Instant;

/**
 * A tree in a transaction: see {@link Transaction#tree}. Reads see the transaction's writes. Threads
 * take turns. After the end of the transaction every method throws {@link ClosedException}.
 *
 * <p>A write throws {@link TransactionTooLargeException} if the reads and writes exceed the memory of
 * a transaction.
 */
public final class TransactionTree extends BaseTree {
    TransactionTree(Tree tree, Place place) {
        super(tree.handle, place);
    }

    /**
     * Sets the value of a key.
     *
     * @param key the key
     * @param value the value
     */
    public void put(byte[] key, byte[] value) {
        putAs(key, value, 0, 0, -1);
    }

    /**
     * Sets a value that expires.
     *
     * @param key the key
     * @param value the value
     * @param ttl the time until it expires, from this call on
     */
    public void put(byte[] key, byte[] value, Duration ttl) {
        putAs(key, value, 1, Tree.micros(ttl), -1);
    }

    /**
     * Sets a value that expires at a time.
     *
     * @param key the key
     * @param value the value
     * @param expires the time
     */
    public void putUntil(byte[] key, byte[] value, Instant expires) {
        putAs(key, value, 2, Tree.micros(expires), -1);
    }

    /**
     * Sets the value of a key and keeps the time at which its row expires.
     *
     * @param key the key
     * @param value the value
     */
    public void putKeepingTtl(byte[] key, byte[] value) {
        putAs(key, value, 3, 0, -1);
    }

    /**
     * Sets a value and returns the earlier one.
     *
     * @param key the key
     * @param value the value
     * @return the earlier value; null if the key was absent
     */
    public byte[] getAndPut(byte[] key, byte[] value) {
        return insertAt(key, value);
    }

    /**
     * Sets a value if the key is absent.
     *
     * @param key the key
     * @param value the value
     * @return true if it was absent
     */
    public boolean putIfAbsent(byte[] key, byte[] value) {
        return putIfAbsentAt(key, value);
    }

    /**
     * Replaces a value if it is the expected one.
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
     * Adds to a number, as {@link Tree#add}. The key does not count as read.
     *
     * @param key the key
     * @param delta the number to add
     */
    public void add(byte[] key, long delta) {
        merge(key, "add", addend(delta));
    }

    /**
     * Combines a value with an operand, as {@link Tree#merge}. The key does not count as read.
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
     * Deletes a key and returns its value.
     *
     * @param key the key
     * @return the value; null if the key was absent
     */
    public byte[] remove(byte[] key) {
        return removeAt(key);
    }

    /**
     * Deletes all keys of a range.
     *
     * @param range the range, whose direction and limit are ignored
     */
    public void deleteRange(KeyRange range) {
        deleteRangeAt(range);
    }

    /** Deletes all keys. */
    public void clear() {
        deleteRange(KeyRange.all());
    }

    /**
     * Removes and returns the first row.
     *
     * @return the row; null if the tree is empty
     */
    public Row popFirst() {
        return pop(0);
    }

    /**
     * Removes and returns the last row.
     *
     * @return the row; null if the tree is empty
     */
    public Row popLast() {
        return pop(1);
    }
}
