package io.github.braiddb.kafka.streams;

import io.github.braiddb.SharedRuntime;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;

/** Memory and threads that the stores of a process share. A runtime ends with its last store. */
final class Runtimes {
    private static final Map<Key, WeakReference<SharedRuntime>> RUNTIMES = new HashMap<>();

    private record Key(long memory, int threads) {}

    private Runtimes() {}

    static synchronized SharedRuntime of(long memory, int threads) {
        Key key = new Key(memory, threads);
        WeakReference<SharedRuntime> known = RUNTIMES.get(key);
        SharedRuntime runtime = known == null ? null : known.get();
        if (runtime == null) {
            runtime = SharedRuntime.of(memory, threads);
            RUNTIMES.put(key, new WeakReference<>(runtime));
        }
        return runtime;
    }
}
