package io.github.braiddb.kafka.streams;

import java.time.Instant;
import java.util.Objects;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlySessionStore;

/** Reads of a session store: with the uncommitted rows, or without. */
record SessionView(BraidSessionStore store, boolean isCommitted) implements ReadOnlySessionStore<Bytes, byte[]> {
    private KeyValueIterator<Windowed<Bytes>, byte[]> ofKey(
            Bytes key, long earliestEnd, long latestStart, boolean isReverse) {
        Objects.requireNonNull(key, "key cannot be null");
        return store.sessions(key, key, earliestEnd, latestStart, isReverse, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long earliestEnd, long latestStart) {
        return ofKey(key, earliestEnd, latestStart, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes key, Instant earliestEnd, Instant latestStart) {
        return ofKey(key, earliestEnd.toEpochMilli(), latestStart.toEpochMilli(), false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, long earliestEnd, long latestStart) {
        return ofKey(key, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes key, Instant earliestEnd, Instant latestStart) {
        return ofKey(key, earliestEnd.toEpochMilli(), latestStart.toEpochMilli(), true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return store.sessions(keyFrom, keyTo, earliestEnd, latestStart, false, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, Instant earliestEnd, Instant latestStart) {
        return findSessions(keyFrom, keyTo, earliestEnd.toEpochMilli(), latestStart.toEpochMilli());
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return store.sessions(keyFrom, keyTo, earliestEnd, latestStart, true, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, Instant earliestEnd, Instant latestStart) {
        return backwardFindSessions(keyFrom, keyTo, earliestEnd.toEpochMilli(), latestStart.toEpochMilli());
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        return store.session(key, start, end, isCommitted);
    }

    @Override
    public byte[] fetchSession(Bytes key, Instant start, Instant end) {
        return fetchSession(key, start.toEpochMilli(), end.toEpochMilli());
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return ofKey(key, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return ofKey(key, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return store.sessions(keyFrom, keyTo, 0, Long.MAX_VALUE, false, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return store.sessions(keyFrom, keyTo, 0, Long.MAX_VALUE, true, isCommitted);
    }
}
