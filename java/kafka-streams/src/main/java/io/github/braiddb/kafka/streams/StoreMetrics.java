package io.github.braiddb.kafka.streams;

import io.github.braiddb.BraidException;
import io.github.braiddb.Stats;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.ToLongFunction;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeCount;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.streams.StreamsMetrics;
import org.apache.kafka.streams.processor.StateStoreContext;

/**
 * Metrics of a store, in the group of Kafka's store metrics. Kafka adds those of calls (rates and
 * latencies of put, get and so on) with the tag {@code braiddb-state-id}.
 */
final class StoreMetrics implements AutoCloseable {
    static final String SCOPE = "braiddb";
    private static final String GROUP = "stream-state-metrics";

    /** Age at which the counters of the database are read again. */
    private static final long STATS_AGE_NS = 1_000_000_000;

    private final StreamsMetrics registry;
    private final Storage storage;
    private final Sensor commits;
    private final Sensor gauges;
    private Stats stats;
    private long statsTime;

    StoreMetrics(Storage storage, StateStoreContext context, StoreCheckpoints checkpoints) {
        this.storage = storage;
        registry = context.metrics();
        Map<String, String> tags = new LinkedHashMap<>();
        tags.put("thread-id", Thread.currentThread().getName());
        tags.put("task-id", context.taskId().toString());
        tags.put(SCOPE + "-state-id", storage.store());
        String id = SCOPE + "." + context.taskId() + "." + storage.store() + "." + Thread.currentThread().getName();

        commits = registry.addSensor(id + ".commits", Sensor.RecordingLevel.INFO);
        commits.add(name("commit-write-latency-avg", "Mean nanoseconds of a commit", tags), new Avg());
        commits.add(name("commit-write-latency-max", "Most nanoseconds of a commit", tags), new Max());
        commits.add(name("commit-write-total", "Commits, also those without a change", tags), new CumulativeCount());

        gauges = registry.addSensor(id + ".gauges", Sensor.RecordingLevel.INFO);
        gauge("uncommitted-bytes", "Bytes of Java memory of uncommitted rows", tags, Storage::uncommittedBytes);
        gauge("estimate-num-keys", "Estimate of the rows", tags, open -> open.rowsEstimate(false));
        gauge("disk-bytes", "Bytes of the files", tags, open -> stats().diskBytes());
        gauge("memory-bytes", "Bytes of memtables and cache", tags, open -> stats().memoryBytes());
        gauge("cache-hits", "Block reads that the cache answered", tags, open -> stats().cacheHits());
        gauge("cache-misses", "Block reads that it did not answer", tags, open -> stats().cacheMisses());
        gauge("bytes-written", "Bytes of keys and values written", tags, open -> stats().userBytesWritten());
        gauge("write-stalls", "Writes that waited for background work", tags, open -> stats().stalls());
        gauge("background-errors", "Failures of background work", tags, open -> stats().backgroundErrors());
        if (checkpoints != null) {
            gauge("checkpoint-published-total", "Published checkpoints", tags, open -> checkpoints.published.get());
            gauge("checkpoint-published-bytes-total", "Bytes of published checkpoints that were uploaded", tags,
                    open -> checkpoints.bytes.get());
            gauge("checkpoint-failed-total", "Failed publications and installations", tags,
                    open -> checkpoints.failed.get());
            gauge("checkpoint-installed-total", "Installed checkpoints", tags, open -> checkpoints.installed.get());
            gauge("checkpoint-refused-total", "Checkpoints that were too old or did not fit", tags,
                    open -> checkpoints.refused.get());
        }
    }

    private static MetricName name(String name, String description, Map<String, String> tags) {
        return new MetricName(SCOPE + "-" + name, GROUP, description, tags);
    }

    private void gauge(String name, String description, Map<String, String> tags, ToLongFunction<Storage> value) {
        gauges.add(name(name, description, tags), new Gauge(value));
    }

    private synchronized Stats stats() {
        long now = System.nanoTime();
        if (stats == null || now - statsTime > STATS_AGE_NS) {
            stats = storage.database().stats();
            statsTime = now;
        }
        return stats;
    }

    /** Returns a number when asked; NaN after the store's close. */
    private final class Gauge implements MeasurableStat {
        private final ToLongFunction<Storage> value;

        private Gauge(ToLongFunction<Storage> value) {
            this.value = value;
        }

        @Override
        public double measure(MetricConfig config, long now) {
            try {
                return storage.isOpen() ? value.applyAsLong(storage) : Double.NaN;
            } catch (BraidException | org.apache.kafka.streams.errors.StreamsException e) {
                return Double.NaN;
            }
        }

        @Override
        public void record(MetricConfig config, double value, long timeMs) {}
    }

    void committed(long nanoseconds) {
        commits.record(nanoseconds);
    }

    @Override
    public void close() {
        registry.removeSensor(commits);
        registry.removeSensor(gauges);
    }
}
