package io.github.braiddb.kafka.streams;

import io.github.braiddb.BulkLoader;
import io.github.braiddb.Database;
import io.github.braiddb.Row;
import io.github.braiddb.RowIterator;
import io.github.braiddb.Tree;
import io.github.braiddb.TreeInfo;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.UnaryOperator;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;

/**
 * The form of a store's rows. The name of their tree states it, so an open that wants another form
 * converts the rows, or refuses.
 *
 * @param kind the kind of the store
 * @param format the form of the values
 * @param bucketMs milliseconds of a bucket, see {@link Buckets}; 0 for keys without one
 */
record Layout(Kind kind, Format format, long bucketMs) {
    private static final String PREFIX = "rows ";

    /** The kinds of stores. */
    enum Kind {
        KEY_VALUE(0, 0),
        WINDOW(0, 12),
        SESSION(0, 16),
        VERSIONED(1, 8);

        /** Where the bucket's number is in a key. */
        private final int bucketAt;

        /** Where the time is in a key, from its end. */
        private final int timeFromEnd;

        Kind(int bucketAt, int timeFromEnd) {
            this.bucketAt = bucketAt;
            this.timeFromEnd = timeFromEnd;
        }

        /** Returns the key for another size of buckets. */
        private byte[] move(byte[] key, long bucketMs) {
            if (timeFromEnd == 0 || this == VERSIONED && key[0] == Versions.LATEST) {
                return key;
            }
            ByteBuffer moved = ByteBuffer.wrap(key.clone());
            long time = moved.getLong(key.length - timeFromEnd);
            return moved.putLong(bucketAt, Buckets.encoded(time, bucketMs)).array();
        }
    }

    /** The forms of values. Values of an earlier one can be converted to a later one. */
    enum Format {
        PLAIN,
        TIMESTAMPED,
        HEADERS,
        SESSION_HEADERS,
        VERSIONED;

        /** Returns how to convert values to this form; null if that is impossible. */
        private UnaryOperator<byte[]> converterFrom(Format other) {
            if (this == other) {
                return UnaryOperator.identity();
            }
            if (this == TIMESTAMPED && other == PLAIN) {
                return TimestampedBytesStore::convertToTimestampedFormat;
            }
            if (this == HEADERS && other == TIMESTAMPED) {
                return HeadersBytesStore::convertToHeaderFormat;
            }
            if ((this == HEADERS || this == SESSION_HEADERS) && other == PLAIN) {
                return this == HEADERS
                        ? HeadersBytesStore::convertFromPlainToHeaderFormat
                        : HeadersBytesStore::convertToHeaderFormat;
            }
            return null;
        }
    }

    private String treeName() {
        return PREFIX + kind + " " + format + " " + bucketMs;
    }

    private static Layout parse(String treeName) {
        String[] parts = treeName.split(" ");
        return new Layout(Kind.valueOf(parts[1]), Format.valueOf(parts[2]), Long.parseLong(parts[3]));
    }

    /**
     * Opens the tree of the rows. Converts a tree of another layout: it is dropped after the load of
     * the new one, which is one commit, so a crash leaves the old one and the next open repeats it.
     */
    Tree open(String store, Database database) {
        Map<String, Layout> others = new TreeMap<>();
        for (TreeInfo tree : database.trees()) {
            if (tree.name().startsWith(PREFIX) && !tree.name().equals(treeName())) {
                others.put(tree.name(), parse(tree.name()));
            }
        }
        for (Map.Entry<String, Layout> other : others.entrySet()) {
            convert(store, database, other.getKey(), other.getValue());
        }
        return database.tree(treeName());
    }

    private void convert(String store, Database database, String name, Layout from) {
        UnaryOperator<byte[]> converter = format.converterFrom(from.format);
        if (from.kind != kind) {
            throw new ProcessorStateException("Store " + store + " is a store of another kind: " + from.kind
                    + ", not " + kind + ". Give the new store another name, or reset the application");
        }
        if (converter == null) {
            throw new ProcessorStateException("Store " + store + " has rows of the format " + from.format
                    + ", and cannot be opened with the format " + format + ": a format can be changed from"
                    + " PLAIN to TIMESTAMPED to HEADERS only. To go back, delete the local state with"
                    + " KafkaStreams.cleanUp(), and Kafka restores it");
        }
        Tree old = database.openTree(name);
        if (!old.isEmpty()) {
            Tree target = database.tree(treeName());
            target.clear();
            try (BulkLoader loader = target.unsortedLoader(); RowIterator rows = old.scan()) {
                while (rows.hasNext()) {
                    Row row = rows.next();
                    loader.add(kind.move(row.key(), bucketMs), converter.apply(row.value()));
                }
                loader.finish();
            }
        }
        database.dropTree(name);
    }
}
