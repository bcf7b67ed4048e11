package io.github.braiddb.kafka.streams;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsException;

/** A changelog of Kafka. An application needs the rights that restores need, and DescribeConfigs if it can. */
final class KafkaChangelog implements Changelog {
    private static final long ANSWER_SECONDS = 30;

    private final TopicPartition partition;
    private final BooleanSupplier isActive;
    private final Supplier<StreamsConfig> configs;

    KafkaChangelog(TopicPartition partition, BooleanSupplier isActive, Supplier<StreamsConfig> configs) {
        this.partition = partition;
        this.isActive = isActive;
        this.configs = configs;
    }

    @Override
    public TopicPartition partition() {
        return partition;
    }

    @Override
    public boolean isActive() {
        return isActive.getAsBoolean();
    }

    @Override
    public Facts facts() {
        StreamsConfig config = configs.get();
        Map<String, Object> properties = config.getAdminConfigs("braiddb-checkpoints-" + partition);
        try (Admin admin = config.getKafkaClientSupplier().getAdmin(properties)) {
            String topic = partition.topic();
            String id = answer(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).topicId().toString();
            long start = answer(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition))
                    .offset();
            long end = answer(admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition))
                    .offset();
            return new Facts(id, start, end, deleteRetention(admin, topic));
        } catch (ExecutionException e) {
            throw new StreamsException("The brokers do not describe " + partition, e.getCause());
        } catch (TimeoutException e) {
            throw new StreamsException("The brokers did not describe " + partition + " in time", e);
        }
    }

    private static long deleteRetention(Admin admin, String topic) throws TimeoutException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try {
            ConfigEntry entry = answer(admin.describeConfigs(List.of(resource)).all()).get(resource)
                    .get(TopicConfig.DELETE_RETENTION_MS_CONFIG);
            return entry == null || entry.value() == null ? -1 : Long.parseLong(entry.value());
        } catch (ExecutionException e) {
            // The application may lack the right.
            StoreCheckpoints.LOG.info("{} of {} is unknown, so only the setting limits the age of checkpoints: {}",
                    TopicConfig.DELETE_RETENTION_MS_CONFIG, topic, e.getCause().toString());
            return -1;
        }
    }

    private static <T> T answer(KafkaFuture<T> future) throws ExecutionException, TimeoutException {
        try {
            return future.get(ANSWER_SECONDS, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            throw new InterruptException(e);
        }
    }
}
