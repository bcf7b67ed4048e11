/**
 * BraidDB: an embedded, ordered, transactional key-value store.
 *
 * <pre>{@code
 * try (Database database = Database.open(Path.of("music.db"))) {
 *     Tree albums = database.tree("albums");
 *     albums.put("01".getBytes(UTF_8), "Ten".getBytes(UTF_8));
 *     database.update(tx -> {
 *         tx.tree(albums).put("02".getBytes(UTF_8), "Vs.".getBytes(UTF_8));
 *         return null;
 *     });
 *     try (RowIterator rows = albums.scan(KeyRange.prefix("0".getBytes(UTF_8)).reversed())) {
 *         rows.forEachRemaining(System.out::println);
 *     }
 * }
 * }</pre>
 *
 * <p>All objects but iterators and options may be used by all threads, and closed in any order:
 * calls after a close throw {@link io.github.braiddb.ClosedException}. No misuse of this package
 * ends the virtual machine.
 */
package io.github.braiddb;
