package io.github.braiddb;

import java.time.Instant;
import java.util.List;
import java.util.Optional;

/**
 * A tree to read, with one value for each key: the latest state ({@link Tree}), a snapshot
 * ({@link Snapshot#tree}), or a transaction ({@link Transaction#tree}). Keys and values are bytes;
 * a key has at most 65,536 of them. All threads may use it.
 *
 * <p>Every method throws {@link ClosedException} after the close of the database or the snapshot, or
 * the end of the transaction; {@link StorageException} or {@link CorruptionException} for a file
 * that cannot be read; {@link NullPointerException} for a null argument.
 */
public sealed interface ReadableTree permits BaseTree {
    /**
     * Returns the present name.
     *
     * @return the name
     */
    String name();

    /**
     * Returns the value of a key. Takes about one block read if the key is in no cache.
     *
     * @param key the key
     * @return a new array; null if the key is absent
     * @throws MergeFailedException if a merge function failed on the key
     */
    byte[] get(byte[] key);

    /**
     * Returns the values of many keys, with one call of the native library. Reads of the disk
     * overlap.
     *
     * @param keys the keys, in any order
     * @return a value for each key, null for an absent one
     */
    List<byte[]> getAll(List<byte[]> keys);

    /**
     * Returns true if the key is present. Reads no large value.
     *
     * @param key the key
     * @return true if it has a value
     */
    boolean contains(byte[] key);

    /**
     * Returns a value and the time of its expiry.
     *
     * @param key the key
     * @return both, empty if the key is absent
     */
    Optional<Expiring> getWithExpiry(byte[] key);

    /**
     * A value that may expire.
     *
     * @param value the value
     * @param expires the time of its expiry; null for never
     */
    record Expiring(byte[] value, Instant expires) {}

    /**
     * Returns the first row. Takes about the time of a get.
     *
     * @return the row with the least key; null if the tree is empty
     */
    Row first();

    /**
     * Returns the last row. Takes about the time of a get.
     *
     * @return the row with the greatest key; null if the tree is empty
     */
    Row last();

    /**
     * Returns true if there are no keys. Takes about the time of a get.
     *
     * @return true if the tree is empty
     */
    default boolean isEmpty() {
        return first() == null;
    }

    /**
     * Counts the keys of a range. Takes time in proportion to their number; reads no values.
     *
     * @param range the range, whose limit is ignored
     * @return the exact number
     */
    long count(KeyRange range);

    /**
     * Counts all keys, as {@link #count(KeyRange)}.
     *
     * @return the exact number
     */
    default long count() {
        return count(KeyRange.all());
    }

    /**
     * Reads the rows of a range in order. The scan sees the tree as it is now, or as its snapshot;
     * in a transaction, writes after this call appear ahead of the scan. Takes about the time of a
     * get, and then of a copy for each row: the native library is called once for up to 1,024 rows.
     *
     * @param range the range
     * @return the rows; close it unless it is read to its end
     */
    RowIterator scan(KeyRange range);

    /**
     * Reads all rows, as {@link #scan(KeyRange)}.
     *
     * @return the rows; close it unless it is read to its end
     */
    default RowIterator scan() {
        return scan(KeyRange.all());
    }

    /**
     * Reads the keys of a range, as {@link #scan(KeyRange)}. The values of the rows are empty, and
     * large ones are not read.
     *
     * @param range the range
     * @return the rows; close it unless it is read to its end
     */
    RowIterator scanKeys(KeyRange range);
}
