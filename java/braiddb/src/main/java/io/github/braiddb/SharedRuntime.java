package io.github.braiddb;

import java.lang.ref.Reference;

/**
 * Memory and background threads that databases of a process share: see
 * {@link Database#open(java.nio.file.Path, Options, SharedRuntime)}. It ends when it and all its
 * databases are closed or unreachable. All threads may use it.
 */
public final class SharedRuntime {
    final Handle handle;

    private SharedRuntime(Handle handle) {
        this.handle = handle;
    }

    /**
     * Makes a shared runtime.
     *
     * @param memory bytes of memtables and caches of all its databases
     * @param threads background threads
     * @return the runtime
     * @throws InvalidArgumentException if a number is impossible
     */
    public static SharedRuntime of(long memory, int threads) {
        if (memory < 0 || threads < 0) {
            throw new InvalidArgumentException("memory and threads are not negative");
        }
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            scratch.check(Native.runtimeOpen(memory, threads, scratch.address, scratch.capacity()));
            return new SharedRuntime(new Handle(scratch.buffer.getLong(0), Native::runtimeFree));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Use of the memory.
     *
     * @param memoryBytes bytes in use
     * @param memtableBytes bytes of memtables
     * @param cacheBytes bytes of the cache
     * @param memory the limit
     * @param databases the open databases
     */
    public record Use(long memoryBytes, long memtableBytes, long cacheBytes, long memory, long databases) {}

    /**
     * Returns the use of the memory.
     *
     * @return the present one
     */
    public Use use() {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            Decoder use = scratch.decoder(
                    Native.runtimeStats(handle.address, scratch.address, scratch.capacity()), 0);
            return new Use(use.number(), use.number(), use.number(), use.number(), use.number());
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }
}
