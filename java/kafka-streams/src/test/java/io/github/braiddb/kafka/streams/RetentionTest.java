package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.internals.WithRetentionPeriod;
import org.junit.jupiter.api.Test;

/**
 * Kafka restores the last part of the changelog of windows and sessions. Without its length it logs a
 * warning and restores all; with one that is too short it would lose rows.
 */
class RetentionTest {
    private static final Duration RETENTION = Duration.ofHours(1);
    private static final Duration SIZE = Duration.ofMinutes(5);

    private static Duration restoredBy(StateStore store) {
        return Duration.ofMillis(WithRetentionPeriod.resolveRetentionPeriod(store));
    }

    @Test
    void retentionPeriod_ofWindows_includesTheirSize() {
        assertEquals(
                Duration.ofMinutes(65),
                restoredBy(BraidStores.windowStore("store", RETENTION, SIZE, false).get()));
        assertEquals(
                Duration.ofMinutes(65),
                restoredBy(Stores.windowStoreBuilder(
                                BraidStores.windowStore("store", RETENTION, SIZE, true), Serdes.String(), Serdes.Long())
                        .withCachingEnabled()
                        .build()));
    }

    @Test
    void retentionPeriod_ofSessions_isThatOfTheStore() {
        assertEquals(
                RETENTION, restoredBy(BraidStores.sessionStore("store", RETENTION).get()));
    }

    @Test
    void retentionPeriod_ofWindowsEmittedAtTheirClose_includesTheWait() {
        assertEquals(
                Duration.ofMinutes(60 + 5 + 60 + 10),
                restoredBy(BraidStores.windowStore("store", Layout.Format.PLAIN, RETENTION, SIZE, false, true).get()));
    }

    @Test
    void retentionPeriod_withoutEnd_hasNone() {
        Duration longest = Duration.ofMillis(Long.MAX_VALUE);
        assertEquals(longest, restoredBy(BraidStores.windowStore("store", longest, SIZE, false).get()));
    }
}
