package io.github.braiddb.kafka.streams;

import java.util.Collection;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.streams.kstream.Window;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.ClientUtils;
import org.apache.kafka.streams.processor.internals.ProcessorContextImpl;
import org.apache.kafka.streams.processor.internals.ProcessorContextUtils;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.Task;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;
import org.apache.kafka.streams.state.internals.WithRetentionPeriod;

/**
 * All uses of classes of Kafka Streams that are not its public interface. A store cannot do without
 * them: a restore with timestamps, the count of dropped records, windows, and the changelog of a store
 * have no other interface.
 */
final class KafkaInternals {
    private KafkaInternals() {}

    /**
     * A store whose restore need not read the whole changelog: it begins at the first record whose time
     * is {@code retentionPeriod()} before that of the last record.
     */
    interface Retaining extends WithRetentionPeriod {}

    /** Returns a callback that gets many records of the changelog, with timestamps and headers. */
    static StateRestoreCallback restoreCallback(Consumer<Collection<ConsumerRecord<byte[], byte[]>>> restore) {
        return (RecordBatchingStateRestoreCallback) restore::accept;
    }

    /** Adds the position that a record of the changelog has in its headers. */
    static void addPosition(ConsumerRecord<byte[], byte[]> record, boolean isConsistent, Position position) {
        ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(record, isConsistent, position);
    }

    /** Returns the sensor of the task's records that were dropped because they are too late. */
    static Sensor droppedRecords(StateStoreContext context) {
        return TaskMetrics.droppedRecordsSensor(
                Thread.currentThread().getName(),
                context.taskId().toString(),
                ProcessorContextUtils.metricsImpl(context));
    }

    /** Returns the changelog of a store; null if it has none. */
    static Changelog changelog(StateStoreContext context, String store) {
        if (context.appConfigs().get(Changelog.CONFIG) instanceof Changelog given) {
            return given;
        }
        if (!(context instanceof ProcessorContextImpl internal)) {
            return null;
        }
        String topic = internal.changelogFor(store);
        return topic == null ? null : new KafkaChangelog(
                new TopicPartition(topic, context.taskId().partition()),
                () -> internal.taskType() == Task.TaskType.ACTIVE,
                () -> new ClientUtils.QuietStreamsConfig(context.appConfigs()));
    }

    static Window timeWindow(long start, long size) {
        long end = start + size;
        return new TimeWindow(start, end < 0 ? Long.MAX_VALUE : end);
    }

    static Window sessionWindow(long start, long end) {
        return new SessionWindow(start, end);
    }

    static boolean isPermitted(Position position, PositionBound bound, int partition) {
        return StoreQueryUtils.isPermitted(position, bound, partition);
    }

    /** Answers a query of keys, ranges or windows through the store's {@code readOnly}. */
    static <R> QueryResult<R> query(
            Query<R> query,
            PositionBound bound,
            QueryConfig config,
            StateStore store,
            Position position,
            StateStoreContext context) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, store, position, context);
    }
}
