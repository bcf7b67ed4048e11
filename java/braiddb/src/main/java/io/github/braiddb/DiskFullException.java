package io.github.braiddb;

/** The disk is full. The write was not applied; reads continue. */
public final class DiskFullException extends StorageException {
    private static final long serialVersionUID = 1L;

    DiskFullException(String message) {
        super(message);
    }
}
