package io.github.braiddb;

/**
 * A snapshot, iterator or transaction was open for longer than
 * {@link Options#readerAgeMax(java.time.Duration)}.
 */
public final class ReaderExpiredException extends BraidException {
    private static final long serialVersionUID = 1L;

    ReaderExpiredException(String message) {
        super(message);
    }
}
