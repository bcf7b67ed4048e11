package io.github.braiddb;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/** Counters and sizes of a database at a moment. Immutable. */
public final class Stats {
    private final Map<String, Long> numbers;
    private final Map<String, String> texts;

    Stats(Decoder decoder) {
        Map<String, Long> numbers = new LinkedHashMap<>();
        for (int left = decoder.count(); left > 0; left--) {
            numbers.put(decoder.text(), decoder.number());
        }
        Map<String, String> texts = new LinkedHashMap<>();
        while (!decoder.isAtEnd()) {
            texts.put(decoder.text(), decoder.text());
        }
        this.numbers = Collections.unmodifiableMap(numbers);
        this.texts = texts;
    }

    /**
     * Returns all numbers, by the names of {@code braiddb::stats::Stats} in Rust, such as
     * {@code stall_us_max}.
     *
     * @return an unmodifiable map
     */
    public Map<String, Long> numbers() {
        return numbers;
    }

    /**
     * Returns why writes have failed for good.
     *
     * @return the reason, if they have
     */
    public Optional<String> failure() {
        return Optional.ofNullable(texts.get("failure"));
    }

    /**
     * Returns the commits since the open.
     *
     * @return the number
     */
    public long commits() {
        return numbers.get("commits");
    }

    /**
     * Returns the number of the last commit.
     *
     * @return the number
     */
    public long lastSequence() {
        return numbers.get("last_sequence");
    }

    /**
     * Returns the space of all files.
     *
     * @return bytes
     */
    public long diskBytes() {
        return numbers.get("disk_bytes");
    }

    /**
     * Returns the memory of memtables and cache.
     *
     * @return bytes
     */
    public long memoryBytes() {
        return numbers.get("memory_bytes");
    }

    /**
     * Returns the memory of memtables.
     *
     * @return bytes
     */
    public long memtableBytes() {
        return numbers.get("memtable_bytes");
    }

    /**
     * Returns the memory of the cache.
     *
     * @return bytes
     */
    public long cacheBytes() {
        return numbers.get("cache_bytes");
    }

    /**
     * Returns the block reads that the cache answered.
     *
     * @return the number
     */
    public long cacheHits() {
        return numbers.get("cache_hits");
    }

    /**
     * Returns the block reads that it did not answer.
     *
     * @return the number
     */
    public long cacheMisses() {
        return numbers.get("cache_misses");
    }

    /**
     * Returns the bytes of keys and values written.
     *
     * @return bytes
     */
    public long userBytesWritten() {
        return numbers.get("user_bytes_written");
    }

    /**
     * Returns the flushes of the disk.
     *
     * @return the number
     */
    public long syncs() {
        return numbers.get("syncs");
    }

    /**
     * Returns the snapshots that are open.
     *
     * @return the number
     */
    public long snapshots() {
        return numbers.get("snapshots");
    }

    /**
     * Returns the commits of transactions that had a conflict.
     *
     * @return the number
     */
    public long transactionConflicts() {
        return numbers.get("transaction_conflicts");
    }

    /**
     * Returns how often a write had to wait for background work.
     *
     * @return the number
     */
    public long stalls() {
        return numbers.get("stalls");
    }

    /**
     * Returns the failures of background work.
     *
     * @return the number
     */
    public long backgroundErrors() {
        return numbers.get("background_errors");
    }

    @Override
    public String toString() {
        return "Stats" + numbers + texts;
    }
}
