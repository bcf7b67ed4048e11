package io.github.braiddb.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

/** The parameters of a window store, and its supplier. */
record WindowParameters(
        String name, Layout.Format format, long retentionMs, long bucketMs, long windowSize, boolean retainDuplicates)
        implements WindowBytesStoreSupplier {

    @Override
    public long retentionPeriod() {
        return retentionMs;
    }

    @Override
    public long segmentIntervalMs() {
        return bucketMs;
    }

    @Override
    public WindowStore<Bytes, byte[]> get() {
        return BraidWindowStore.of(this);
    }

    @Override
    public String metricsScope() {
        return StoreMetrics.SCOPE;
    }
}
