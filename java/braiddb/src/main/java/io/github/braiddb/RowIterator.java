package io.github.braiddb;

import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * Rows of a scan. It reads ahead: 16 rows at first, later up to 1,024, with one call of the native
 * library for each part. Close it unless it is read to its end; the garbage collector closes a
 * forgotten one, which pins old versions of rows until then.
 *
 * <p>For one thread at a time. Another thread may close it: then {@link #next} throws
 * {@link ClosedException}. In a transaction, the rows read ahead count as read, and rows are read
 * again if the transaction has written since.
 */
public final class RowIterator implements Iterator<Row>, AutoCloseable {
    private static final int ROWS_FIRST = 16;
    private static final int ROWS_GROWTH = 8;
    private static final int ROWS_MAX = 1024;

    /** Bytes before the rows in the buffer, and before each row. */
    private static final int HEADER = 8;

    /** Kept reachable during calls. */
    private final Object tree;

    private final Place place;
    private long left;
    private int rowsMax = ROWS_FIRST;

    private Scratch rows;
    private int at;
    private int end;

    /** Null if there are no rows behind those in the buffer. */
    private Handle scan;

    /** The rows in the buffer are the last ones, unless the transaction writes. */
    private boolean isLast;

    private int writesSeen;

    /** The last returned row of a transaction. */
    private Row last;

    private volatile boolean isClosed;

    private RowIterator(Object tree, Place place, long limit) {
        this.tree = tree;
        this.place = place;
        left = limit;
    }

    /** Opens the scan: see {@code scan_open} of the native library. */
    private interface Open {
        long run(long place, int rowsMax, Scratch scratch);
    }

    static RowIterator ofRange(Object tree, Handle handle, Place place, KeyRange range, boolean keysOnly) {
        RowIterator iterator = new RowIterator(tree, place, range.limit());
        byte[] arguments = range.encode().toBytes();
        iterator.open(arguments, (at, rowsMax, scratch) -> Native.scanOpen(
                handle.address, at, keysOnly ? 1 : 0, rowsMax, arguments.length, scratch.address,
                scratch.capacity()));
        return iterator;
    }

    static RowIterator ofValues(Object tree, Handle handle, Place place, byte[] key, boolean isReverse) {
        RowIterator iterator = new RowIterator(tree, place, Long.MAX_VALUE);
        iterator.open(key, (at, rowsMax, scratch) -> Native.scanValues(
                handle.address, at, rowsMax, isReverse ? 1 : 0, key.length, scratch.address,
                scratch.capacity()));
        return iterator;
    }

    private void open(byte[] arguments, Open open) {
        if (left == 0) {
            isClosed = true;
            return;
        }
        rows = Scratch.HELD.take(arguments.length);
        try {
            rows.buffer.put(0, arguments);
            long address = place.acquire();
            long result;
            try {
                writesSeen = place.writes();
                result = open.run(address, wanted(), rows);
            } finally {
                place.release();
            }
            int handleAt = result == Errors.TOO_SMALL ? HEADER : 0;
            if (result != Errors.TOO_SMALL) {
                rows.check(result);
            }
            long scanAddress = rows.buffer.getLong(handleAt);
            if (scanAddress != 0) {
                scan = new Handle(scanAddress, Native::scanFree);
            }
            take(result);
        } catch (Throwable e) {
            close();
            throw e;
        } finally {
            Reference.reachabilityFence(tree);
            Reference.reachabilityFence(this);
        }
    }

    private int wanted() {
        return (int) Math.min(rowsMax, left);
    }

    /** Takes the rows that a call has put into the buffer. Gets a larger one for a large row. */
    private void take(long result) {
        while (result == Errors.TOO_SMALL) {
            grow(rows.buffer.getLong(0));
            result = Native.scanNext(scan.address, wanted(), rows.address, rows.capacity());
        }
        rows.check(result);
        at = HEADER;
        end = HEADER + (int) (result >> 1);
        if ((result & 1) != 0 && scan != null && !place.isTransaction()) {
            scan.free();
            scan = null;
        }
        isLast = (result & 1) != 0;
        rowsMax = Math.min(rowsMax * ROWS_GROWTH, ROWS_MAX);
    }

    private void grow(long capacity) {
        Scratch larger = Scratch.of(capacity);
        Scratch.HELD.give(rows);
        rows = larger;
    }

    /** Reads more rows; closes the iterator if there are none. */
    private synchronized void fetch() {
        if (isClosed) {
            return;
        }
        if (left == 0 || isLast && place.writes() == writesSeen) {
            close();
            return;
        }
        try {
            long ignored = place.acquire();
            try {
                if (place.writes() != writesSeen) {
                    seek();
                }
                take(Native.scanNext(scan.address, wanted(), rows.address, rows.capacity()));
            } finally {
                place.release();
            }
        } catch (Throwable e) {
            close();
            throw e;
        }
        if (at == end) {
            close();
        }
    }

    /** Moves behind the last returned row of a transaction, since a write may have changed the next. */
    private void seek() {
        writesSeen = place.writes();
        rowsMax = ROWS_FIRST;
        int keyLen = -1;
        int valueLen = 0;
        if (last != null) {
            keyLen = last.key().length;
            valueLen = last.value().length;
            long needed = (long) keyLen + valueLen + Scratch.RESULT_MIN;
            if (rows.capacity() < needed) {
                grow(needed);
            }
            rows.buffer.put(0, last.key());
            rows.buffer.put(keyLen, last.value());
        }
        rows.check(Native.scanSeek(scan.address, keyLen, valueLen, rows.address, rows.capacity()));
    }

    /**
     * Returns true if there is another row. May read rows.
     *
     * @return false at the end
     * @throws ClosedException if another thread closed the iterator, or its database, snapshot or
     *     transaction is closed
     */
    @Override
    public boolean hasNext() {
        if (at < end && left > 0 && (!place.isTransaction() || place.writes() == writesSeen)) {
            return true;
        }
        fetch();
        return !isClosed;
    }

    /**
     * Returns the next row.
     *
     * @return the row
     * @throws NoSuchElementException at the end
     */
    @Override
    public Row next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        Scratch from = rows;
        int start = at;
        byte[] key = bytes(from, start + HEADER, length(from, start));
        byte[] value = bytes(from, start + HEADER + key.length, length(from, start + 4));
        checkNotReused();
        at = start + HEADER + key.length + value.length;
        left--;
        Row row = new Row(key, value);
        if (place.isTransaction()) {
            last = row;
        }
        return row;
    }

    /**
     * Returns the key of the next row, and does not move.
     *
     * @return the key
     * @throws NoSuchElementException at the end
     */
    public byte[] peekKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        byte[] key = bytes(rows, at + HEADER, length(rows, at));
        checkNotReused();
        return key;
    }

    private int length(Scratch from, int position) {
        if (from == null || position < 0 || position > from.capacity() - 4) {
            throw new ClosedException("the iterator was closed by another thread");
        }
        return from.buffer.getInt(position);
    }

    private byte[] bytes(Scratch from, int position, int len) {
        if (len < 0 || len > from.capacity() - position) {
            throw new ClosedException("the iterator was closed by another thread");
        }
        byte[] bytes = new byte[len];
        from.buffer.get(position, bytes);
        return bytes;
    }

    /** Throws if another thread closed the iterator: another scan may use the buffer since. */
    private void checkNotReused() {
        VarHandle.loadLoadFence();
        if (isClosed) {
            throw new ClosedException("the iterator was closed by another thread");
        }
    }

    /**
     * Returns the rest of the rows as a stream, whose close closes this iterator.
     *
     * @return a sequential stream
     */
    public Stream<Row> stream() {
        int features = Spliterator.ORDERED | Spliterator.DISTINCT | Spliterator.NONNULL;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(this, features), false)
                .onClose(this::close);
    }

    /** Releases the scan. Does nothing if it is closed. */
    @Override
    public synchronized void close() {
        isClosed = true;
        if (scan != null) {
            scan.free();
            scan = null;
        }
        Scratch held = rows;
        if (held != null) {
            rows = null;
            Scratch.HELD.give(held);
        }
        end = 0;
        at = 0;
    }
}
