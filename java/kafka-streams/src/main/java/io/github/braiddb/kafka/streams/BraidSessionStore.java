package io.github.braiddb.kafka.streams;

import java.util.Objects;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.SessionStore;

/** A session store. The subclass only states the form of its values. */
class BraidSessionStore extends TimedStore implements SessionStore<Bytes, byte[]> {
    /** Bytes of a session's end and start, behind the key. */
    private static final int TIMES_LEN = 16;

    private final SessionView all = new SessionView(this, false);
    private final SessionView committed = new SessionView(this, true);

    private BraidSessionStore(SessionParameters parameters) {
        super(
                parameters.name(),
                new Layout(Layout.Kind.SESSION, parameters.format(), parameters.bucketMs()),
                new Buckets(parameters.bucketMs(), TIMES_LEN),
                parameters.retentionMs(),
                parameters.isEmittedAtClose());
    }

    static BraidSessionStore of(SessionParameters parameters) {
        return parameters.format() == Layout.Format.SESSION_HEADERS
                ? new WithHeaders(parameters)
                : new BraidSessionStore(parameters);
    }

    /** A session ends with its last record. */
    @Override
    final long sizeMs() {
        return 0;
    }

    /** A store whose values begin with headers. */
    static final class WithHeaders extends BraidSessionStore implements HeadersBytesStore {
        private WithHeaders(SessionParameters parameters) {
            super(parameters);
        }
    }

    private byte[] row(Windowed<Bytes> session) {
        return buckets.session(session.key().get(), session.window().start(), session.window().end());
    }

    private static void checkKey(Windowed<Bytes> session) {
        Objects.requireNonNull(session, "sessionKey cannot be null");
        Objects.requireNonNull(session.key(), "sessionKey.key() cannot be null");
        Objects.requireNonNull(session.window(), "sessionKey.window() cannot be null");
    }

    @Override
    public synchronized void put(Windowed<Bytes> session, byte[] aggregate) {
        checkKey(session);
        Storage open = storage();
        if (accept(session.window().end())) {
            open.put(row(session), aggregate);
        }
        moved();
    }

    @Override
    public synchronized void remove(Windowed<Bytes> session) {
        checkKey(session);
        Storage open = storage();
        if (advance(session.window().end())) {
            open.put(row(session), null);
        }
        moved();
    }

    byte[] session(Bytes key, long start, long end, boolean isCommitted) {
        Objects.requireNonNull(key, "key cannot be null");
        Storage open = storage();
        return end < liveFrom() ? null : open.get(buckets.session(key.get(), start, end), isCommitted);
    }

    /** Returns the sessions of a range of keys that end from a time on, and start up to a time. */
    KeyValueIterator<Windowed<Bytes>, byte[]> sessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart, boolean isReverse, boolean isCommitted) {
        return new Mapped<>(
                scan(keyFrom, keyTo, earliestEnd, Long.MAX_VALUE, liveFrom(), isReverse, isCommitted,
                        row -> buckets.secondTime(row) <= latestStart),
                this::window);
    }

    /** Returns all sessions that end within a time. */
    KeyValueIterator<Windowed<Bytes>, byte[]> ended(long earliestEnd, long latestEnd) {
        return new Mapped<>(scan(null, null, earliestEnd, latestEnd, emittableFrom(), false, false, row -> true), this::window);
    }

    private Windowed<Bytes> window(byte[] row) {
        return new Windowed<>(
                Bytes.wrap(buckets.key(row)),
                KafkaInternals.sessionWindow(buckets.secondTime(row), buckets.firstTime(row)));
    }

    @Override
    public ReadOnlySessionStore<Bytes, byte[]> readOnly(IsolationLevel isolation) {
        return isCommitted(isolation) ? committed : all;
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long earliestEnd, long latestEnd) {
        return ended(earliestEnd, latestEnd);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long earliestEnd, long latestStart) {
        return all.findSessions(key, earliestEnd, latestStart);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return all.backwardFindSessions(key, earliestEnd, latestStart);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return all.findSessions(keyFrom, keyTo, earliestEnd, latestStart);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return all.backwardFindSessions(keyFrom, keyTo, earliestEnd, latestStart);
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        return all.fetchSession(key, start, end);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return all.fetch(key);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return all.backwardFetch(key);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return all.fetch(keyFrom, keyTo);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return all.backwardFetch(keyFrom, keyTo);
    }
}
