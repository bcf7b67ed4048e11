package io.github.braiddb;

import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/**
 * The changes of a commit.
 *
 * @param sequence the number of the commit
 * @param time when it was made; null if unknown
 * @param token for {@link WatchOptions#resume}
 * @param changes the changes in order
 */
public record ChangeSet(long sequence, Instant time, byte[] token, List<Change> changes) {
    static ChangeSet decode(Decoder decoder) {
        long sequence = decoder.number();
        Instant time = decoder.time();
        byte[] token = decoder.bytes();
        int count = decoder.count();
        List<Change> changes = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            changes.add(Change.decode(decoder));
        }
        return new ChangeSet(sequence, time, token, List.copyOf(changes));
    }
}
