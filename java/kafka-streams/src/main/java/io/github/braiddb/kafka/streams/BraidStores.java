package io.github.braiddb.kafka.streams;

import java.time.Duration;
import java.util.Objects;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Suppliers of stores in BraidDB: in the place of those of Kafka's {@code Stores}, for its store
 * builders and for {@code Materialized.as}.
 *
 * <p>Every method throws {@link NullPointerException} for a null argument and
 * {@link IllegalArgumentException} for an impossible time.
 */
public final class BraidStores {
    /** Shortest time of a bucket of rows: that of Kafka's own stores. */
    private static final long BUCKET_MIN_MS = 60_000;

    /** Most buckets of a store whose results are emitted when a window closes. */
    private static final long BUCKETS_MAX = 100;

    private BraidStores() {}

    private record KeyValues(String name, Layout.Format format) implements KeyValueBytesStoreSupplier {
        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return BraidKeyValueStore.of(name, format);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    /** Its interface makes the DSL build stores with headers. */
    private record KeyValuesWithHeaders(String name) implements KeyValueBytesStoreSupplier, HeadersBytesStoreSupplier {
        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return BraidKeyValueStore.of(name, Layout.Format.HEADERS);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    private record Versioned(String name, long historyRetentionMs, long bucketMs)
            implements VersionedBytesStoreSupplier {
        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return new BraidVersionedStore(name, historyRetentionMs, bucketMs);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    /**
     * Returns a supplier of key-value stores whose values have no timestamps.
     *
     * @param name the name of the store
     * @return the supplier
     */
    public static KeyValueBytesStoreSupplier keyValueStore(String name) {
        return keyValueStore(name, Layout.Format.PLAIN);
    }

    /**
     * Returns a supplier of key-value stores whose values have timestamps.
     *
     * @param name the name of the store
     * @return the supplier
     */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStore(String name) {
        return keyValueStore(name, Layout.Format.TIMESTAMPED);
    }

    /**
     * Returns a supplier of key-value stores whose values have timestamps and headers.
     *
     * @param name the name of the store
     * @return the supplier
     */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStoreWithHeaders(String name) {
        return keyValueStore(name, Layout.Format.HEADERS);
    }

    static KeyValueBytesStoreSupplier keyValueStore(String name, Layout.Format format) {
        Objects.requireNonNull(name, "name");
        return format == Layout.Format.HEADERS ? new KeyValuesWithHeaders(name) : new KeyValues(name, format);
    }

    /**
     * Returns a supplier of versioned stores.
     *
     * @param name the name of the store
     * @param historyRetention how long earlier versions can be read, and how late a record may be
     * @return the supplier
     */
    public static VersionedBytesStoreSupplier versionedKeyValueStore(String name, Duration historyRetention) {
        long retentionMs = milliseconds(historyRetention, "historyRetention");
        return new Versioned(
                Objects.requireNonNull(name, "name"), retentionMs, Math.max(retentionMs / 3, BUCKET_MIN_MS));
    }

    /**
     * Returns a supplier of window stores whose values have no timestamps.
     *
     * @param name the name of the store
     * @param retentionPeriod how long a window is kept, at least {@code windowSize}
     * @param windowSize the size of a window
     * @param retainDuplicates true to keep all values of a key and window; needed for joins of streams
     * @return the supplier
     */
    public static WindowBytesStoreSupplier windowStore(
            String name, Duration retentionPeriod, Duration windowSize, boolean retainDuplicates) {
        return windowStore(name, Layout.Format.PLAIN, retentionPeriod, windowSize, retainDuplicates, false);
    }

    /**
     * Returns a supplier of window stores whose values have timestamps.
     *
     * @param name the name of the store
     * @param retentionPeriod how long a window is kept, at least {@code windowSize}
     * @param windowSize the size of a window
     * @param retainDuplicates true to keep all values of a key and window
     * @return the supplier
     */
    public static WindowBytesStoreSupplier timestampedWindowStore(
            String name, Duration retentionPeriod, Duration windowSize, boolean retainDuplicates) {
        return windowStore(name, Layout.Format.TIMESTAMPED, retentionPeriod, windowSize, retainDuplicates, false);
    }

    /**
     * Returns a supplier of window stores whose values have timestamps and headers.
     *
     * @param name the name of the store
     * @param retentionPeriod how long a window is kept, at least {@code windowSize}
     * @param windowSize the size of a window
     * @param retainDuplicates true to keep all values of a key and window
     * @return the supplier
     */
    public static WindowBytesStoreSupplier timestampedWindowStoreWithHeaders(
            String name, Duration retentionPeriod, Duration windowSize, boolean retainDuplicates) {
        return windowStore(name, Layout.Format.HEADERS, retentionPeriod, windowSize, retainDuplicates, false);
    }

    static WindowBytesStoreSupplier windowStore(
            String name,
            Layout.Format format,
            Duration retentionPeriod,
            Duration windowSize,
            boolean retainDuplicates,
            boolean isEmittedAtClose) {
        long retentionMs = milliseconds(retentionPeriod, "retentionPeriod");
        long sizeMs = milliseconds(windowSize, "windowSize");
        if (sizeMs > retentionMs) {
            throw new IllegalArgumentException("The retention period of the window store " + name
                    + " must be no smaller than its window size. Got size=[" + sizeMs + "], retention=[" + retentionMs
                    + "]");
        }
        return new WindowParameters(
                Objects.requireNonNull(name, "name"),
                format,
                retentionMs,
                isEmittedAtClose ? smallBucket(retentionMs, sizeMs) : bucket(retentionMs),
                sizeMs,
                retainDuplicates,
                isEmittedAtClose).supplier();
    }

    /**
     * Returns a supplier of session stores whose values have no headers.
     *
     * @param name the name of the store
     * @param retentionPeriod how long a session is kept after its end
     * @return the supplier
     */
    public static SessionBytesStoreSupplier sessionStore(String name, Duration retentionPeriod) {
        return sessionStore(name, Layout.Format.PLAIN, retentionPeriod, false);
    }

    /**
     * Returns a supplier of session stores whose values have headers.
     *
     * @param name the name of the store
     * @param retentionPeriod how long a session is kept after its end
     * @return the supplier
     */
    public static SessionBytesStoreSupplier sessionStoreWithHeaders(String name, Duration retentionPeriod) {
        return sessionStore(name, Layout.Format.SESSION_HEADERS, retentionPeriod, false);
    }

    static SessionBytesStoreSupplier sessionStore(
            String name, Layout.Format format, Duration retentionPeriod, boolean isEmittedAtClose) {
        long retentionMs = milliseconds(retentionPeriod, "retentionPeriod");
        return new SessionParameters(
                Objects.requireNonNull(name, "name"),
                format,
                retentionMs,
                isEmittedAtClose ? smallBucket(retentionMs, 1) : bucket(retentionMs),
                isEmittedAtClose).supplier();
    }

    /** Returns Kafka's length of a segment: its cache orders rows by it. */
    private static long bucket(long retentionMs) {
        return Math.max(retentionMs / 2, BUCKET_MIN_MS);
    }

    /** Returns a short bucket, so that a scan of the windows that close now reads few others. */
    private static long smallBucket(long retentionMs, long windowSizeMs) {
        return Math.max(1, Math.max(windowSizeMs, retentionMs / BUCKETS_MAX));
    }

    private static long milliseconds(Duration duration, String name) {
        Objects.requireNonNull(duration, name);
        long milliseconds;
        try {
            milliseconds = duration.toMillis();
        } catch (ArithmeticException e) {
            throw new IllegalArgumentException(name + " is too long: " + duration, e);
        }
        if (milliseconds < 0) {
            throw new IllegalArgumentException(name + " cannot be negative: " + duration);
        }
        return milliseconds;
    }
}
