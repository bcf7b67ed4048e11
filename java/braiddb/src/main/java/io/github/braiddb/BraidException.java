package io.github.braiddb;

/**
 * Base of all exceptions of BraidDB. All are unchecked: most calls can fail for a full disk or a
 * damaged file, and few callers can do anything about it.
 */
public class BraidException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BraidException(String message) {
        super(message);
    }
}
