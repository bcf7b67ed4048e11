package io.github.braiddb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringWriter;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class GuideTest {
    private static final String HEAD = """
            import io.github.braiddb.*;
            import java.nio.charset.StandardCharsets;
            import java.nio.file.Path;
            import java.time.Duration;
            import java.util.concurrent.ConcurrentNavigableMap;

            public class Guide {
                static byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }
                static String text(byte[] bytes) { return new String(bytes, StandardCharsets.UTF_8); }
                static void check(boolean isRight) { if (!isRight) throw new AssertionError(); }
                public static void run(Path folder) throws Exception {
                    Path path = folder.resolve("db");
            """;

    @TempDir Path folder;

    /** The Java blocks of docs/guide/java.md compile, and run in order. */
    @Test
    void blocks_of_the_guide_run() throws Exception {
        Path guide = Path.of("../../docs/guide/java.md");
        List<String> blocks = blocks(Files.readString(guide));
        assertTrue(blocks.size() > 8);
        Path source = folder.resolve("Guide.java");
        Files.writeString(source, HEAD + String.join("", blocks) + "}}\n");
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        StringWriter errors = new StringWriter();
        List<String> options = List.of("-d", folder.toString(), "-cp", System.getProperty("java.class.path"));
        boolean isCompiled;
        try (var files = compiler.getStandardFileManager(null, null, null)) {
            isCompiled = compiler.getTask(errors, files, null, options, null, files.getJavaFileObjects(source)).call();
        }
        assertEquals("", errors.toString());
        assertTrue(isCompiled);
        run();
    }

    private static List<String> blocks(String page) {
        Pattern block = Pattern.compile("^```java\n(.*?)^```$", Pattern.DOTALL | Pattern.MULTILINE);
        return block.matcher(page).results().map((MatchResult found) -> found.group(1)).toList();
    }

    private void run() throws IOException, ReflectiveOperationException {
        URL[] classes = {folder.toUri().toURL()};
        try (URLClassLoader loader = new URLClassLoader(classes, getClass().getClassLoader())) {
            loader.loadClass("Guide").getMethod("run", Path.class).invoke(null, folder);
        }
    }
}
