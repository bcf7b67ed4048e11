package io.github.braiddb;

/** The log archive lacks commits. */
public final class ArchiveGapException extends BraidException {
    private static final long serialVersionUID = 1L;

    ArchiveGapException(String message) {
        super(message);
    }
}
