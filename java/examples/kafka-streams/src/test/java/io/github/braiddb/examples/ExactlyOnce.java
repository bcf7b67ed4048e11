package io.github.braiddb.examples;

import io.github.braiddb.examples.Model.Violation;
import io.github.braiddb.kafka.streams.LeakyStores;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kills instances of {@link PlayCounts} and their brokers with SIGKILL, deletes the state of some,
 * starts them again, and checks that every play counts exactly once: in the committed records of all
 * result topics, and in the stores.
 *
 * <p>Arguments: the script cluster.sh, a folder for files, and settings as name=value: rounds, seed,
 * rate (plays a second), seconds (of a round), leak (plants a fault, which must be found), checkpoints
 * (publishes checkpoints, and wipes an instance in each round: stores must begin with one), standbys
 * (of each task, which must exist at each check), port (the first of nine; 0 for any free ones). The
 * others are settings of the instances.
 */
public final class ExactlyOnce {
    private static final int TRACKS = 100;

    /** Time of records between two plays. Windows pass their retention in long runs. */
    private static final long STEP_MS = 40;

    /** Logged for each store that begins with a checkpoint. */
    private static final String BEGINS = " begins with checkpoint ";

    /** Rows of the table "fees" without plays, which a round adds. The next round deletes them. */
    private static final int FEES_OF_ROUND = 20;

    /** Longest time without any progress. */
    private static final Duration PATIENCE = Duration.ofMinutes(3);

    private final Map<String, String> options;
    private final Random kills;
    private final Random input;
    private final Cluster cluster;
    private final Model model = new Model();
    private final Map<String, String> fees = new TreeMap<>();
    private final KafkaProducer<String, Long> plays;
    private final KafkaProducer<String, String> texts;
    private final KafkaConsumer<String, Long> results;
    private final long[] instanceUpAt = new long[Cluster.COUNT + 1];
    private final long[] brokerUpAt = new long[Cluster.COUNT + 1];
    private volatile Exception failure;
    private long now = System.currentTimeMillis() / 60_000 * 60_000 - Duration.ofHours(12).toMillis();
    private int playCount;
    private int instanceKills;
    private int brokerKills;
    private int wipes;
    private int ownExits;
    private long rowCount;
    private int standbysSeen;

    private ExactlyOnce(Map<String, String> options, Cluster cluster)
            throws IOException, InterruptedException, ExecutionException {
        this.options = options;
        this.cluster = cluster;
        kills = new Random(number("seed"));
        input = new Random(number("seed"));
        for (int broker = 1; broker <= Cluster.COUNT; broker++) {
            cluster.startBroker(broker);
        }
        awaitBrokers();
        Feed.makeTopics(cluster.addresses());
        plays = new KafkaProducer<>(Feed.producer(cluster.addresses()), null, new LongSerializer());
        texts = new KafkaProducer<>(Feed.producer(cluster.addresses()), null, new StringSerializer());
        for (int track = 0; track < TRACKS; track++) {
            texts.send(new ProducerRecord<>("tracks", null, now, Feed.track(track), Feed.artist(track)), sent());
            sendFee(Feed.track(track), Feed.fee(track));
        }
        texts.flush();
        plays.flush();
        Properties reads = new Properties();
        reads.setProperty("bootstrap.servers", cluster.addresses());
        reads.setProperty("isolation.level", "read_committed");
        reads.setProperty("auto.offset.reset", "earliest");
        reads.setProperty("key.deserializer", StringDeserializer.class.getName());
        reads.setProperty("value.deserializer", LongDeserializer.class.getName());
        results = new KafkaConsumer<>(reads);
        List<TopicPartition> partitions = new ArrayList<>();
        for (String topic : Model.TOPICS) {
            for (int partition = 0; partition < Feed.PARTITIONS; partition++) {
                partitions.add(new TopicPartition(topic, partition));
            }
        }
        results.assign(partitions);
        for (int instance = 1; instance <= Cluster.COUNT; instance++) {
            cluster.startInstance(instance);
        }
    }

    private long number(String option) {
        return Long.parseLong(options.get(option));
    }

    private Callback sent() {
        return (metadata, refusal) -> {
            if (refusal != null) {
                failure = refusal;
            }
        };
    }

    private void sendFee(String track, Long fee) {
        plays.send(new ProducerRecord<>("fees", null, now, track, fee), sent());
        if (fee == null) {
            fees.remove(track);
        } else {
            fees.put(track, fee.toString());
        }
    }

    /** Adds rows to the global table, and deletes those of the last round. */
    private void changeFees(int round) {
        for (int i = 0; i < FEES_OF_ROUND; i++) {
            sendFee("track-of-round-" + round + "-" + i, (long) i);
            if (round > 1) {
                sendFee("track-of-round-" + (round - 1) + "-" + i, null);
            }
        }
    }

    private void awaitBrokers() throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", cluster.addresses()))) {
            while (true) {
                try {
                    if (admin.describeCluster().nodes().get().size() == Cluster.COUNT) {
                        return;
                    }
                } catch (ExecutionException e) {
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException("the brokers do not start", e);
                    }
                }
                Thread.sleep(200);
            }
        }
    }

    /** Sends plays and likes, and reads results, for some milliseconds. */
    private void play(long ms) throws InterruptedException, IOException {
        long end = System.nanoTime() + ms * 1_000_000;
        long start = System.nanoTime();
        long due = 0;
        while (System.nanoTime() < end) {
            for (; due < (System.nanoTime() - start) * number("rate") / 1_000_000_000; due++) {
                int track = input.nextInt(TRACKS);
                long seconds = 30 + input.nextInt(300);
                boolean isLiked = input.nextInt(5) == 0;
                now += STEP_MS;
                playCount++;
                model.play(track, seconds, now, isLiked);
                plays.send(new ProducerRecord<>("plays", null, now, Feed.track(track), seconds), sent());
                if (isLiked) {
                    texts.send(new ProducerRecord<>("likes", null, now, Feed.track(track), "listener"), sent());
                }
            }
            read(Duration.ofMillis(50));
        }
    }

    private void read(Duration wait) {
        if (failure != null) {
            throw new IllegalStateException("a play could not be sent, or a process not started", failure);
        }
        for (ConsumerRecord<String, Long> record : results.poll(wait)) {
            model.see(record.topic(), record.key(), record.value());
        }
    }

    /** Starts the processes that are down, now or when their time has come. */
    private synchronized void startDueProcesses(boolean isAll) throws IOException {
        long time = System.nanoTime();
        for (int number = 1; number <= Cluster.COUNT; number++) {
            if (!cluster.broker(number).isAlive() && (isAll || time > brokerUpAt[number])) {
                if (brokerUpAt[number] == 0) {
                    System.out.println("  broker " + number + " ended by itself");
                    ownExits++;
                }
                brokerUpAt[number] = 0;
                cluster.startBroker(number);
            }
            if (!cluster.instance(number).isAlive() && (isAll || time > instanceUpAt[number])) {
                if (instanceUpAt[number] == 0) {
                    System.out.println("  instance " + number + " ended by itself");
                    ownExits++;
                }
                instanceUpAt[number] = 0;
                cluster.startInstance(number);
            }
        }
    }

    private synchronized void killInstance(int number, boolean isWiped, long downMs) throws IOException, InterruptedException {
        if (!cluster.instance(number).isAlive()) {
            return;
        }
        Cluster.kill(cluster.instance(number));
        instanceKills++;
        if (isWiped) {
            cluster.wipe(number);
            wipes++;
        }
        instanceUpAt[number] = System.nanoTime() + downMs * 1_000_000;
    }

    private synchronized void killBroker(int number, long downMs) throws InterruptedException {
        if (cluster.broker(number).isAlive()) {
            Cluster.kill(cluster.broker(number));
            brokerKills++;
            brokerUpAt[number] = System.nanoTime() + downMs * 1_000_000;
        }
    }

    private boolean hasCheckpoints() {
        return options.get("checkpoints").equals("true");
    }

    private void round() throws IOException, InterruptedException {
        long left = number("seconds") * 1000;
        if (hasCheckpoints()) {
            // All stores have checkpoints of earlier rounds or the last seconds.
            play(left / 4);
            left -= left / 4;
            killInstance(1 + kills.nextInt(Cluster.COUNT), true, kills.nextInt(1000));
        }
        int count = 3 + kills.nextInt(3);
        for (int kill = 0; kill < count; kill++) {
            long wait = kills.nextInt((int) (2 * left / (count - kill + 1)));
            play(wait);
            left -= wait;
            long down = kills.nextInt(4000);
            int victim = 1 + kills.nextInt(Cluster.COUNT);
            int broker = 1 + kills.nextInt(Cluster.COUNT);
            boolean isWiped = kills.nextInt(3) == 0;
            switch (kills.nextInt(10)) {
                case 0, 1, 2, 3, 4, 5 -> killInstance(victim, isWiped, down);
                case 6, 7 -> killBroker(broker, down);
                case 8 -> {
                    killBroker(broker, down);
                    killInstance(victim, isWiped, down);
                }
                default -> {
                    for (int number = 1; number <= Cluster.COUNT; number++) {
                        killInstance(number, isWiped && number != victim, down);
                    }
                    killBroker(broker, down);
                    killBroker(1 + kills.nextInt(Cluster.COUNT), down);
                }
            }
        }
        play(Math.max(left, 500));
    }

    /** Waits for all results of the plays until now, and compares the stores. */
    private void check() throws IOException, InterruptedException {
        startDueProcesses(true);
        awaitResults();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        for (String store : List.of("plays-by-track", "plays-by-artist", "seconds-by-minute")) {
            checkStore(store, deadline);
        }
        for (int number = 1; number <= Cluster.COUNT; number++) {
            checkGlobalTable(number, deadline);
        }
        awaitStandbys(deadline);
        // A duplicate may come late.
        read(Duration.ofMillis(500));
    }

    private void awaitResults() throws IOException, InterruptedException {
        plays.flush();
        texts.flush();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        long seen = model.seenCount();
        while (!model.isAllSeen()) {
            read(Duration.ofMillis(100));
            if (model.seenCount() > seen) {
                seen = model.seenCount();
                deadline = System.nanoTime() + PATIENCE.toNanos();
            }
            if (System.nanoTime() > deadline) {
                throw new Violation("a loss: no results for " + PATIENCE.toSeconds() + " s; missing are\n"
                        + model.missing());
            }
        }
    }

    private void checkStore(String store, long deadline) throws InterruptedException, IOException {
        Map<String, String> expected = model.rows(store);
        // Every track has its own stream time, so older windows may be there or not.
        long kept = now - PlayCounts.GRACE.toMillis();
        boolean isWindows = store.equals("seconds-by-minute");
        while (true) {
            Map<String, String> rows = new TreeMap<>();
            boolean isComplete = true;
            for (int number = 1; number <= Cluster.COUNT; number++) {
                String answer = cluster.ask(number, store);
                // An instance without a task of this store has no answer, until tasks move again.
                isComplete &= answer != null || "RUNNING\n".equals(cluster.ask(number, "state"));
                for (String line : answer == null ? new String[0] : answer.split("\n")) {
                    if (!line.isEmpty()) {
                        String[] row = line.split("\t");
                        isComplete &= rows.put(row[0], row[1]) == null;
                    }
                }
            }
            Map<String, String> wanted = new TreeMap<>(expected);
            if (isWindows) {
                wanted.keySet().removeIf(key ->
                        Long.parseLong(key.substring(key.indexOf('@') + 1)) < kept && !rows.containsKey(key));
            }
            if (isComplete && rows.equals(wanted)) {
                rowCount += rows.size();
                return;
            }
            // While tasks move, an instance does not answer or a store is at two or none.
            if (System.nanoTime() > deadline) {
                wanted.entrySet().removeAll(rows.entrySet());
                throw new Violation("store " + store + " has " + rows.size() + " rows; it lacks or differs in " + wanted
                        + (isComplete ? "" : "; an instance does not answer, or two have the same row"));
            }
            read(Duration.ofMillis(200));
        }
    }

    /** Each instance has all rows of a global table. */
    private void checkGlobalTable(int number, long deadline) throws InterruptedException {
        while (true) {
            Map<String, String> rows = new TreeMap<>();
            String answer = cluster.ask(number, "fees");
            for (String line : answer == null ? new String[0] : answer.split("\n")) {
                String[] row = line.split("\t");
                rows.put(row[0], row[row.length - 1]);
            }
            if (rows.equals(fees)) {
                rowCount += rows.size();
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new Violation("instance " + number + " has " + rows + " in its global table, not " + fees);
            }
            read(Duration.ofMillis(200));
        }
    }

    private void awaitStandbys(long deadline) throws InterruptedException {
        while (number("standbys") > 0) {
            int count = 0;
            for (int number = 1; number <= Cluster.COUNT; number++) {
                String answer = cluster.ask(number, "standbys");
                count += answer == null ? 0 : Integer.parseInt(answer.trim());
            }
            if (count > 0) {
                standbysSeen += count;
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new Violation("there is no standby task");
            }
            read(Duration.ofMillis(200));
        }
    }

    /**
     * Instance 1 leaks a row and ends. The others end too and lose their state, so instance 1 goes on
     * with the row. Returns whether the next count of its track is one more than it should be.
     */
    private boolean leak() throws IOException, InterruptedException {
        end(1, false);
        cluster.startInstance(
                1,
                Map.of("CLUSTER_CLASSES", System.getProperty("java.class.path")),
                List.of("dsl.store.suppliers.class=" + LeakyStores.class.getName()));
        Process leaking = cluster.instance(1);
        // All tasks go to instance 1.
        end(2, true);
        end(3, true);
        for (int wait = 0; leaking.isAlive() && wait < 120; wait++) {
            play(500);
        }
        if (leaking.isAlive() || leaking.exitValue() != LeakyStores.EXIT_CODE) {
            throw new IllegalStateException("no row leaked");
        }
        System.out.println("  instance 1 leaked a row and ended");
        synchronized (this) {
            instanceUpAt[1] = 0;
            cluster.startInstance(1);
        }
        try {
            play(1000);
            awaitResults();
            return false;
        } catch (Violation e) {
            // Any other violation is a fault that was not planted.
            if (!e.isOneMoreIn("plays-by-track")) {
                throw e;
            }
            System.out.println("the planted leak was found: " + e.getMessage());
            return true;
        }
    }

    /** Kills an instance, and does not start it again before the check. */
    private synchronized void end(int number, boolean isWiped) throws IOException, InterruptedException {
        instanceUpAt[number] = Long.MAX_VALUE;
        Cluster.kill(cluster.instance(number));
        if (isWiped) {
            cluster.wipe(number);
        }
    }

    private void awaitInstances() throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        for (int number = 1; number <= Cluster.COUNT; number++) {
            String state;
            while ((state = cluster.ask(number, "state")) == null || !state.equals("RUNNING\n")) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("instance " + number + " does not start");
                }
                Thread.sleep(200);
            }
        }
    }

    /** Starts processes when their time has come. A producer blocks while all brokers are down. */
    private void startProcesses() {
        Thread starter = new Thread(() -> {
            try {
                while (true) {
                    startDueProcesses(false);
                    Thread.sleep(100);
                }
            } catch (IOException | RuntimeException | InterruptedException e) {
                failure = e;
            }
        });
        starter.setDaemon(true);
        starter.start();
    }

    /** Returns whether a planted leak was found. */
    private boolean run() throws IOException, InterruptedException {
        awaitInstances();
        startProcesses();
        long rounds = number("rounds");
        for (int round = 1; round <= rounds; round++) {
            long start = System.nanoTime();
            changeFees(round);
            round();
            if (options.get("leak").equals("true") && round == rounds && leak()) {
                return true;
            }
            long wait = System.nanoTime();
            check();
            System.out.printf(
                    "round %d: %.0f s, %.0f s of them until all was right; until now %d plays, %d results, %d rows"
                            + " of stores; killed %d instances and %d brokers, wiped %d, ended by themselves %d;"
                            + " began with checkpoints %d, standbys at the checks %d%n",
                    round, (System.nanoTime() - start) / 1e9, (System.nanoTime() - wait) / 1e9, playCount,
                    model.seenCount(), rowCount, instanceKills, brokerKills, wipes, ownExits,
                    cluster.countLogged(BEGINS), standbysSeen);
        }
        if (hasCheckpoints() && cluster.countLogged(BEGINS) == 0) {
            throw new Violation("no store began with a checkpoint");
        }
        return false;
    }

    /** Runs all rounds. Ends with 1 after a violation, or if a planted leak was not found. */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>(Map.of(
                "rounds", "30", "seed", "1", "rate", "100", "seconds", "10", "leak", "false", "checkpoints", "false",
                "standbys", "0", "port", "0"));
        List<String> settings = new ArrayList<>();
        for (int i = 2; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            if (options.containsKey(setting[0])) {
                options.put(setting[0], setting[1]);
            } else {
                settings.add(arguments[i]);
            }
        }
        if (options.get("checkpoints").equals("true")) {
            settings.add("braiddb.checkpoint.url=" + Path.of(arguments[1]).toAbsolutePath().resolve("checkpoints"));
            settings.add("braiddb.checkpoint.interval.ms=1500");
        }
        settings.add("num.standby.replicas=" + options.get("standbys"));
        System.out.println("seed " + options.get("seed") + ", instances with " + settings);
        boolean isLeaky = options.get("leak").equals("true");
        int code = 1;
        try (Cluster cluster = new Cluster(
                Path.of(arguments[0]), Path.of(arguments[1]), Integer.parseInt(options.get("port")), settings)) {
            // A process that is stopped leaves none behind.
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                try {
                    cluster.close();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }));
            boolean isFound = new ExactlyOnce(options, cluster).run();
            if (isFound == isLeaky) {
                code = 0;
            }
            if (!isFound) {
                System.out.println(isLeaky ? "FAILED: the planted leak was not found" : "exactly once");
            }
        } catch (Violation e) {
            System.out.println("FAILED: " + e.getMessage());
        }
        System.exit(code);
    }
}
