package io.github.braiddb;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** Options of a tree. Those that are not set are the database's. For one thread. */
public final class TreeOptions {
    private final Map<String, String> values = new LinkedHashMap<>();

    /** Options without a value. */
    public TreeOptions() {}

    /**
     * Sets the time after which rows expire that are put without a time of their own.
     *
     * @param ttl the time
     * @return this
     */
    public TreeOptions ttl(Duration ttl) {
        values.put("ttl", String.valueOf(Tree.micros(ttl)));
        return this;
    }

    /**
     * Sets the compression.
     *
     * @param compression the compression
     * @return this
     */
    public TreeOptions compression(Compression compression) {
        values.put("compression", compression.name());
        return this;
    }

    /**
     * Sets the size from which values go to files of their own.
     *
     * @param bytes bytes of a value
     * @return this
     */
    public TreeOptions blobThreshold(int bytes) {
        values.put("blobThreshold", String.valueOf(bytes));
        return this;
    }

    void encode(Encoder encoder) {
        values.forEach(encoder::option);
    }
}
