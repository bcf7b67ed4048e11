package io.github.braiddb;

/** A merge function failed on a key. Put or delete the key to repair it. */
public final class MergeFailedException extends BraidException {
    private static final long serialVersionUID = 1L;

    MergeFailedException(String message) {
        super(message);
    }
}
