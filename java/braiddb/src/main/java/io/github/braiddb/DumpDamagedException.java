package io.github.braiddb;

/** A dump changed after it was written. */
public final class DumpDamagedException extends CorruptionException {
    private static final long serialVersionUID = 1L;

    DumpDamagedException(String message, String path, long offset) {
        super(message, path, offset);
    }
}
