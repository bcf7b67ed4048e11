package io.github.braiddb;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;

class NativeLibraryTest {
    @Test
    void platforms_have_one_name_each() {
        assertEquals("linux-x86_64", NativeLibrary.platform("Linux", "amd64"));
        assertEquals("linux-aarch64", NativeLibrary.platform("Linux", "aarch64"));
        assertEquals("windows-x86_64", NativeLibrary.platform("Windows Server 2022", "amd64"));
        assertEquals("macos-aarch64", NativeLibrary.platform("Mac OS X", "aarch64"));
        assertEquals("freebsd-x86_64", NativeLibrary.platform("FreeBSD", "amd64"));
        assertTrue(NativeLibrary.resource("windows-x86_64").endsWith("/windows-x86_64/braiddb_jni.dll"));
        assertTrue(NativeLibrary.resource("macos-aarch64").endsWith("/libbraiddb_jni.dylib"));
    }

    @Test
    void missing_platform_and_file_are_named() throws Exception {
        assertTrue(output("-Dos.arch=abacus").contains("the jar of BraidDB has no library for linux-abacus"));
        assertTrue(output("-D" + NativeLibrary.PROPERTY + "=/no/such/file").contains("/no/such/file"));
        assertTrue(output("-Djava.io.tmpdir=/no/such/folder").contains("cannot be copied to /no/such/folder"));
    }

    /** Opens a database in another virtual machine. */
    private static String output(String option) throws IOException, InterruptedException {
        Path java = Path.of(System.getProperty("java.home"), "bin", "java");
        Path file = Files.createTempFile("braiddb", ".txt");
        Process process = new ProcessBuilder(List.of(
                        java.toString(), option, "-cp", System.getProperty("java.class.path"), Open.class.getName()))
                .redirectErrorStream(true)
                .redirectOutput(file.toFile())
                .start();
        assertEquals(1, process.waitFor());
        String output = Files.readString(file);
        Files.delete(file);
        return output;
    }

    /** Opens a database. */
    static final class Open {
        public static void main(String[] arguments) {
            Database.openInMemory().close();
        }
    }
}
