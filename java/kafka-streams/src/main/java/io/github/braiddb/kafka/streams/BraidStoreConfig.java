package io.github.braiddb.kafka.streams;

/** Names of settings: put them into the properties of the application, beside those of Kafka. */
public final class BraidStoreConfig {
    /**
     * Bytes of memtables and caches of all stores of the process. Stores whose settings differ have
     * separate budgets.
     */
    public static final String MEMORY_BYTES = "braiddb.memory.bytes";

    /** The value of {@link #MEMORY_BYTES} if it is not set: 256 MiB. */
    public static final long MEMORY_BYTES_DEFAULT = 256L << 20;

    /** Background threads of all stores of the process. If it is not set: a thread per processor, at most 4. */
    public static final String BACKGROUND_THREADS = "braiddb.background.threads";

    /**
     * Bytes of Java memory for the uncommitted rows of a store. A store with more of them writes them
     * to its database before the commit. Without effect if {@code enable.transactional.statestores} is
     * set: then {@code statestore.uncommitted.max.bytes} is the limit of all stores.
     */
    public static final String WRITE_BUFFER_BYTES = "braiddb.write.buffer.bytes";

    /** The value of {@link #WRITE_BUFFER_BYTES} if it is not set: 16 MiB. */
    public static final long WRITE_BUFFER_BYTES_DEFAULT = 16L << 20;

    /**
     * What a commit waits for: {@code sync} for the disk, {@code buffered} for the operating system,
     * {@code none} for nothing. If it is not set: {@code buffered}. A store and its offsets are
     * consistent after any failure with each of them; the changelog has what is lost.
     */
    public static final String DURABILITY = "braiddb.durability";

    /**
     * Where the stores publish checkpoints: a directory that all instances share, or {@code
     * s3://BUCKET/PREFIX} with credentials in the environment. A store without local state begins with
     * the newest one, and Kafka restores the rest from the changelog. If it is not set: none.
     */
    public static final String CHECKPOINT_URL = "braiddb.checkpoint.url";

    /** Milliseconds between two checkpoints of a store that has changed. */
    public static final String CHECKPOINT_INTERVAL_MS = "braiddb.checkpoint.interval.ms";

    /** The value of {@link #CHECKPOINT_INTERVAL_MS} if it is not set: 10 minutes. */
    public static final long CHECKPOINT_INTERVAL_MS_DEFAULT = 600_000;

    /**
     * Milliseconds after which a checkpoint is not installed any more: a compacted changelog forgets
     * deletions after its {@code delete.retention.ms}, and the deleted rows would come back. Half of
     * the topic's setting is the limit if that is lower.
     */
    public static final String CHECKPOINT_MAX_AGE_MS = "braiddb.checkpoint.max.age.ms";

    /** The value of {@link #CHECKPOINT_MAX_AGE_MS} if it is not set: 12 hours. */
    public static final long CHECKPOINT_MAX_AGE_MS_DEFAULT = 43_200_000;

    private BraidStoreConfig() {}
}
