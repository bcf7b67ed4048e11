package io.github.braiddb.examples;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The results that {@link PlayCounts} must write: for each topic and key the values in their order.
 * Compares the records of the topics with them as they come.
 */
final class Model {
    static final List<String> TOPICS = List.of("plays-by-track", "plays-by-artist", "seconds-by-minute", "liked-plays");

    private final Map<String, Map<String, List<Long>>> expected = new HashMap<>();
    private final Map<String, Map<String, Integer>> seen = new HashMap<>();
    private long expectedCount;
    private long seenCount;

    Model() {
        for (String topic : TOPICS) {
            expected.put(topic, new TreeMap<>());
            seen.put(topic, new HashMap<>());
        }
    }

    private void add(String topic, String key, long value, boolean isSum) {
        List<Long> values = expected.get(topic).computeIfAbsent(key, none -> new ArrayList<>());
        long before = isSum && !values.isEmpty() ? values.get(values.size() - 1) : 0;
        values.add(before + value);
        expectedCount++;
    }

    void play(int track, long seconds, long timeMs, boolean isLiked) {
        add("plays-by-track", Feed.track(track), 1, true);
        add("plays-by-artist", Feed.artist(track), 1, true);
        long minute = timeMs - timeMs % PlayCounts.MINUTE.toMillis();
        add("seconds-by-minute", Feed.track(track) + "@" + minute, seconds, true);
        if (isLiked) {
            add("liked-plays", Feed.track(track), seconds * Feed.fee(track), false);
        }
    }

    /** Takes the next record of a topic. */
    void see(String topic, String key, long value) {
        List<Long> values = expected.get(topic).getOrDefault(key, List.of());
        int at = seen.get(topic).merge(key, 1, Integer::sum) - 1;
        seenCount++;
        if (at >= values.size()) {
            throw new Violation(topic + ", " + key + ": " + value + " follows the last value, number " + at);
        }
        if (values.get(at) != value) {
            int other = values.indexOf(value);
            String kind = other < 0 ? "a wrong value" : other < at ? "a duplicate" : "a gap";
            throw new Violation(kind + ": " + topic + ", " + key + ", number " + at + ": " + value + ", not "
                    + values.get(at), topic, value - values.get(at));
        }
    }

    boolean isAllSeen() {
        return seenCount == expectedCount;
    }

    long seenCount() {
        return seenCount;
    }

    String missing() {
        StringBuilder text = new StringBuilder();
        for (String topic : TOPICS) {
            expected.get(topic).forEach((key, values) -> {
                int count = seen.get(topic).getOrDefault(key, 0);
                if (count < values.size()) {
                    text.append(topic).append(", ").append(key).append(": ").append(count).append(" of ")
                            .append(values.size()).append('\n');
                }
            });
        }
        return text.toString();
    }

    /** Returns the last value of each key of a topic: the rows of the store of its name. */
    Map<String, String> rows(String topic) {
        Map<String, String> rows = new TreeMap<>();
        expected.get(topic).forEach((key, values) -> rows.put(key, String.valueOf(values.get(values.size() - 1))));
        return rows;
    }

    /** The results are not those of exactly-once processing. */
    static final class Violation extends RuntimeException {
        private static final long serialVersionUID = 1;

        private final String topic;
        private final long excess;

        Violation(String message) {
            this(message, null, 0);
        }

        private Violation(String message, String topic, long excess) {
            super(message);
            this.topic = topic;
            this.excess = excess;
        }

        /** Returns whether a value of this topic is one more than the right one. */
        boolean isOneMoreIn(String other) {
            return other.equals(topic) && excess == 1;
        }
    }
}
