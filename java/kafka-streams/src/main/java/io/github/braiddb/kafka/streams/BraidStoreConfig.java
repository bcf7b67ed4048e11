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

    private BraidStoreConfig() {}
}
