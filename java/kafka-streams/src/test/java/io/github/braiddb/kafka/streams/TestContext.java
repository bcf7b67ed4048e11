package io.github.braiddb.kafka.streams;

import java.io.File;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StreamsMetrics;
import org.apache.kafka.streams.processor.CommitCallback;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.api.MockProcessorContext;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;

/** The context of a store without a broker: it remembers the store's restore callback. */
final class TestContext implements StateStoreContext {
    static final String TOPIC = "input";
    static final String CHANGELOG = "changelog";

    private final File directory;
    private final Map<String, Object> configs = new HashMap<>();
    private final StreamsMetrics metrics = new MockProcessorContext<>().metrics();
    private final Map<String, RecordBatchingStateRestoreCallback> callbacks = new HashMap<>();
    private String application = "test";
    private long offset = -1;

    TestContext(File directory, Map<String, ?> configs) {
        this.directory = directory;
        this.configs.putAll(configs);
    }

    static Map<String, Object> exactlyOnce(boolean isTransactional) {
        return Map.of(
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
                StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, isTransactional);
    }

    TestContext of(String other) {
        application = other;
        return this;
    }

    /** Sets the offset of the record that is processed. */
    void at(long offset) {
        this.offset = offset;
    }

    void restore(String store, Collection<ConsumerRecord<byte[], byte[]>> records) {
        callbacks.get(store).restoreBatch(records);
    }

    static ConsumerRecord<byte[], byte[]> record(long offset, byte[] key, byte[] value) {
        return new ConsumerRecord<>(CHANGELOG, 0, offset, key, value);
    }

    void restore(String store, byte[] key, byte[] value) {
        restore(store, List.of(record(0, key, value)));
    }

    @Override
    public String applicationId() {
        return application;
    }

    @Override
    public TaskId taskId() {
        return new TaskId(0, 0);
    }

    @Override
    public Optional<RecordMetadata> recordMetadata() {
        if (offset < 0) {
            return Optional.empty();
        }
        long at = offset;
        return Optional.of(new RecordMetadata() {
            @Override
            public String topic() {
                return TOPIC;
            }

            @Override
            public int partition() {
                return 0;
            }

            @Override
            public long offset() {
                return at;
            }
        });
    }

    @Override
    public Serde<?> keySerde() {
        return Serdes.Bytes();
    }

    @Override
    public Serde<?> valueSerde() {
        return Serdes.ByteArray();
    }

    @Override
    public File stateDir() {
        return directory;
    }

    @Override
    public StreamsMetrics metrics() {
        return metrics;
    }

    @Override
    public void register(StateStore store, StateRestoreCallback callback) {
        callbacks.put(store.name(), (RecordBatchingStateRestoreCallback) callback);
    }

    @Override
    public void register(StateStore store, StateRestoreCallback callback, CommitCallback committed) {
        register(store, callback);
    }

    @Override
    public Map<String, Object> appConfigs() {
        return configs;
    }

    @Override
    public Map<String, Object> appConfigsWithPrefix(String prefix) {
        return Map.of();
    }
}
