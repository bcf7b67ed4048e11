package io.github.braiddb.kafka.streams;

import org.apache.kafka.streams.DslStoreFormat;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Puts the stores of the DSL into BraidDB: the value of {@code dsl.store.suppliers.class}.
 */
public final class BraidDslStoreSuppliers implements DslStoreSuppliers {
    /** Called by Kafka Streams. */
    public BraidDslStoreSuppliers() {}

    private static Layout.Format format(DslStoreFormat format) {
        return switch (format) {
            case PLAIN -> Layout.Format.PLAIN;
            case TIMESTAMPED -> Layout.Format.TIMESTAMPED;
            case HEADERS -> Layout.Format.HEADERS;
        };
    }

    private static boolean isEmittedAtClose(EmitStrategy strategy) {
        return strategy.type() == EmitStrategy.StrategyType.ON_WINDOW_CLOSE;
    }

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        return BraidStores.keyValueStore(params.name(), format(params.dslStoreFormat()));
    }

    @Override
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        return BraidStores.windowStore(
                params.name(),
                format(params.dslStoreFormat()),
                params.retentionPeriod(),
                params.windowSize(),
                params.retainDuplicates(),
                isEmittedAtClose(params.emitStrategy()));
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        return BraidStores.sessionStore(
                params.name(),
                params.storeFormat() == DslStoreFormat.HEADERS
                        ? Layout.Format.SESSION_HEADERS
                        : Layout.Format.PLAIN,
                params.retentionPeriod(),
                isEmittedAtClose(params.emitStrategy()));
    }
}
