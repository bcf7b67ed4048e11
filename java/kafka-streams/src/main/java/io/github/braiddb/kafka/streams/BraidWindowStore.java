package io.github.braiddb.kafka.streams;

import java.util.Objects;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** A window store. The subclasses only state the form of their values. */
class BraidWindowStore extends TimedStore implements WindowStore<Bytes, byte[]> {
    /** Bytes of a window's start and its number among duplicates, behind the key. */
    private static final int TIMES_LEN = 12;

    private final long windowSize;
    private final boolean isWithDuplicates;
    private final WindowView all = new WindowView(this, false);
    private final WindowView committed = new WindowView(this, true);

    /** The number of the last duplicate; 0 in a store without duplicates. */
    private int number;

    private BraidWindowStore(WindowParameters parameters) {
        super(
                parameters.name(),
                new Layout(Layout.Kind.WINDOW, parameters.format(), parameters.bucketMs()),
                new Buckets(parameters.bucketMs(), TIMES_LEN),
                parameters.retentionMs(),
                parameters.isEmittedAtClose());
        windowSize = parameters.windowSize();
        isWithDuplicates = parameters.retainDuplicates();
    }

    static BraidWindowStore of(WindowParameters parameters) {
        return switch (parameters.format()) {
            case TIMESTAMPED -> new Timestamped(parameters);
            case HEADERS -> new WithHeaders(parameters);
            default -> new BraidWindowStore(parameters);
        };
    }

    @Override
    final long sizeMs() {
        return windowSize;
    }

    /** A store whose values begin with a timestamp. */
    static final class Timestamped extends BraidWindowStore implements TimestampedBytesStore {
        private Timestamped(WindowParameters parameters) {
            super(parameters);
        }
    }

    /** A store whose values begin with headers and a timestamp. */
    static final class WithHeaders extends BraidWindowStore implements HeadersBytesStore {
        private WithHeaders(WindowParameters parameters) {
            super(parameters);
        }
    }

    @Override
    void opened(Storage opened, StateStoreContext context) {
        super.opened(opened, context);
        number = (int) opened.keep(Meta.SEQUENCE, 0, () -> number);
    }

    @Override
    public synchronized void put(Bytes key, byte[] value, long windowStart) {
        Objects.requireNonNull(key, "key cannot be null");
        Storage open = storage();
        // A deletion has no meaning among duplicates.
        if (value != null || !isWithDuplicates) {
            if (isWithDuplicates) {
                number = number + 1 & Integer.MAX_VALUE;
            }
            if (accept(windowStart)) {
                open.put(buckets.window(key.get(), windowStart, number), value);
            }
        }
        moved();
    }

    /** Returns the windows that start within a time, of all keys or of those within a range. */
    KeyValueIterator<Windowed<Bytes>, byte[]> windows(
            Bytes keyFrom, Bytes keyTo, long from, long to, boolean isReverse, boolean isCommitted) {
        return new Mapped<>(scan(keyFrom, keyTo, from, to, liveFrom(), isReverse, isCommitted, row -> true), this::window);
    }

    /** Returns the windows of a key. */
    WindowStoreIterator<byte[]> windows(Bytes key, long from, long to, boolean isReverse, boolean isCommitted) {
        Objects.requireNonNull(key, "key cannot be null");
        return new Mapped.Starts(
                scan(key, key, from, to, liveFrom(), isReverse, isCommitted, row -> true), buckets::firstTime);
    }

    byte[] window(Bytes key, long start, boolean isCommitted) {
        Objects.requireNonNull(key, "key cannot be null");
        Storage open = storage();
        return start < liveFrom() ? null : open.get(buckets.window(key.get(), start, number), isCommitted);
    }

    private Windowed<Bytes> window(byte[] row) {
        return new Windowed<>(
                Bytes.wrap(buckets.key(row)), KafkaInternals.timeWindow(buckets.firstTime(row), windowSize));
    }

    @Override
    public ReadOnlyWindowStore<Bytes, byte[]> readOnly(IsolationLevel isolation) {
        return isCommitted(isolation) ? committed : all;
    }

    @Override
    public byte[] fetch(Bytes key, long start) {
        return window(key, start, false);
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return windows(key, from, to, false, false);
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return windows(key, from, to, true, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return windows(keyFrom, keyTo, from, to, false, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return windows(keyFrom, keyTo, from, to, true, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        return new Mapped<>(scan(null, null, from, to, emittableFrom(), false, false, row -> true), this::window);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return windows(null, null, from, to, true, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return all.all();
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return all.backwardAll();
    }
}
