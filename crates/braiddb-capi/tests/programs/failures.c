/*
 * The state after a failed call, the reads of a transaction, and calls in callbacks, as the header
 * documents them.
 *
 *     failures FOLDER
 */
#undef NDEBUG
#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "braiddb.h"

#define OK(call) expect((call), BRAID_OK, #call, __LINE__)
#define IS(code, call) expect((call), (code), #call, __LINE__)

static void expect(int32_t got, int32_t wanted, const char *call, int line) {
    if (got == wanted) return;
    fprintf(stderr, "line %d: %s: %s instead of %s: %s\n", line, call, braid_code_name(got), braid_code_name(wanted),
            braid_error_message());
    exit(1);
}

static const braid_slice NONE = {NULL, 0};
static braid_slice text(const char *text) { return (braid_slice){text, strlen(text)}; }

static void put(braid_tree *tree, const char *key, const char *value) {
    OK(braid_put(tree, key, strlen(key), value, strlen(value)));
}

/* Appends the operand, or fails at "!". */
static int32_t join(void *context, braid_slice key, braid_slice value, braid_slice operand, braid_merge_result *result) {
    char joined[100];
    (void)context, (void)key;
    if (operand.len == 1 && *(const char *)operand.data == '!') return 1;
    assert(value.len + operand.len <= sizeof joined);
    if (value.len > 0) memcpy(joined, value.data, value.len);
    memcpy(joined + value.len, operand.data, operand.len);
    return braid_merge_set(result, joined, value.len + operand.len);
}

static braid_db *in_memory(void) {
    braid_options *options = braid_options_new();
    braid_db *db;
    OK(braid_options_add_merge(options, "join", join, NULL, NULL));
    OK(braid_open_in_memory(options, &db));
    braid_options_free(options);
    return db;
}

static braid_tree *open_tree(braid_db *db, const char *name, const char *multi) {
    braid_options *options = braid_options_new();
    braid_tree *tree;
    OK(braid_options_set(options, "multi", multi));
    OK(braid_tree_open(db, name, options, &tree));
    braid_options_free(options);
    return tree;
}

static braid_transaction *begin(braid_db *db, braid_tree *tree, braid_tree **inside) {
    braid_transaction *transaction;
    OK(braid_begin(db, BRAID_OPTIMISTIC, &transaction));
    OK(braid_transaction_tree(transaction, tree, inside));
    return transaction;
}

/* Ends a transaction that has put something, with this result. */
static void end(braid_transaction *transaction, braid_tree *inside, int32_t code) {
    put(inside, "~", "");
    IS(code, braid_commit(transaction, BRAID_DEFAULT, NULL));
    braid_tree_free(inside);
    braid_transaction_free(transaction);
}

/* The rows of a scan, read one by one, or `rows_max` in one call, as "key=value "; "! " for a failed value. */
static void scan_is(braid_tree *tree, uint32_t flags, size_t rows_max, size_t capacity, const char *wanted) {
    braid_range range = {text("b"), text("y"), flags};
    braid_scan *scan;
    char got[1000] = "", buffer[100];
    OK(braid_scan_new(tree, &range, &scan));
    for (int calls = 0;; calls++) {
        braid_row rows[10];
        size_t count = 1;
        int32_t code = rows_max == 0 ? braid_scan_next(scan, &rows[0].key, &rows[0].value)
                                     : braid_scan_fill(scan, buffer, capacity, rows, rows_max, &count, NULL);
        assert(calls < 50);
        if (code == BRAID_END) break;
        if (code == BRAID_MERGE_FAILED) {
            strcat(got, "! ");
            continue;
        }
        expect(code, BRAID_OK, "a scan", __LINE__);
        for (size_t i = 0; i < count; i++)
            sprintf(got + strlen(got), "%.*s=%.*s ", (int)rows[i].key.len, (const char *)rows[i].key.data,
                    (int)rows[i].value.len, (const char *)rows[i].value.data);
    }
    braid_scan_free(scan);
    if (strcmp(got, wanted) == 0) return;
    fprintf(stderr, "flags %u, %zu rows, %zu bytes:\n\"%s\" instead of\n\"%s\"\n", flags, rows_max, capacity, got, wanted);
    exit(1);
}

static void scans_are(braid_tree *tree, const char *forward, const char *backward) {
    for (size_t rows_max = 0; rows_max <= 10; rows_max++)
        for (size_t capacity = 4; capacity <= 20; capacity += 8) {
            scan_is(tree, 0, rows_max, capacity, forward);
            scan_is(tree, BRAID_REVERSE, rows_max, capacity, backward);
        }
}

/* A scan returns each row once, also around values that cannot be read. */
static void scans_pass_failed_values(void) {
    braid_db *db = in_memory();
    braid_tree *tree = open_tree(db, "tree", "false"), *inside, *at_snapshot;
    const char *rows[] = {"a", "b", "d", "f", "h", "z"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) put(tree, rows[i], "1");
    /* The failed rows before and behind the range do not matter. */
    const char *bad[] = {"aa", "c", "g", "i", "y"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) OK(braid_merge(tree, "join", bad[i], strlen(bad[i]), text("!")));
    const char *forward = "b=1 ! d=1 f=1 ! h=1 ! ", *backward = "! h=1 ! f=1 d=1 ! b=1 ";
    braid_snapshot *snapshot;
    OK(braid_snapshot_new(db, &snapshot));
    OK(braid_snapshot_tree(snapshot, tree, &at_snapshot));
    braid_snapshot_free(snapshot);
    scans_are(tree, forward, backward);
    scans_are(at_snapshot, forward, backward);
    braid_transaction *transaction = begin(db, tree, &inside);
    scans_are(inside, forward, backward);
    put(inside, "c", "2");
    OK(braid_merge(inside, "join", "e", 1, text("!")));
    OK(braid_delete(inside, "g", 1));
    scans_are(inside, "b=1 c=2 d=1 ! f=1 h=1 ! ", "! h=1 f=1 ! d=1 c=2 b=1 ");
    end(transaction, inside, BRAID_OK);

    /* Cursors stand on failed values, and go on. */
    transaction = begin(db, tree, &inside);
    for (int at = 0; at < 2; at++) {
        braid_cursor *cursor;
        braid_slice key, value;
        OK(braid_cursor_new(at == 0 ? tree : inside, &cursor));
        OK(braid_cursor_move(cursor, BRAID_SEEK, "d", 1));
        OK(braid_cursor_move(cursor, BRAID_NEXT, NULL, 0));
        IS(BRAID_MERGE_FAILED, braid_cursor_row(cursor, &key, &value));
        OK(braid_cursor_move(cursor, BRAID_NEXT, NULL, 0));
        OK(braid_cursor_row(cursor, &key, &value));
        assert(key.len == 1 && *(const char *)key.data == 'f');
        OK(braid_cursor_move(cursor, BRAID_PREV, NULL, 0));
        IS(BRAID_MERGE_FAILED, braid_cursor_row(cursor, &key, &value));
        OK(braid_cursor_move(cursor, BRAID_PREV, NULL, 0));
        OK(braid_cursor_row(cursor, &key, &value));
        assert(key.len == 1 && *(const char *)key.data == 'd');
        braid_cursor_free(cursor);
        OK(braid_cursor_new(at == 0 ? tree : inside, &cursor));
        OK(braid_cursor_move(cursor, BRAID_PREV, NULL, 0));
        OK(braid_cursor_row(cursor, &key, &value));
        assert(key.len == 1 && *(const char *)key.data == '~');
        braid_cursor_free(cursor);
    }
    end(transaction, inside, BRAID_OK);
    braid_tree_free(at_snapshot), braid_tree_free(tree);
    OK(braid_close(db));
}

/* Only rows that calls returned, and the gaps before them, count as reads. */
static void reads_of_a_scan(uint32_t flags) {
    braid_db *db = in_memory();
    braid_tree *tree = open_tree(db, "tree", "false"), *multi = open_tree(db, "multi", "true"), *inside, *pairs;
    const char *names = flags & BRAID_REVERSE ? "srqponml" : "lmnopqrs";
    char key[2] = "?", buffer[4];
    for (size_t i = 0; i < 8; i += 2) *key = names[i], put(tree, key, "1"), put(multi, "k", key);
    /* The scan returns rows 0 and 2 of 8, of which only even ones are there. Key `written` is written meanwhile. */
    for (size_t written = 0; written < 8; written++)
        for (int how = 0; how < 4; how++) {
            braid_transaction *transaction = begin(db, tree, &inside);
            OK(braid_transaction_tree(transaction, multi, &pairs));
            braid_range range = {text("l"), text("s"), flags | BRAID_END_INCLUSIVE};
            braid_scan *scan;
            braid_row rows[10];
            size_t count;
            OK(braid_scan_new(how == 3 ? pairs : inside, how == 3 ? &(braid_range){NONE, NONE, flags} : &range, &scan));
            switch (how) {
                case 0: case 3:
                    OK(braid_scan_next(scan, &rows[0].key, NULL));
                    OK(braid_scan_next(scan, &rows[0].key, NULL));
                    break;
                case 1:
                    OK(braid_scan_fill(scan, buffer, sizeof buffer, rows, 2, &count, NULL));
                    assert(count == 2);
                    break;
                default: /* The third row does not fit. */
                    OK(braid_scan_fill(scan, buffer, sizeof buffer, rows, 10, &count, NULL));
                    assert(count == 2);
            }
            braid_scan_free(scan);
            *key = names[written];
            put(tree, key, "2");
            written % 2 ? put(multi, "k", key) : OK(braid_delete_pair(multi, "k", 1, key, 1));
            braid_tree_free(pairs);
            end(transaction, inside, written <= (how == 2 ? 4 : 2) ? BRAID_CONFLICT : BRAID_OK);
            if (written % 2) OK(braid_delete(tree, key, 1));
            written % 2 ? OK(braid_delete_pair(multi, "k", 1, key, 1)) : put(multi, "k", key);
        }
    /* After the end, the whole range was read, and nothing behind it. */
    for (int inner = 0; inner < 2; inner++) {
        braid_transaction *transaction = begin(db, tree, &inside);
        braid_range range = {text("m"), text("p"), flags};
        braid_scan *scan;
        OK(braid_scan_new(inside, &range, &scan));
        while (braid_scan_next(scan, NULL, NULL) == BRAID_OK) continue;
        braid_scan_free(scan);
        put(tree, inner ? "oo" : "pp", "2"), put(tree, inner ? "mm" : "kk", "2");
        end(transaction, inside, inner ? BRAID_CONFLICT : BRAID_OK);
    }
    braid_tree_free(tree), braid_tree_free(multi);
    OK(braid_close(db));
}

static void savepoints_are_never_reused(void) {
    braid_db *db = in_memory();
    braid_tree *tree = open_tree(db, "tree", "false"), *inside, *other_inside;
    braid_transaction *transaction = begin(db, tree, &inside), *other = begin(db, tree, &other_inside);
    uint64_t first, stale, next, of_other;
    OK(braid_savepoint(transaction, &first));
    put(inside, "a", "1");
    OK(braid_savepoint(transaction, &stale));
    put(inside, "b", "1");
    OK(braid_rollback_to(transaction, first));
    put(inside, "c", "1");
    OK(braid_savepoint(transaction, &next));
    put(inside, "d", "1");
    OK(braid_savepoint(other, &of_other));
    IS(BRAID_INVALID_ARGUMENT, braid_rollback_to(transaction, stale));
    IS(BRAID_INVALID_ARGUMENT, braid_rollback_to(transaction, of_other));
    IS(BRAID_INVALID_ARGUMENT, braid_rollback_to(other, first));
    IS(BRAID_INVALID_ARGUMENT, braid_rollback_to(transaction, 0));
    OK(braid_contains(inside, "d", 1));
    OK(braid_rollback_to(transaction, next));
    OK(braid_rollback_to(transaction, next));
    IS(BRAID_NOT_FOUND, braid_contains(inside, "d", 1));
    OK(braid_contains(inside, "c", 1));
    OK(braid_rollback_to(transaction, first));
    IS(BRAID_NOT_FOUND, braid_contains(inside, "c", 1));
    end(other, other_inside, BRAID_OK);
    end(transaction, inside, BRAID_OK);
    IS(BRAID_NOT_FOUND, braid_contains(tree, "a", 1));
    braid_tree_free(tree);
    OK(braid_close(db));
}

static void a_time_of_0_expires_at_once(void) {
    braid_db *db = in_memory();
    braid_tree *tree = open_tree(db, "tree", "false"), *multi = open_tree(db, "multi", "true"), *inside;
    braid_batch *batch;
    put(tree, "a", "1"), put(tree, "b", "1"), put(tree, "c", "1");
    OK(braid_put_ttl(tree, "a", 1, "2", 1, 0));
    OK(braid_batch_new(db, &batch));
    OK(braid_batch_put_ttl(batch, tree, "b", 1, "2", 1, 0));
    IS(BRAID_INVALID_ARGUMENT, braid_batch_put_ttl(batch, multi, "b", 1, "2", 1, 0));
    OK(braid_batch_commit(batch, BRAID_DEFAULT, NULL));
    braid_batch_free(batch);
    braid_transaction *transaction = begin(db, tree, &inside);
    OK(braid_put_ttl(inside, "c", 1, "2", 1, 0));
    IS(BRAID_NOT_FOUND, braid_contains(inside, "c", 1));
    end(transaction, inside, BRAID_OK);
    IS(BRAID_NOT_FOUND, braid_contains(tree, "a", 1));
    IS(BRAID_NOT_FOUND, braid_contains(tree, "b", 1));
    IS(BRAID_NOT_FOUND, braid_contains(tree, "c", 1));
    IS(BRAID_INVALID_ARGUMENT, braid_put_ttl(multi, "a", 1, "2", 1, 0));
    OK(braid_put_ttl(tree, "a", 1, "2", 1, UINT64_MAX));
    OK(braid_contains(tree, "a", 1));
    braid_tree_free(tree), braid_tree_free(multi);
    OK(braid_close(db));
}

/* The free of what a failed call has ended leaves the message of that call. */
static void a_free_keeps_the_message_of_a_failed_call(void) {
    braid_db *db = in_memory();
    braid_tree *tree = open_tree(db, "tree", "false"), *inside;
    braid_transaction *transaction = begin(db, tree, &inside);
    char message[1000];
    IS(BRAID_NOT_FOUND, braid_contains(inside, "a", 1));
    put(tree, "a", "1"), put(inside, "b", "1");
    IS(BRAID_CONFLICT, braid_commit(transaction, BRAID_DEFAULT, NULL));
    snprintf(message, sizeof message, "%s", braid_error_message());
    assert(message[0] != 0);
    braid_transaction_free(transaction);
    braid_tree_free(inside);
    assert(strcmp(message, braid_error_message()) == 0);
    braid_tree_free(tree);
    OK(braid_close(db));
}

/* A commit ends its transaction, batch or stream, also if it fails. */
static void a_refused_durability_ends_what_it_commits(void) {
    braid_db *db = in_memory();
    braid_tree *tree = open_tree(db, "tree", "false"), *inside;
    braid_transaction *transaction = begin(db, tree, &inside);
    put(inside, "a", "1");
    IS(BRAID_INVALID_ARGUMENT, braid_commit(transaction, 99, NULL));
    IS(BRAID_TRANSACTION_ENDED, braid_commit(transaction, BRAID_DEFAULT, NULL));
    braid_tree_free(inside), braid_transaction_free(transaction);
    braid_batch *batch;
    OK(braid_batch_new(db, &batch));
    OK(braid_batch_put(batch, tree, "a", 1, "1", 1));
    IS(BRAID_INVALID_ARGUMENT, braid_batch_commit(batch, 99, NULL));
    assert(braid_batch_len(batch) == 0);
    braid_batch_free(batch);
    braid_stream_writer *writer;
    OK(braid_stream_writer_new(tree, "a", 1, &writer));
    IS(BRAID_INVALID_ARGUMENT, braid_stream_commit(writer, 99, NULL));
    IS(BRAID_INVALID_ARGUMENT, braid_stream_write(writer, "x", 1));
    braid_stream_writer_free(writer);
    IS(BRAID_NOT_FOUND, braid_contains(tree, "a", 1));
    braid_tree_free(tree);
    OK(braid_close(db));
}

static void largest_run(const char *folder, char *path, size_t size) {
    DIR *entries = opendir(folder);
    off_t largest = 0;
    assert(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        char at[5000];
        struct stat status;
        snprintf(at, sizeof at, "%s/%s", folder, entry->d_name);
        if (!strstr(entry->d_name, ".run")) continue;
        if (stat(at, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > largest)
            largest = status.st_size, snprintf(path, size, "%s", at);
    }
    closedir(entries);
    assert(largest > 0);
}

/* Behind damage, scans and cursors fail again: they never begin again at the first row. */
static void damage_ends_a_scan(const char *folder) {
    enum { ROWS = 20000 };
    char path[4096], file[5000], key[16], buffer[4096];
    braid_db *db;
    braid_options *options = braid_options_new();
    OK(braid_options_set(options, "compression", "none"));
    OK(braid_options_set(options, "durability", "buffered"));
    snprintf(path, sizeof path, "%s/damaged", folder);
    OK(braid_open(path, options, &db));
    braid_tree *tree = open_tree(db, "tree", "false");
    for (int i = 0; i < ROWS; i++) {
        snprintf(key, sizeof key, "%08d", i);
        OK(braid_put(tree, key, 8, "a value of some bytes", 21));
    }
    OK(braid_flush(db));
    OK(braid_compact(db));
    braid_tree_free(tree);
    OK(braid_close(db));

    largest_run(path, file, sizeof file);
    FILE *bytes = fopen(file, "r+b");
    assert(bytes && fseek(bytes, 0, SEEK_END) == 0);
    assert(fseek(bytes, ftell(bytes) / 2, SEEK_SET) == 0);
    for (int i = 0; i < 5000; i++) assert(fputc(0xa5, bytes) != EOF);
    assert(fclose(bytes) == 0);

    OK(braid_open(path, options, &db));
    braid_options_free(options);
    tree = open_tree(db, "tree", "false");
    for (int how = 0; how < 6; how++) {
        braid_range range = {NONE, NONE, how % 2 ? BRAID_REVERSE : 0};
        braid_scan *scan;
        braid_cursor *cursor;
        braid_row rows[7];
        int32_t code = BRAID_OK;
        size_t seen = 0, count;
        OK(braid_scan_new(tree, &range, &scan));
        OK(braid_cursor_new(tree, &cursor));
        for (int failed = 0; failed < 10; failed += code != BRAID_OK) {
            switch (how / 2) {
                case 0: code = braid_scan_next(scan, &rows[0].key, NULL), count = 1; break;
                case 1: code = braid_scan_fill(scan, buffer, sizeof buffer, rows, 7, &count, NULL); break;
                default: code = braid_cursor_move(cursor, how % 2 ? BRAID_PREV : BRAID_NEXT, NULL, 0), count = 1;
            }
            if (code == BRAID_OK) {
                assert(failed == 0);
                seen += count;
            } else {
                expect(code, BRAID_CORRUPTION, "a scan behind damage", __LINE__);
            }
        }
        assert(seen > 100 && seen < ROWS - 100);
        IS(BRAID_END, braid_cursor_row(cursor, NULL, NULL));
        OK(braid_cursor_move(cursor, BRAID_FIRST, NULL, 0));
        OK(braid_cursor_row(cursor, &rows[0].key, NULL));
        assert(memcmp(rows[0].key.data, "00000000", 8) == 0);
        braid_scan_free(scan), braid_cursor_free(cursor);
    }
    braid_tree_free(tree);
    OK(braid_close(db));
}

struct callback {
    braid_db *db;
    braid_tree *tree;
    braid_watch *watch;
    int calls;
};

static void reads(void *context, int32_t code, uint64_t sequence) {
    struct callback *of = context;
    braid_value *value;
    assert(code == BRAID_OK && sequence > 0);
    OK(braid_get(of->tree, "a", 1, &value));
    braid_value_free(value);
    __atomic_add_fetch(&of->calls, 1, __ATOMIC_SEQ_CST);
}

static int32_t calls_everything(void *context, const braid_changes *changes) {
    struct callback *of = context;
    braid_tree *inside;
    braid_change change;
    OK(braid_changes_get(changes, 0, &change));
    braid_transaction *transaction = begin(of->db, of->tree, &inside);
    end(transaction, inside, BRAID_OK);
    OK(braid_sync(of->db));
    OK(braid_flush(of->db));
    if (++of->calls == 3) OK(braid_watch_stop(of->watch));
    return 0;
}

static void calls_in_callbacks(const char *folder) {
    char path[4096];
    struct callback of = {NULL, NULL, NULL, 0};
    snprintf(path, sizeof path, "%s/callbacks", folder);
    OK(braid_open(path, NULL, &of.db));
    of.tree = open_tree(of.db, "tree", "false");
    OK(braid_watch_new(of.db, NULL, NONE, NONE, 0, &of.watch));
    put(of.tree, "a", "1");
    IS(BRAID_END, braid_watch_run(of.watch, calls_everything, &of));
    assert(of.calls == 3);
    braid_watch_free(of.watch);
    of.calls = 0;
    braid_batch *batch;
    OK(braid_batch_new(of.db, &batch));
    for (int i = 0; i < 100; i++) {
        OK(braid_batch_put(batch, of.tree, "a", 1, "2", 1));
        OK(braid_batch_commit_async(batch, reads, &of));
    }
    while (__atomic_load_n(&of.calls, __ATOMIC_SEQ_CST) < 100)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    braid_batch_free(batch);
    braid_tree_free(of.tree);
    OK(braid_close(of.db));
}

int main(int argc, char **argv) {
    assert(argc == 2);
    scans_pass_failed_values();
    reads_of_a_scan(0);
    reads_of_a_scan(BRAID_REVERSE);
    savepoints_are_never_reused();
    a_time_of_0_expires_at_once();
    a_free_keeps_the_message_of_a_failed_call();
    a_refused_durability_ends_what_it_commits();
    damage_ends_a_scan(argv[1]);
    calls_in_callbacks(argv[1]);
    puts("failures leave the documented state");
    return 0;
}
