package io.github.braiddb;

/** A backup changed after it was written. */
public final class BackupDamagedException extends CorruptionException {
    private static final long serialVersionUID = 1L;

    BackupDamagedException(String message, String path, long offset) {
        super(message, path, offset);
    }
}
