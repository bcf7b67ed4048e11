package io.github.braiddb;

/** The file is of a newer version, or needs a feature that this build lacks. */
public final class UnsupportedException extends BraidException {
    private static final long serialVersionUID = 1L;

    UnsupportedException(String message) {
        super(message);
    }
}
