package io.github.braiddb.kafka.streams;

import org.apache.kafka.common.TopicPartition;

/** The changelog of a store, as far as checkpoints depend on it. */
interface Changelog {
    /** The name of a setting with a changelog in the place of Kafka's, for tests. */
    String CONFIG = "__braiddb.changelog__";

    /** Returns topic and partition. */
    TopicPartition partition();

    /** Returns whether the task of the store processes records now, rather than following another. */
    boolean isActive();

    /** Asks the brokers. Throws if they do not answer. */
    Facts facts();

    /**
     * What the brokers know.
     *
     * @param topicId the id of the topic; another one after it was deleted and created again
     * @param start the first offset
     * @param end the offset behind the last record
     * @param deleteRetentionMs milliseconds that a deletion stays in a compacted topic; negative if unknown
     */
    record Facts(String topicId, long start, long end, long deleteRetentionMs) {}
}
