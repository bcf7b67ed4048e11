package io.github.braiddb.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;

/** The parameters of a session store, and its supplier. */
record SessionParameters(String name, Layout.Format format, long retentionMs, long bucketMs)
        implements SessionBytesStoreSupplier {

    @Override
    public long retentionPeriod() {
        return retentionMs;
    }

    @Override
    public long segmentIntervalMs() {
        return bucketMs;
    }

    @Override
    public SessionStore<Bytes, byte[]> get() {
        return BraidSessionStore.of(this);
    }

    @Override
    public String metricsScope() {
        return StoreMetrics.SCOPE;
    }
}
