package io.github.braiddb.kafka.streams;

import io.github.braiddb.BraidException;
import io.github.braiddb.Row;
import io.github.braiddb.RowIterator;
import java.util.Arrays;
import java.util.NoSuchElementException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;

/** Rows of a range: those of the overlay, and those of the database that the overlay does not hide. */
final class MergedRows implements KeyValueIterator<Bytes, byte[]> {
    private final Storage storage;
    private final Overlay.Rows written;
    private final RowIterator read;
    private final int sign;
    private Row nextRead;
    private KeyValue<Bytes, byte[]> next;
    private volatile boolean isClosed;
    private volatile boolean isEnded;

    /** Either may be null. */
    MergedRows(Storage storage, Overlay.Rows written, RowIterator read, boolean isReverse) {
        this.storage = storage;
        this.written = written;
        this.read = read;
        sign = isReverse ? -1 : 1;
    }

    /** Returns true if the store was closed before this iterator. */
    boolean isEnded() {
        return isEnded;
    }

    @Override
    public boolean hasNext() {
        if (next != null) {
            return true;
        }
        if (isEnded) {
            throw new InvalidStateStoreException("Store " + storage.store() + " has closed");
        }
        if (isClosed) {
            throw new InvalidStateStoreException("The iterator of store " + storage.store() + " has closed");
        }
        try {
            next = merge();
        } catch (BraidException e) {
            throw Failures.of(storage.store(), e);
        }
        return next != null;
    }

    private KeyValue<Bytes, byte[]> merge() {
        while (true) {
            if (nextRead == null && read != null && read.hasNext()) {
                nextRead = read.next();
            }
            boolean isWritten = written != null && written.hasNext();
            if (!isWritten && nextRead == null) {
                return null;
            }
            int order = !isWritten ? 1
                    : nextRead == null ? -1
                    : sign * Arrays.compareUnsigned(written.peek().key(), nextRead.key());
            if (order > 0) {
                Row row = nextRead;
                nextRead = null;
                return KeyValue.pair(Bytes.wrap(row.key()), row.value());
            }
            if (order == 0) {
                nextRead = null;
            }
            Overlay.Entry entry = written.next();
            if (entry.value() != null) {
                return KeyValue.pair(Bytes.wrap(entry.key().clone()), entry.value().clone());
            }
        }
    }

    @Override
    public KeyValue<Bytes, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<Bytes, byte[]> row = next;
        next = null;
        return row;
    }

    @Override
    public Bytes peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return next.key;
    }

    /** Closes it because the store closes. */
    void end() {
        isEnded = true;
        close();
    }

    @Override
    public synchronized void close() {
        if (isClosed) {
            return;
        }
        isClosed = true;
        storage.ended(this);
        if (written != null) {
            written.close();
        }
        if (read != null) {
            read.close();
        }
    }
}
