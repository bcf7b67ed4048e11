package io.github.braiddb;

import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/**
 * A change of a commit.
 *
 * @param kind the kind
 * @param tree the name of the tree; null if it has none any more
 * @param key the key, or the first key of a range; null if the kind has none
 * @param value the value, the base of a merge, or the application cursor; null if the kind has none
 * @param end the key behind a range; null for no bound
 * @param expires when the value expires; null for never
 * @param isBaseStored true for a merge into the value that the tree has
 * @param operands the operands of a merge, in order
 */
public record Change(
        Kind kind,
        String tree,
        byte[] key,
        byte[] value,
        byte[] end,
        Instant expires,
        boolean isBaseStored,
        List<Operand> operands) {

    /** The kind of a change. */
    public enum Kind {
        /** A value was set. */
        PUT,
        /** A key was deleted. */
        DELETE,
        /** A range of keys was deleted. */
        DELETE_RANGE,
        /** A value was combined with operands. */
        MERGE,
        /** A pair was added to a tree of many values per key. */
        ADD,
        /** A pair was deleted. */
        DELETE_PAIR,
        /** A tree was created. */
        CREATE_TREE,
        /** A tree was dropped. */
        DROP_TREE,
        /** A tree got other options. */
        SET_TREE_OPTIONS,
        /** A tree was renamed. */
        RENAME_TREE,
        /** The application cursor was set. */
        APPLICATION_CURSOR,
        /** Changes that the log does not have, such as a bulk load: read the range again. */
        GAP,
        /** A change of a later version. */
        UNKNOWN
    }

    /**
     * An operand of a merge.
     *
     * @param function the name of the merge function
     * @param operand its operand
     */
    public record Operand(String function, byte[] operand) {}

    static Change decode(Decoder decoder) {
        Kind kind = Kind.valueOf(decoder.text());
        String tree = decoder.text();
        byte[] key = decoder.bytes();
        byte[] value = decoder.bytes();
        byte[] end = decoder.bytes();
        Instant expires = decoder.time();
        boolean isBaseStored = decoder.bool();
        int count = decoder.count();
        List<Operand> operands = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            operands.add(new Operand(decoder.text(), decoder.bytes()));
        }
        return new Change(kind, tree, key, value, end, expires, isBaseStored, List.copyOf(operands));
    }
}
