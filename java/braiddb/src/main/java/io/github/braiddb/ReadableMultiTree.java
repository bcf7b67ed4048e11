package io.github.braiddb;

/**
 * A tree to read that keeps many sorted values under each key, such as an index: the latest state
 * ({@link MultiTree}), a snapshot, or a transaction. Key and value of a pair have together at most
 * 65,536 bytes, less a few. All threads may use it.
 *
 * <p>Every method throws {@link ClosedException} after the close of the database or the snapshot, or
 * the end of the transaction; {@link StorageException} or {@link CorruptionException} for a file
 * that cannot be read; {@link NullPointerException} for a null argument.
 */
public sealed interface ReadableMultiTree permits BaseMultiTree {
    /**
     * Returns the present name.
     *
     * @return the name
     */
    String name();

    /**
     * Returns true if the key has a value.
     *
     * @param key the key
     * @return true if it has one
     */
    boolean contains(byte[] key);

    /**
     * Returns true if the key has this value.
     *
     * @param key the key
     * @param value the value
     * @return true if the pair is present
     */
    boolean containsPair(byte[] key, byte[] value);

    /**
     * Counts the values of a key. Takes time in proportion to their number.
     *
     * @param key the key
     * @return the exact number
     */
    long countValues(byte[] key);

    /**
     * Counts the pairs in a range of keys. Takes time in proportion to their number.
     *
     * @param range the range, whose limit is ignored
     * @return the exact number
     */
    long count(KeyRange range);

    /**
     * Counts all pairs, as {@link #count(KeyRange)}.
     *
     * @return the exact number
     */
    default long count() {
        return count(KeyRange.all());
    }

    /**
     * Returns the least value of a key.
     *
     * @param key the key
     * @return the value; null if the key has none
     */
    byte[] firstValue(byte[] key);

    /**
     * Returns the greatest value of a key.
     *
     * @param key the key
     * @return the value; null if the key has none
     */
    byte[] lastValue(byte[] key);

    /**
     * Reads the values of a key in order, each as a row with the key.
     *
     * @param key the key
     * @return the rows; close it unless it is read to its end
     */
    RowIterator values(byte[] key);

    /**
     * Reads the values of a key in descending order, each as a row with the key.
     *
     * @param key the key
     * @return the rows; close it unless it is read to its end
     */
    RowIterator valuesReversed(byte[] key);

    /**
     * Reads the pairs of a range of keys in order, as {@link ReadableTree#scan(KeyRange)}.
     *
     * @param range the range
     * @return a row for each pair; close it unless it is read to its end
     */
    RowIterator scan(KeyRange range);

    /**
     * Reads all pairs in order.
     *
     * @return a row for each pair; close it unless it is read to its end
     */
    default RowIterator scan() {
        return scan(KeyRange.all());
    }
}
