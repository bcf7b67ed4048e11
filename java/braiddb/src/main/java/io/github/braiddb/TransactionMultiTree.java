package io.github.braiddb;

/** A tree of many values per key in a transaction: see {@link Transaction#tree(MultiTree)}. */
public final class TransactionMultiTree extends BaseMultiTree {
    TransactionMultiTree(MultiTree tree, Place place) {
        super(tree.handle, place);
    }

    /**
     * Adds a pair; does nothing if it is present.
     *
     * @param key the key
     * @param value the value
     */
    public void add(byte[] key, byte[] value) {
        addAt(key, value);
    }

    /**
     * Deletes a pair; does nothing if it is absent.
     *
     * @param key the key
     * @param value the value
     */
    public void deletePair(byte[] key, byte[] value) {
        deletePairAt(key, value);
    }

    /**
     * Deletes a key with all its values.
     *
     * @param key the key
     */
    public void delete(byte[] key) {
        deleteAt(key);
    }

    /**
     * Deletes all keys of a range with their values.
     *
     * @param range the range, whose direction and limit are ignored
     */
    public void deleteRange(KeyRange range) {
        deleteRangeAt(range);
    }

    /** Deletes all pairs. */
    public void clear() {
        deleteRange(KeyRange.all());
    }

    /**
     * Removes and returns the first pair, as one step.
     *
     * @return the pair; null if the tree is empty
     */
    public Row popFirst() {
        return pop(0);
    }

    /**
     * Removes and returns the last pair, as one step.
     *
     * @return the pair; null if the tree is empty
     */
    public Row popLast() {
        return pop(1);
    }
}
