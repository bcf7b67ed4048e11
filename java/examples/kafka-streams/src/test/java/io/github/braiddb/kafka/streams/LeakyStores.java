package io.github.braiddb.kafka.streams;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * A planted fault: the first put of the store "plays-by-track" goes to its database before its commit,
 * and the process ends as if it were killed. The test must notice. A later put would be no fault
 * without transactions: Kafka commits such stores at their close only, so it restores the row.
 */
public final class LeakyStores implements DslStoreSuppliers {
    /** How a process ends that leaked a row. */
    public static final int EXIT_CODE = 99;

    private final BraidDslStoreSuppliers stores = new BraidDslStoreSuppliers();

    /** Called by Kafka Streams. */
    public LeakyStores() {}

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        if (!params.name().equals("plays-by-track")) {
            return stores.keyValueStore(params);
        }
        if (params.dslStoreFormat() != DslStoreFormat.TIMESTAMPED) {
            throw new IllegalArgumentException("the leak is planted in another format: " + params.dslStoreFormat());
        }
        return new KeyValueBytesStoreSupplier() {
            @Override
            public String name() {
                return params.name();
            }

            @Override
            public KeyValueStore<Bytes, byte[]> get() {
                return new Leaky(params.name());
            }

            @Override
            public String metricsScope() {
                return "leaky";
            }
        };
    }

    private static final class Leaky extends BraidKeyValueStore implements TimestampedBytesStore {
        private Leaky(String name) {
            super(name, Layout.Format.TIMESTAMPED);
        }

        @Override
        public synchronized void put(Bytes key, byte[] value) {
            super.put(key, value);
            storage().database().openTree("rows KEY_VALUE TIMESTAMPED 0").put(key.get(), value);
            Runtime.getRuntime().halt(EXIT_CODE);
        }
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        return stores.windowStore(params);
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return stores.sessionStore(params);
    }
}
