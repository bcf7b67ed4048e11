#!/usr/bin/env bash
# Kafka Streams 4.4.0 calls neither `commit` nor `flush` of a running store at exactly_once_v2, though
# the task commits its offsets (seen in the group's), 20,000 records come and the store manages its
# offsets (`managesOffsets()`, KIP-1035). At at_least_once it calls `commit`, and with
# `enable.transactional.statestores=true` too. The close calls it in each mode. So a foreign store that
# persists its rows and its offset in `commit` persists nothing while it runs.
#
# Needs Java 17, Maven and a network; starts one broker. Fails if the library behaves differently.
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[[ -z $broker ]] || kill -9 $broker 2>/dev/null || true; rm -rf "$work"' EXIT
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
      <artifactId>kafka_2.13</artifactId>
      <version>4.4.0</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-streams</artifactId>
      <version>4.4.0</version>
    </dependency>
  </dependencies>
</project>
XML
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=lib >/dev/null

port=$((20000 + RANDOM % 10000))
cat >broker.properties <<SETTINGS
process.roles=broker,controller
node.id=1
listeners=BROKER://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$((port + 1))
log.dirs=$work/broker
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
SETTINGS
java -cp 'lib/*' kafka.tools.StorageTool format --cluster-id finding-AAAAAAAAAAAAAA \
    --config broker.properties >format.log 2>&1
java -Xmx256m -cp 'lib/*' kafka.Kafka broker.properties >broker.log 2>&1 &
broker=$!

cat >Seen.java <<'JAVA'
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class Seen {
    static final AtomicInteger commits = new AtomicInteger();
    static final AtomicInteger puts = new AtomicInteger();

    /** Kafka's own persistent store; counts the calls of three methods. */
    @SuppressWarnings("unchecked")
    static KeyValueStore<Bytes, byte[]> counting() {
        KeyValueStore<Bytes, byte[]> store = Stores.persistentKeyValueStore("rows").get();
        return (KeyValueStore<Bytes, byte[]>) Proxy.newProxyInstance(
                Seen.class.getClassLoader(), new Class<?>[] {KeyValueStore.class}, (proxy, method, arguments) -> {
                    switch (method.getName()) {
                        case "commit", "flush" -> commits.incrementAndGet();
                        case "put" -> puts.incrementAndGet();
                        default -> {}
                    }
                    try {
                        return method.invoke(store, arguments);
                    } catch (InvocationTargetException e) {
                        throw e.getCause();
                    }
                });
    }

    static class Putting extends ContextualProcessor<String, String, Void, Void> {
        private KeyValueStore<String, String> rows;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            super.init(context);
            rows = context.getStateStore("rows");
        }

        @Override
        public void process(Record<String, String> record) {
            rows.put(record.key(), record.value());
        }
    }

    /** Returns the committed offset of the input. */
    static long offset(Admin admin, String name) throws Exception {
        var offset = admin.listConsumerGroupOffsets(name)
                .partitionsToOffsetAndMetadata()
                .get()
                .get(new TopicPartition("in", 0));
        return offset == null ? 0 : offset.offset();
    }

    static void run(Admin admin, String name, String brokers, Map<String, String> more) throws Exception {
        KeyValueBytesStoreSupplier supplier = new KeyValueBytesStoreSupplier() {
            public String name() {
                return "rows";
            }

            public KeyValueStore<Bytes, byte[]> get() {
                return counting();
            }

            public String metricsScope() {
                return "counting";
            }
        };
        Topology topology = new Topology();
        topology.addSource("source", "in")
                .addProcessor("putting", Putting::new, "source")
                .addStateStore(
                        Stores.keyValueStoreBuilder(supplier, Serdes.String(), Serdes.String()), "putting");
        Properties settings = new Properties();
        settings.put("application.id", name);
        settings.put("bootstrap.servers", brokers);
        settings.put("state.dir", "state");
        settings.put("commit.interval.ms", "200");
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.putAll(more);
        puts.set(0);
        try (KafkaStreams streams = new KafkaStreams(topology, settings)) {
            streams.start();
            long end = System.nanoTime() + 60_000_000_000L;
            while (puts.get() == 0 || offset(admin, name) == 0) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException("nothing is committed, the state is " + streams.state());
                }
                Thread.sleep(10);
            }
            // Those of the open.
            commits.set(0);
            int first = puts.get();
            long from = offset(admin, name);
            while (puts.get() - first < 20_000) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException("only " + puts + " puts, the state is " + streams.state());
                }
                Thread.sleep(10);
            }
            Thread.sleep(1000);
            int seen = commits.get();
            System.out.println(name + ": the task " + (offset(admin, name) - from >= 10_000 ? "commits" : "does not commit")
                    + ", calls of the store: " + (seen == 0 ? "none" : "some"));
            commits.set(0);
        }
        System.out.println(name + ": calls at the close: " + (commits.get() > 0 ? "some" : "none"));
    }

    public static void main(String[] arguments) throws Exception {
        String brokers = arguments[0];
        Admin admin = Admin.create(Map.of("bootstrap.servers", brokers));
        admin.createTopics(List.of(new NewTopic("in", 1, (short) 1))).all().get();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", brokers);
        Thread feed = new Thread(() -> {
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                for (int n = 0; ; n++) {
                    producer.send(new ProducerRecord<>("in", "key" + n % 100, "value" + n));
                    if (n % 50 == 0) {
                        Thread.sleep(10);
                    }
                }
            } catch (InterruptedException e) {
                // The end.
            }
        });
        feed.setDaemon(true);
        feed.start();
        run(admin, "at-least-once", brokers, Map.of());
        run(admin, "exactly-once", brokers, Map.of("processing.guarantee", "exactly_once_v2"));
        run(admin, "transactional", brokers,
                Map.of("processing.guarantee", "exactly_once_v2", "enable.transactional.statestores", "true"));
        System.exit(0);
    }
}
JAVA
javac -cp 'lib/*' Seen.java
java -Xmx256m -cp 'lib/*:.' Seen "127.0.0.1:$port" >seen 2>seen.log || {
    tail -n 20 seen.log broker.log
    exit 1
}
cat seen
diff seen - <<'EXPECTED'
at-least-once: the task commits, calls of the store: some
at-least-once: calls at the close: some
exactly-once: the task commits, calls of the store: none
exactly-once: calls at the close: some
transactional: the task commits, calls of the store: some
transactional: calls at the close: some
EXPECTED
echo "as found"
