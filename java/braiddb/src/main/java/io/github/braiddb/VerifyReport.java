package io.github.braiddb;

import java.util.ArrayList;
import java.util.List;

/**
 * Result of a check of all files.
 *
 * @param isSound true if there is no damage
 * @param files files that were read
 * @param bytes bytes that were read
 * @param problems the damaged places
 */
public record VerifyReport(boolean isSound, long files, long bytes, List<Problem> problems) {
    /**
     * A damaged place.
     *
     * @param path the file
     * @param kind the kind of damage
     * @param offset the position in the file
     * @param detail a text for people
     */
    public record Problem(String path, String kind, long offset, String detail) {}

    static VerifyReport decode(Decoder decoder) {
        boolean isSound = decoder.bool();
        long files = decoder.number();
        long bytes = decoder.number();
        int count = decoder.count();
        List<Problem> problems = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            problems.add(new Problem(decoder.text(), decoder.text(), decoder.number(), decoder.text()));
        }
        return new VerifyReport(isSound, files, bytes, List.copyOf(problems));
    }
}
