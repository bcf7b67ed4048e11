package io.github.braiddb;

/** The operating system refused an operation on a file. */
public class StorageException extends BraidException {
    private static final long serialVersionUID = 1L;

    StorageException(String message) {
        super(message);
    }
}
