package io.github.braiddb.kafka.streams;

import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import org.apache.kafka.common.utils.Utils;

/**
 * Uncommitted rows of a store. Ranges are in the order of unsigned bytes.
 *
 * <p>Most stores read and write single rows, so rows are in a hash map. The first range builds an
 * index in key order, which writes then maintain.
 *
 * <p>One thread at a time writes; any threads read. INVARIANT O1: an iterator returns the rows as of
 * its start. Each write has a number; while an iterator is open, a row keeps the versions that the
 * iterator may need. Without one, a row has its last version only.
 *
 * <p>Arrays are copied on their way in and out: serializers pass those of the application, which may
 * use them again.
 */
final class Overlay {
    /**
     * Bytes of an entry beside its key and value: map node and slot, key, cell, version, two array
     * headers.
     */
    static final int ENTRY_BYTES = 144;

    /** Bytes of an entry in the index. */
    static final int INDEX_BYTES = 36;

    /** Stands for a deletion: compare it by identity. */
    static final byte[] DELETED = new byte[0];

    private final ConcurrentHashMap<Key, Cell> rows = new ConcurrentHashMap<>();

    /** INVARIANT O2: a put that finds this set adds its row here; rows of all others are in {@code rows} before. */
    private volatile ConcurrentNavigableMap<byte[], Cell> index;

    private volatile boolean isIndexComplete;
    private final Object build = new Object();
    private final AtomicInteger iterators = new AtomicInteger();
    private volatile long writes;
    private volatile long bytes;
    private volatile long entries;
    private volatile long puts;

    /** A version of a row. A null value is a deletion. */
    private record Version(byte[] value, long write, Version earlier) {}

    /** A row. It has no version until it is in all maps, so that gets and ranges see it at once. */
    private static final class Cell {
        private volatile Version version;
    }

    /** A key with a hash that suits numbers, too: those of {@code Arrays.hashCode} collide. */
    private static final class Key implements Comparable<Key> {
        private final byte[] bytes;
        private final int hash;

        private Key(byte[] bytes) {
            this(bytes, Utils.murmur2(bytes));
        }

        private Key(byte[] bytes, int hash) {
            this.bytes = bytes;
            this.hash = hash;
        }

        @Override
        public int hashCode() {
            return hash;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key key && hash == key.hash && Arrays.equals(bytes, key.bytes);
        }

        @Override
        public int compareTo(Key other) {
            return Arrays.compareUnsigned(bytes, other.bytes);
        }
    }

    /** A row as of an iterator's start. A null value is a deletion. The arrays are those of the overlay. */
    record Entry(byte[] key, byte[] value) {}

    boolean isEmpty() {
        return rows.isEmpty();
    }

    /** Returns the memory of the rows; 0 if there are none. */
    long bytes() {
        return index == null ? bytes : bytes + INDEX_BYTES * entries;
    }

    /** Returns the rows with a value, minus the deletions. */
    long netRows() {
        return 2 * puts - entries;
    }

    /** Sets a row. A null value deletes it. The caller excludes other writers. */
    void put(byte[] key, byte[] given) {
        byte[] value = given == null ? null : given.clone();
        long write = writes + 1;
        writes = write;
        Key sought = new Key(key);
        Cell cell = rows.get(sought);
        if (cell == null) {
            byte[] owned = key.clone();
            Cell made = new Cell();
            rows.put(new Key(owned, sought.hash), made);
            // After `rows`: see O2.
            ConcurrentNavigableMap<byte[], Cell> ordered = index;
            if (ordered != null) {
                ordered.put(owned, made);
            }
            made.version = new Version(value, write, null);
            bytes += ENTRY_BYTES + key.length + length(value);
            entries++;
            puts += value == null ? 0 : 1;
            return;
        }
        Version last = cell.version;
        // After the number: an iterator that starts now sees this write, or is counted here.
        cell.version = new Version(value, write, iterators.get() > 0 ? last : null);
        bytes += length(value) - length(last.value);
        puts += (value == null ? 0 : 1) - (last.value == null ? 0 : 1);
    }

    private static int length(byte[] value) {
        return value == null ? 0 : value.length;
    }

    /** Returns a copy of the value of a row: {@link #DELETED} for a deletion, null if the row is not here. */
    byte[] get(byte[] key) {
        Cell cell = rows.get(new Key(key));
        Version version = cell == null ? null : cell.version;
        if (version == null) {
            return null;
        }
        byte[] value = version.value;
        return value == null ? DELETED : value.clone();
    }

    /** Runs for each row, in any order, with the arrays of the overlay. The caller excludes writers. */
    void forEach(BiConsumer<byte[], byte[]> consumer) {
        for (Map.Entry<Key, Cell> row : rows.entrySet()) {
            consumer.accept(row.getKey().bytes, row.getValue().version.value);
        }
    }

    Rows scan(Range range) {
        return new Rows(index(), range);
    }

    /** Returns all rows in key order. The first call takes time for each row; puts do not wait for it. */
    private ConcurrentNavigableMap<byte[], Cell> index() {
        if (!isIndexComplete) {
            synchronized (build) {
                if (!isIndexComplete) {
                    ConcurrentNavigableMap<byte[], Cell> ordered =
                            new ConcurrentSkipListMap<>(Arrays::compareUnsigned);
                    // Before `rows` are read: later writes add to both.
                    index = ordered;
                    rows.forEach((key, cell) -> ordered.put(key.bytes, cell));
                    isIndexComplete = true;
                }
            }
        }
        return index;
    }

    /** Rows of a range as of the start. */
    final class Rows implements Iterator<Entry>, AutoCloseable {
        private final Iterator<Map.Entry<byte[], Cell>> cells;
        private final long seen;
        private Entry next;
        private boolean isClosed;

        private Rows(ConcurrentNavigableMap<byte[], Cell> ordered, Range range) {
            iterators.incrementAndGet();
            seen = writes;
            cells = range.of(ordered).entrySet().iterator();
        }

        @Override
        public boolean hasNext() {
            while (next == null && cells.hasNext()) {
                Map.Entry<byte[], Cell> cell = cells.next();
                Version version = cell.getValue().version;
                while (version != null && version.write > seen) {
                    version = version.earlier;
                }
                if (version != null) {
                    next = new Entry(cell.getKey(), version.value);
                }
            }
            return next != null;
        }

        /** Returns the next row, and does not move. */
        Entry peek() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return next;
        }

        @Override
        public Entry next() {
            Entry entry = peek();
            next = null;
            return entry;
        }

        @Override
        public void close() {
            if (!isClosed) {
                isClosed = true;
                iterators.decrementAndGet();
            }
        }
    }
}
