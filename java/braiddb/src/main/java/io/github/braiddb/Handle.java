package io.github.braiddb;

import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/**
 * The address of an object of the native library, freed once: by {@link #free()}, whose caller
 * excludes every call, or when the handle is unreachable. So a caller passes the address and keeps
 * the handle reachable until the call returns.
 */
final class Handle {
    private static final Cleaner CLEANER = Cleaner.create();

    final long address;
    private final Cleaner.Cleanable cleanable;

    Handle(long address, LongConsumer free) {
        this.address = address;
        // The action must not refer to this handle.
        cleanable = CLEANER.register(this, () -> free.accept(address));
    }

    void free() {
        cleanable.clean();
    }
}
