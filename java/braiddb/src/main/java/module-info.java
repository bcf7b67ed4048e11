/**
 * BraidDB: an embedded, ordered, transactional key-value store, with its native library. Run with
 * {@code --enable-native-access=io.github.braiddb} from Java 24 on.
 */
module io.github.braiddb {
    exports io.github.braiddb;
}
