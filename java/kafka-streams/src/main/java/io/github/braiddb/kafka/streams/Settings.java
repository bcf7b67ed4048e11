package io.github.braiddb.kafka.streams;

import io.github.braiddb.Durability;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.streams.StreamsConfig;

/**
 * The settings of a store, from the application's.
 *
 * @param memory bytes of memtables and caches of all stores of the process
 * @param threads background threads of all stores of the process
 * @param writeBufferBytes bytes of uncommitted rows of a store without transactions
 * @param durability what a commit waits for
 * @param isExactlyOnce true at {@code exactly_once_v2}
 * @param isTransactional true if uncommitted rows must not reach the database
 * @param isConsistent true if changelog records have the position of their store
 * @param checkpointUrl where checkpoints are; null for none
 * @param checkpointIntervalMs milliseconds between two checkpoints
 * @param checkpointMaxAgeMs milliseconds after which a checkpoint is not installed
 */
record Settings(
        long memory,
        int threads,
        long writeBufferBytes,
        Durability durability,
        boolean isExactlyOnce,
        boolean isTransactional,
        boolean isConsistent,
        String checkpointUrl,
        long checkpointIntervalMs,
        long checkpointMaxAgeMs) {

    static Settings of(Map<String, Object> configs) {
        int processors = Runtime.getRuntime().availableProcessors();
        return new Settings(
                number(configs, BraidStoreConfig.MEMORY_BYTES, BraidStoreConfig.MEMORY_BYTES_DEFAULT),
                (int) number(configs, BraidStoreConfig.BACKGROUND_THREADS, Math.min(processors, 4)),
                number(configs, BraidStoreConfig.WRITE_BUFFER_BYTES, BraidStoreConfig.WRITE_BUFFER_BYTES_DEFAULT),
                durability(configs),
                StreamsConfig.EXACTLY_ONCE_V2.equals(configs.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG)),
                bool(configs, StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG),
                bool(configs, StreamsConfig.InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED),
                text(configs, BraidStoreConfig.CHECKPOINT_URL),
                number(
                        configs, BraidStoreConfig.CHECKPOINT_INTERVAL_MS,
                        BraidStoreConfig.CHECKPOINT_INTERVAL_MS_DEFAULT),
                number(
                        configs, BraidStoreConfig.CHECKPOINT_MAX_AGE_MS,
                        BraidStoreConfig.CHECKPOINT_MAX_AGE_MS_DEFAULT));
    }

    private static boolean bool(Map<String, Object> configs, String name) {
        return Boolean.parseBoolean(String.valueOf(configs.get(name)));
    }

    private static String text(Map<String, Object> configs, String name) {
        Object value = configs.get(name);
        return value == null || value.toString().isBlank() ? null : value.toString().trim();
    }

    private static long number(Map<String, Object> configs, String name, long preset) {
        Object value = configs.get(name);
        if (value == null) {
            return preset;
        }
        try {
            long number = Long.parseLong(value.toString().trim());
            if (number > 0 && (number <= Integer.MAX_VALUE || !name.equals(BraidStoreConfig.BACKGROUND_THREADS))) {
                return number;
            }
        } catch (NumberFormatException e) {
            throw new ConfigException(name, value, "must be a whole number");
        }
        throw new ConfigException(name, value, "must be positive, and threads at most 2147483647");
    }

    private static Durability durability(Map<String, Object> configs) {
        Object value = configs.get(BraidStoreConfig.DURABILITY);
        if (value == null) {
            return Durability.BUFFERED;
        }
        try {
            return Durability.valueOf(value.toString().trim().toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException e) {
            throw new ConfigException(BraidStoreConfig.DURABILITY, value, "must be sync, buffered or none");
        }
    }
}
