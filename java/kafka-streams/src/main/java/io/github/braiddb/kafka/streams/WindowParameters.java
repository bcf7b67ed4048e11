package io.github.braiddb.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

/** The parameters of a window store. */
record WindowParameters(
        String name,
        Layout.Format format,
        long retentionMs,
        long bucketMs,
        long windowSize,
        boolean retainDuplicates,
        boolean isEmittedAtClose) {

    WindowBytesStoreSupplier supplier() {
        return format == Layout.Format.HEADERS ? new WithHeaders(this) : new Supplier(this);
    }

    /** Supplies stores. */
    private static class Supplier implements WindowBytesStoreSupplier {
        private final WindowParameters parameters;

        private Supplier(WindowParameters parameters) {
            this.parameters = parameters;
        }

        @Override
        public String name() {
            return parameters.name;
        }

        @Override
        public long retentionPeriod() {
            return parameters.retentionMs;
        }

        @Override
        public long segmentIntervalMs() {
            return parameters.bucketMs;
        }

        @Override
        public long windowSize() {
            return parameters.windowSize;
        }

        @Override
        public boolean retainDuplicates() {
            return parameters.retainDuplicates;
        }

        @Override
        public WindowStore<Bytes, byte[]> get() {
            return BraidWindowStore.of(parameters);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    /** Its interface makes the DSL build stores with headers. */
    private static final class WithHeaders extends Supplier implements HeadersBytesStoreSupplier {
        private WithHeaders(WindowParameters parameters) {
            super(parameters);
        }
    }
}
