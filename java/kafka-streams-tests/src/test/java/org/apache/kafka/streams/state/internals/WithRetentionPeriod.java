package org.apache.kafka.streams.state.internals;

/** An interface of Kafka 4.4.0, which 4.3.1 lacks. */
public interface WithRetentionPeriod {
    /** Returns milliseconds. */
    long retentionPeriod();
}
