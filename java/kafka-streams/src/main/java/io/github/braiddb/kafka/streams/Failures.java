package io.github.braiddb.kafka.streams;

import io.github.braiddb.BraidException;
import io.github.braiddb.ClosedException;
import io.github.braiddb.LockedException;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;

/** Turns exceptions of BraidDB into those that Kafka Streams handles. */
final class Failures {
    private Failures() {}

    static RuntimeException of(String store, BraidException cause) {
        if (cause instanceof ClosedException) {
            return closed(store, cause);
        }
        if (cause instanceof LockedException) {
            return new ProcessorStateException("Store " + store + " is open in another process, or in another"
                    + " instance of this one: each instance needs its own state.dir", cause);
        }
        return new ProcessorStateException("Store " + store + " failed: " + cause.getMessage(), cause);
    }

    static InvalidStateStoreException closed(String store, Throwable cause) {
        return new InvalidStateStoreException("Store " + store + " is currently closed", cause);
    }
}
