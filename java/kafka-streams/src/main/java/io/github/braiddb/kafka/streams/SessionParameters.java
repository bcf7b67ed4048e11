package io.github.braiddb.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;

/** The parameters of a session store. */
record SessionParameters(
        String name, Layout.Format format, long retentionMs, long bucketMs, boolean isEmittedAtClose) {

    SessionBytesStoreSupplier supplier() {
        return format == Layout.Format.SESSION_HEADERS ? new WithHeaders(this) : new Supplier(this);
    }

    /** Supplies stores. */
    private static class Supplier implements SessionBytesStoreSupplier {
        private final SessionParameters parameters;

        private Supplier(SessionParameters parameters) {
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
        public SessionStore<Bytes, byte[]> get() {
            return BraidSessionStore.of(parameters);
        }

        @Override
        public String metricsScope() {
            return StoreMetrics.SCOPE;
        }
    }

    /** Its interface makes the DSL build stores with headers. */
    private static final class WithHeaders extends Supplier implements HeadersBytesStoreSupplier {
        private WithHeaders(SessionParameters parameters) {
            super(parameters);
        }
    }
}
