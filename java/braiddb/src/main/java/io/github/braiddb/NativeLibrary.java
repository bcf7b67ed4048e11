package io.github.braiddb;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * Loads the native library: the file of the system property {@code braiddb.library}, or the one in
 * the jar for this platform, copied to a new folder that only this user can read.
 */
final class NativeLibrary {
    static final String PROPERTY = "braiddb.library";

    private NativeLibrary() {}

    static void load() {
        String given = System.getProperty(PROPERTY);
        if (given != null) {
            System.load(Path.of(given).toAbsolutePath().toString());
            return;
        }
        String platform = platform(System.getProperty("os.name"), System.getProperty("os.arch"));
        String resource = resource(platform);
        try (InputStream library = NativeLibrary.class.getResourceAsStream(resource)) {
            if (library == null) {
                throw new UnsatisfiedLinkError("the jar of BraidDB has no library for " + platform
                        + ": build java/native there, and run with -D" + PROPERTY + "=PATH");
            }
            loadCopy(library, resource.substring(resource.lastIndexOf('/') + 1));
        } catch (IOException e) {
            throw new UnsatisfiedLinkError("BraidDB's library cannot be copied to "
                    + System.getProperty("java.io.tmpdir") + ": " + e + "; -D" + PROPERTY
                    + "=PATH loads it from a file");
        }
    }

    /** A loaded file can be deleted at once, except under Windows. */
    private static void loadCopy(InputStream library, String name) throws IOException {
        // Only this user may enter it, where the file system has permissions.
        Path folder = Files.createTempDirectory("braiddb-");
        Path file = folder.resolve(name);
        try {
            Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
            System.load(file.toString());
        } finally {
            if (!delete(file) || !delete(folder)) {
                folder.toFile().deleteOnExit();
                file.toFile().deleteOnExit();
            }
        }
    }

    private static boolean delete(Path path) {
        try {
            return Files.deleteIfExists(path);
        } catch (IOException e) {
            return false;
        }
    }

    /** Returns a name such as "linux-x86_64". */
    static String platform(String os, String arch) {
        String system = os.toLowerCase(Locale.ROOT);
        String processor = arch.toLowerCase(Locale.ROOT);
        if (system.startsWith("windows")) {
            system = "windows";
        } else if (system.startsWith("mac")) {
            system = "macos";
        }
        if (processor.equals("amd64") || processor.equals("x86-64")) {
            processor = "x86_64";
        } else if (processor.equals("arm64")) {
            processor = "aarch64";
        }
        return system.replace(' ', '-') + "-" + processor;
    }

    /** Returns the library's path in the jar. */
    static String resource(String platform) {
        String name = "libbraiddb_jni.so";
        if (platform.startsWith("windows-")) {
            name = "braiddb_jni.dll";
        } else if (platform.startsWith("macos-")) {
            name = "libbraiddb_jni.dylib";
        }
        return "/io/github/braiddb/native/" + platform + "/" + name;
    }
}
