package io.github.braiddb.examples;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.Reader;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;

/**
 * Counts the plays of a radio station: an ordinary application of Kafka Streams. Its settings choose
 * the store, see application.properties.
 *
 * <table>
 * <caption>Topics</caption>
 * <tr><th>topic</th><th>key</th><th>value</th></tr>
 * <tr><td>{@code tracks} (in)</td><td>track</td><td>artist</td></tr>
 * <tr><td>{@code plays} (in)</td><td>track</td><td>seconds played</td></tr>
 * <tr><td>{@code likes} (in)</td><td>track</td><td>listener; has the time of the play</td></tr>
 * <tr><td>{@code fees} (in)</td><td>track</td><td>fee of a second; each instance has all rows</td></tr>
 * <tr><td>{@code plays-by-track}</td><td>track</td><td>plays until now</td></tr>
 * <tr><td>{@code plays-by-artist}</td><td>artist</td><td>plays until now</td></tr>
 * <tr><td>{@code seconds-by-minute}</td><td>track@start</td><td>seconds played in that minute until now</td></tr>
 * <tr><td>{@code liked-plays}</td><td>track</td><td>fee of a play that got a like</td></tr>
 * </table>
 */
public final class PlayCounts {
    static final Duration MINUTE = Duration.ofMinutes(1);

    /** A play or like that is later than this is dropped. */
    static final Duration GRACE = Duration.ofMinutes(10);

    private PlayCounts() {}

    static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, Long> numbers = Consumed.with(Serdes.String(), Serdes.Long());
        Consumed<String, String> names = Consumed.with(Serdes.String(), Serdes.String());
        Produced<String, Long> results = Produced.with(Serdes.String(), Serdes.Long());
        KTable<String, String> artists = builder.table("tracks", names, Materialized.as("artists"));
        GlobalKTable<String, Long> fees = builder.globalTable("fees", numbers, Materialized.as("fees"));
        KStream<String, Long> plays = builder.stream("plays", numbers);
        KStream<String, String> likes = builder.stream("likes", names);

        plays.groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .count(Materialized.as("plays-by-track"))
                .toStream()
                .to("plays-by-track", results);

        plays.join(artists, (seconds, artist) -> artist, Joined.with(Serdes.String(), Serdes.Long(), Serdes.String()))
                .groupBy((track, artist) -> artist, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as("plays-by-artist"))
                .toStream()
                .to("plays-by-artist", results);

        plays.groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, GRACE))
                .reduce(Long::sum, Materialized.as("seconds-by-minute"))
                .toStream((window, seconds) -> window.key() + "@" + window.window().start())
                .to("seconds-by-minute", results);

        plays.join(
                        likes,
                        (seconds, listener) -> seconds,
                        JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, GRACE),
                        StreamJoined.with(Serdes.String(), Serdes.Long(), Serdes.String()))
                .join(fees, (track, seconds) -> track, (seconds, fee) -> seconds * fee)
                .to("liked-plays", results);
        return builder.build();
    }

    /** Arguments: a file of settings, then settings that replace its own, as name=value. */
    public static void main(String[] arguments) throws IOException, InterruptedException {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        for (int i = 1; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.setProperty(setting[0], setting[1]);
        }
        KafkaStreams streams = new KafkaStreams(topology(), settings);
        streams.setUncaughtExceptionHandler(failure -> {
            System.err.println("A thread ended, and is replaced: " + failure);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        CountDownLatch stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(30));
            stopped.countDown();
        }));
        serve(streams, settings.getProperty(StreamsConfig.APPLICATION_SERVER_CONFIG));
        streams.start();
        stopped.await();
    }

    /** Answers GET /state, GET /standbys with the number of standby tasks, and GET /STORE with its rows here. */
    private static void serve(KafkaStreams streams, String address) throws IOException {
        String[] hostAndPort = address.split(":");
        HttpServer server =
                HttpServer.create(new InetSocketAddress(hostAndPort[0], Integer.parseInt(hostAndPort[1])), 0);
        server.createContext("/", exchange -> {
            String store = exchange.getRequestURI().getPath().substring(1);
            try {
                respond(exchange, 200, switch (store) {
                    case "state" -> streams.state() + "\n";
                    case "standbys" -> standbys(streams) + "\n";
                    default -> rows(streams, store);
                });
            } catch (InvalidStateStoreException e) {
                respond(exchange, 503, e.getMessage() + "\n");
            } catch (RuntimeException e) {
                respond(exchange, 500, e + "\n");
            }
        });
        server.start();
    }

    private static int standbys(KafkaStreams streams) {
        return streams.metadataForLocalThreads().stream().mapToInt(thread -> thread.standbyTasks().size()).sum();
    }

    private static String rows(KafkaStreams streams, String store) {
        StringBuilder text = new StringBuilder();
        if (store.equals("seconds-by-minute")) {
            ReadOnlyWindowStore<String, Long> windows = streams.store(
                    StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.windowStore()));
            try (KeyValueIterator<Windowed<String>, Long> rows = windows.all()) {
                rows.forEachRemaining(row -> add(text, row.key.key() + "@" + row.key.window().start(), row.value));
            }
        } else {
            ReadOnlyKeyValueStore<String, Object> values = streams.store(
                    StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.keyValueStore()));
            try (KeyValueIterator<String, Object> rows = values.all()) {
                rows.forEachRemaining(row -> add(text, row.key, row.value));
            }
        }
        return text.toString();
    }

    private static void add(StringBuilder text, String key, Object value) {
        text.append(key).append('\t').append(value).append('\n');
    }

    private static void respond(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes(UTF_8);
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        if (body.length > 0) {
            exchange.getResponseBody().write(body);
        }
        exchange.close();
    }
}
