#!/usr/bin/env bash
# Six surprises of the state stores of Kafka Streams 4.4.0, with valid input.
#
# | | call | result |
# |---|---|---|
# | 1 | `fetch("ab", "b\0", from, to)` of a RocksDB window store | misses key "b"; the store in memory has it |
# | 2 | `backwardFindSessions` of a cached session store, of an earlier segment | IllegalStateException; forward works |
# | 3 | `MultiVersionedKeyQuery` of a version that ends in a segment behind the range | misses it; `get` has it |
# | 4 | `VersionedRecord.equals` of two records with equal ends above 127 | false: compares two Optional by reference |
# | 5 | versions: put 35, delete 40, put 50, delete 50, put 45 | the last put becomes the latest value, though deleted at 50 |
# | 6 | `emitStrategy(onWindowClose())` without a cache, and the stream time jumps by ten minutes | the window is never emitted |
#
# A cached window store throws the exception of 2 also for a fetch whose times are in the wrong order;
# without a cache it returns nothing.
#
# Needs Java 17, Maven and a network. Fails if the library behaves differently.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cat >pom.xml <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId>
  <artifactId>finding</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-streams-test-utils</artifactId>
      <version>4.4.0</version>
    </dependency>
  </dependencies>
</project>
XML
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib >/dev/null

cat >Seen.java <<'JAVA'
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;

public class Seen {
    static final Serde<String> TEXT = Serdes.String();
    static final Duration HOUR = Duration.ofHours(1);
    static final Duration SIZE = Duration.ofSeconds(20);

    static Properties properties(int cacheBytes) {
        Properties properties = new Properties();
        properties.put("application.id", "seen");
        properties.put("bootstrap.servers", "none:1");
        properties.put("state.dir", "state");
        properties.put("statestore.cache.max.bytes", String.valueOf(cacheBytes));
        return properties;
    }

    static TopologyTestDriver driver(StoreBuilder<?> store) {
        Topology topology = new Topology();
        topology.addSource("source", new StringDeserializer(), new StringDeserializer(), "in")
                .addProcessor("processor", () -> new ContextualProcessor<String, String, Void, Void>() {
                    @Override
                    public void process(Record<String, String> record) {}
                }, "source")
                .addStateStore(store.withLoggingDisabled(), "processor");
        return new TopologyTestDriver(topology, properties(10_000_000));
    }

    static int count(Iterator<?> rows) {
        List<Object> list = new ArrayList<>();
        rows.forEachRemaining(list::add);
        return list.size();
    }

    static int range(WindowBytesStoreSupplier supplier) {
        try (TopologyTestDriver driver = driver(Stores.windowStoreBuilder(supplier, TEXT, TEXT))) {
            WindowStore<String, String> store = driver.getWindowStore("store");
            store.put("b", "one", 3_466_833L);
            return count(store.fetch("ab", "b\0", 0L, 3_493_832L));
        }
    }

    static String backward() {
        try (TopologyTestDriver driver = driver(Stores.sessionStoreBuilder(
                Stores.persistentSessionStore("store", Duration.ofMinutes(5)), TEXT, TEXT).withCachingEnabled())) {
            SessionStore<String, String> store = driver.getSessionStore("store");
            store.put(new Windowed<>("a", new SessionWindow(0, 0)), "one");
            store.put(new Windowed<>("a", new SessionWindow(200_000, 200_000)), "two");
            check(count(store.findSessions("a", 0L, 1000L)) == 1, "2: forward");
            return String.valueOf(count(store.backwardFindSessions("a", 0L, 1000L)));
        } catch (IllegalStateException e) {
            return e.getMessage();
        }
    }

    static void check(boolean isSeen, String what) {
        if (!isSeen) {
            throw new AssertionError(what + " differs");
        }
    }

    public static void main(String[] arguments) {
        check(range(Stores.inMemoryWindowStore("store", HOUR, SIZE, false)) == 1, "1: in memory");
        check(range(Stores.persistentWindowStore("store", HOUR, SIZE, false)) == 0, "1");
        check(backward().contains("segment interval has changed"), "2");

        try (TopologyTestDriver driver = driver(Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore("store", Duration.ofMinutes(5)), TEXT, TEXT))) {
            VersionedKeyValueStore<String, String> store = driver.getVersionedKeyValueStore("store");
            store.put("k", "one", 3_440_000);
            store.put("k", "two", 3_545_000);
            check(store.get("k", 3_440_000).value().equals("one"), "3: get");
            check(count(driver.getAllStateStores().get("store").query(
                    MultiVersionedKeyQuery.<String, String>withKey("k")
                            .fromTime(Instant.ofEpochMilli(3_300_000)).toTime(Instant.ofEpochMilli(3_440_000)),
                    PositionBound.unbounded(), new QueryConfig(false)).getResult()) == 0, "3");
            check(!new VersionedRecord<>("a", 1, 2000).equals(new VersionedRecord<>("a", 1, 2000)), "4");

            store.put("x", "one", 3_535_000);
            store.put("x", null, 3_540_000);
            store.put("x", "two", 3_550_000);
            store.put("x", null, 3_550_000);
            store.put("x", "three", 3_545_000);
            check(store.get("x") != null && store.get("x").value().equals("three"), "5");
        }

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("in", Consumed.with(TEXT, TEXT)).groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, Duration.ofSeconds(15)))
                .emitStrategy(EmitStrategy.onWindowClose())
                .count().toStream((key, count) -> key.toString()).to("out", Produced.with(TEXT, Serdes.Long()));
        try (TopologyTestDriver driver =
                new TopologyTestDriver(builder.build(), properties(0), Instant.ofEpochMilli(0))) {
            var in = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            in.pipeInput("a", "one", 1000L);
            driver.advanceWallClockTime(Duration.ofSeconds(2));
            in.pipeInput("b", "two", 600_000L);
            driver.advanceWallClockTime(Duration.ofSeconds(2));
            in.pipeInput("b", "three", 601_000L);
            check(driver.createOutputTopic("out", new StringDeserializer(), new LongDeserializer()).isEmpty(), "6");
        }
        System.out.println("seen");
        System.exit(0);
    }
}
JAVA
java -cp 'lib/*' Seen.java 2>/dev/null | grep -qx seen
