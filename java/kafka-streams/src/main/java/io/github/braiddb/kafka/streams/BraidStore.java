package io.github.braiddb.kafka.streams;

import java.util.Collection;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;

/** What all stores have in common: life cycle, offsets, position, queries, restore. */
abstract class BraidStore implements StateStore {
    private final String name;
    private final Layout layout;
    private StateStoreContext context;
    private Settings settings;
    private Changelog changelog;
    private StoreCheckpoints checkpoints;
    private Publisher publisher;
    private StoreMetrics metrics;
    private volatile Storage storage;

    BraidStore(String name, Layout layout) {
        this.name = Objects.requireNonNull(name, "name");
        this.layout = layout;
    }

    @Override
    public final String name() {
        return name;
    }

    @Override
    public final boolean persistent() {
        return true;
    }

    // Deprecated since it is to be the only way.
    @SuppressWarnings("deprecation")
    @Override
    public final boolean managesOffsets() {
        return true;
    }

    @Override
    public final boolean isOpen() {
        Storage open = storage;
        return open != null && open.isOpen();
    }

    @Override
    public final void init(StateStoreContext context, StateStore root) {
        if (isOpen()) {
            throw new IllegalStateException("Store " + name + " is open already");
        }
        this.context = context;
        settings = Settings.of(context.appConfigs());
        changelog = KafkaInternals.changelog(context, name);
        if (checkpoints == null) {
            checkpoints = StoreCheckpoints.of(context, name, settings, changelog);
        }
        Storage opened = Storage.open(name, context.stateDir(), settings, layout, checkpoints);
        try {
            storage = opened;
            opened(opened, context);
            metrics = new StoreMetrics(opened, context, checkpoints);
            if (root != null) {
                context.register(root, KafkaInternals.restoreCallback(this::restore));
            }
            if (checkpoints != null) {
                publisher = Publisher.start(checkpoints, opened, settings);
            }
        } catch (RuntimeException e) {
            close();
            throw e;
        }
    }

    /** Reads what the store keeps beside its rows. */
    void opened(Storage opened, StateStoreContext context) {}

    /** Returns the open storage. */
    final Storage storage() {
        Storage open = storage;
        if (open == null || !open.isOpen()) {
            throw Failures.closed(name, null);
        }
        return open;
    }

    final StateStoreContext context() {
        return context;
    }

    static boolean isCommitted(IsolationLevel isolation) {
        return isolation == IsolationLevel.READ_COMMITTED;
    }

    /** Adds the record that is processed to the position, after each write. */
    final void moved() {
        context.recordMetadata().ifPresent(record -> {
            if (record.topic() != null) {
                storage().consumed(record.topic(), record.partition(), record.offset());
            }
        });
    }

    private void restore(Collection<ConsumerRecord<byte[], byte[]>> records) {
        Storage open = storage();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            KafkaInternals.addPosition(record, settings.isConsistent(), open.position());
        }
        restore(open, records);
    }

    /** Writes records of the changelog. */
    abstract void restore(Storage open, Collection<ConsumerRecord<byte[], byte[]>> records);

    @Override
    public final void commit(Map<TopicPartition, Long> changelogOffsets) {
        long start = System.nanoTime();
        if (changelogOffsets.isEmpty() && changelog != null) {
            // Kafka gives no offset if it found the committed one outside of the changelog.
            storage().corrupted();
        } else {
            storage().commit(changelogOffsets);
        }
        metrics.committed(System.nanoTime() - start);
    }

    @Override
    public final Long committedOffset(TopicPartition partition) {
        return storage().committedOffset(partition);
    }

    @Override
    public final long approximateNumUncommittedBytes() {
        return storage().uncommittedBytes();
    }

    @Override
    public final Position getPosition() {
        Storage open = storage;
        return open == null ? Position.emptyPosition() : open.position();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        Position position = storage().position(isCommitted(config.getIsolationLevel()));
        return KafkaInternals.query(query, bound, config, this, position, context);
    }

    @Override
    public final void close() {
        Storage open = storage;
        if (open == null) {
            return;
        }
        if (publisher != null) {
            publisher.close();
            publisher = null;
        }
        if (metrics != null) {
            metrics.close();
            metrics = null;
        }
        open.close();
    }
}
