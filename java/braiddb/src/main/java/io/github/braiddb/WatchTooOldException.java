package io.github.braiddb;

/** The log lacks commits that a watcher has not seen: start over from a snapshot. */
public final class WatchTooOldException extends BraidException {
    private static final long serialVersionUID = 1L;

    WatchTooOldException(String message) {
        super(message);
    }
}
