package io.github.braiddb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

class LeakTest {
    /** A leak of 8 bytes a get or row would grow the process by more. */
    private static final long GROWTH_MAX_KIB = 12 << 10;

    @TempDir Path folder;

    @Test
    @EnabledOnOs(OS.LINUX)
    void calls_leave_no_memory_behind() throws Exception {
        Path output = folder.resolve("output");
        Process process = new ProcessBuilder(List.of(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Xms48m", "-Xmx48m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC",
                        "-cp", System.getProperty("java.class.path"),
                        Leaks.class.getName(), String.valueOf(Bytes.volume(2_000_000))))
                .redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start();
        assertEquals(0, process.waitFor(), () -> read(output));
        String text = read(output);
        System.out.print(text);
        long grown = Long.parseLong(text.replaceAll("(?s).*grown by (-?\\d+) KiB.*", "$1"));
        assertTrue(grown < GROWTH_MAX_KIB, text);
    }

    private static String read(Path file) {
        try {
            return Files.readString(file);
        } catch (java.io.IOException e) {
            return e.toString();
        }
    }
}
