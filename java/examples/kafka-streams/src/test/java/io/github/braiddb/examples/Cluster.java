package io.github.braiddb.examples;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** The brokers and instances that {@code cluster.sh} starts, as processes of this one. */
final class Cluster implements AutoCloseable {
    static final int COUNT = 3;

    private final Path script;
    private final Path files;
    private final int port;
    private final List<String> settings;
    private final Process[] brokers = new Process[COUNT + 1];
    private final Process[] instances = new Process[COUNT + 1];
    private final HttpClient http =
            HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(2)).build();
    private boolean isClosed;

    /** Makes an empty cluster; {@code settings} are of its instances. */
    Cluster(Path script, Path files, int port, List<String> settings) throws IOException, InterruptedException {
        this.script = script;
        this.files = files;
        this.port = port == 0 ? freePorts() : port;
        this.settings = settings;
        delete(files);
        Files.createDirectories(files);
        if (start("prepare", Map.of(), "prepare").waitFor() != 0) {
            throw new IOException("cluster.sh prepare failed, see " + files + "/prepare.log");
        }
    }

    /** Returns the first of nine free ports in a row: another cluster may run on this machine. */
    private static int freePorts() throws IOException {
        Random random = new Random();
        while (true) {
            int first = 20_000 + random.nextInt(10_000);
            List<ServerSocket> found = new ArrayList<>();
            try {
                for (int port = first; port < first + 3 * COUNT; port++) {
                    found.add(new ServerSocket(port, 1, InetAddress.getLoopbackAddress()));
                }
                return first;
            } catch (BindException e) {
                // Tries others.
            } finally {
                for (ServerSocket socket : found) {
                    socket.close();
                }
            }
        }
    }

    String addresses() {
        return "127.0.0.1:" + port + ",127.0.0.1:" + (port + 1) + ",127.0.0.1:" + (port + 2);
    }

    private Process start(String name, Map<String, String> environment, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(script.toString()));
        command.addAll(List.of(arguments));
        ProcessBuilder builder = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(new File(files.toFile(), name + ".log")));
        builder.environment().put("CLUSTER_DIR", files.toString());
        builder.environment().put("CLUSTER_PORT", String.valueOf(port));
        builder.environment().putAll(environment);
        return builder.start();
    }

    synchronized void startBroker(int number) throws IOException {
        checkOpen();
        brokers[number] = start("broker-" + number, Map.of(), "broker", String.valueOf(number));
    }

    void startInstance(int number) throws IOException {
        startInstance(number, Map.of(), List.of());
    }

    synchronized void startInstance(int number, Map<String, String> environment, List<String> more)
            throws IOException {
        checkOpen();
        List<String> arguments = new ArrayList<>(List.of("instance", String.valueOf(number)));
        arguments.addAll(settings);
        arguments.addAll(more);
        instances[number] = start("instance-" + number, environment, arguments.toArray(new String[0]));
    }

    private void checkOpen() {
        if (isClosed) {
            throw new IllegalStateException("the cluster is closed");
        }
    }

    Process broker(int number) {
        return brokers[number];
    }

    Process instance(int number) {
        return instances[number];
    }

    /** Ends a process with SIGKILL. */
    static void kill(Process process) throws InterruptedException {
        process.destroyForcibly();
        if (!process.waitFor(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("a killed process lives on: " + process.pid());
        }
    }

    /** Deletes the state of an instance. */
    void wipe(int number) throws IOException {
        delete(files.resolve("instance-" + number));
    }

    /** Returns how many lines with this text the instances have logged. */
    int countLogged(String text) throws IOException {
        int count = 0;
        for (int number = 1; number <= COUNT; number++) {
            try (Stream<String> lines = Files.lines(files.resolve("instance-" + number + ".log"))) {
                count += (int) lines.filter(line -> line.contains(text)).count();
            }
        }
        return count;
    }

    /** Returns the answer of an instance; null if it has none now. */
    String ask(int number, String path) throws InterruptedException {
        try {
            HttpResponse<String> response = http.send(
                    HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + (port + 5 + number) + "/" + path))
                            .timeout(Duration.ofSeconds(20))
                            .build(),
                    HttpResponse.BodyHandlers.ofString());
            return response.statusCode() == 200 ? response.body() : null;
        } catch (IOException e) {
            return null;
        }
    }

    static void delete(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return;
        }
        try (Stream<Path> found = Files.walk(folder)) {
            found.sorted(Comparator.reverseOrder()).forEach(path -> {
                try {
                    Files.delete(path);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
        }
    }

    @Override
    public synchronized void close() throws InterruptedException {
        isClosed = true;
        for (Process[] all : List.of(instances, brokers)) {
            for (Process process : all) {
                if (process != null) {
                    kill(process);
                }
            }
        }
    }
}
