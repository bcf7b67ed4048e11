package io.github.braiddb.examples;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Makes the topics of {@link PlayCounts}, and fills them with random plays until it is stopped. */
public final class Feed {
    static final int PARTITIONS = 3;
    private static final int TRACKS = 100;
    private static final int ARTISTS = 10;

    private Feed() {}

    static String track(int number) {
        return "track-" + number;
    }

    static String artist(int track) {
        return "artist-" + track % ARTISTS;
    }

    /** Returns the fee of a second of a track. */
    static long fee(int track) {
        return 1 + track % 7;
    }

    static void makeTopics(String brokers) throws InterruptedException, ExecutionException {
        List<NewTopic> topics = new ArrayList<>();
        for (String topic : List.of(
                "tracks", "fees", "plays", "likes", "plays-by-track", "plays-by-artist", "seconds-by-minute", "liked-plays")) {
            NewTopic made = new NewTopic(topic, PARTITIONS, (short) 3);
            boolean isTable = topic.equals("tracks") || topic.equals("fees");
            topics.add(isTable ? made.configs(Map.of("cleanup.policy", "compact")) : made);
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            admin.createTopics(topics).all().get();
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof TopicExistsException)) {
                throw e;
            }
        }
    }

    static Properties producer(String brokers) {
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", brokers);
        settings.setProperty("key.serializer", StringSerializer.class.getName());
        settings.setProperty("linger.ms", "5");
        // A broker that comes back is worth the wait.
        settings.setProperty("delivery.timeout.ms", "300000");
        settings.setProperty("max.block.ms", "300000");
        return settings;
    }

    /** Arguments: the brokers, and how many plays a second. */
    public static void main(String[] arguments) throws InterruptedException, ExecutionException {
        makeTopics(arguments[0]);
        int perSecond = Integer.parseInt(arguments[1]);
        Random random = new Random();
        try (KafkaProducer<String, String> texts = new KafkaProducer<>(producer(arguments[0]), null, new StringSerializer());
                KafkaProducer<String, Long> plays =
                        new KafkaProducer<>(producer(arguments[0]), null, new LongSerializer())) {
            for (int track = 0; track < TRACKS; track++) {
                texts.send(new ProducerRecord<>("tracks", track(track), artist(track)));
                plays.send(new ProducerRecord<>("fees", track(track), fee(track)));
            }
            texts.flush();
            plays.flush();
            System.out.println("the topics exist");
            while (true) {
                String track = track(random.nextInt(TRACKS));
                long now = System.currentTimeMillis();
                plays.send(new ProducerRecord<>("plays", null, now, track, 30L + random.nextInt(300)));
                if (random.nextInt(10) == 0) {
                    texts.send(new ProducerRecord<>("likes", null, now, track, "listener-" + random.nextInt(1000)));
                }
                Thread.sleep(Math.max(1, 1000 / perSecond));
            }
        }
    }
}
