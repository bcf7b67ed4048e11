package io.github.braiddb;

import java.util.OptionalLong;

/** A file holds bytes that BraidDB did not write, or lacks bytes that it wrote. */
public class CorruptionException extends BraidException {
    private static final long serialVersionUID = 1L;

    private final String path;
    private final long offset;

    CorruptionException(String message, String path, long offset) {
        super(message);
        this.path = path;
        this.offset = offset;
    }

    /**
     * Returns the path of the damaged file.
     *
     * @return the path, empty if unknown
     */
    public String path() {
        return path;
    }

    /**
     * Returns the position of the damage in the file.
     *
     * @return the offset in bytes, if known
     */
    public OptionalLong offset() {
        return offset < 0 ? OptionalLong.empty() : OptionalLong.of(offset);
    }
}
