/* Calls every function at least once, and checks the result. */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "braiddb.h"

#define OK(call) expect((call), BRAID_OK, #call, __LINE__)
#define IS(code, call) expect((call), (code), #call, __LINE__)

static void expect(int32_t got, int32_t wanted, const char *call, int line) {
    if (got == wanted) return;
    fprintf(stderr, "line %d: %s: %s instead of %s: %s\n", line, call, braid_code_name(got), braid_code_name(wanted),
            braid_error_message());
    exit(1);
}

static braid_slice text(const char *text) { return (braid_slice){text, strlen(text)}; }
static const braid_slice NONE = {NULL, 0};

static void is_text(braid_slice bytes, const char *wanted) {
    if (bytes.data && bytes.len == strlen(wanted) && memcmp(bytes.data, wanted, bytes.len) == 0) return;
    fprintf(stderr, "\"%.*s\" instead of \"%s\"\n", (int)bytes.len, bytes.data ? (const char *)bytes.data : "", wanted);
    exit(1);
}

static void is_value(braid_value *value, const char *wanted) {
    is_text(braid_value_bytes(value), wanted);
    braid_value_free(value);
}

/* Keeps the longer text. */
static int32_t longer(void *context, braid_slice key, braid_slice value, braid_slice operand,
                      braid_merge_result *result) {
    ++*(int *)context;
    assert(key.len > 0);
    if (operand.len > 0 && *(const char *)operand.data == '!') return 7;
    if (value.data && value.len >= operand.len) return braid_merge_set(result, value.data, value.len);
    return braid_merge_set(result, operand.data, operand.len);
}

static int freed_contexts;
static void free_context(void *context) {
    (void)context;
    freed_contexts++;
}

static int32_t commit_codes[3];
static int commits_done;
static void committed(void *context, int32_t code, uint64_t sequence) {
    assert((code == BRAID_OK) == (sequence > 0));
    *(int32_t *)context = code;
    __atomic_add_fetch(&commits_done, 1, __ATOMIC_SEQ_CST);
}

static int32_t two_changes(void *context, const braid_changes *changes) {
    *(size_t *)context += braid_changes_count(changes);
    return *(size_t *)context >= 2 ? 5 : 0;
}

int main(int argc, char **argv) {
    assert(argc == 2);
    char path[4096], copy[4096], backups[4096];
    snprintf(path, sizeof path, "%s/db", argv[1]);
    snprintf(copy, sizeof copy, "%s/copy", argv[1]);
    snprintf(backups, sizeof backups, "%s/backups", argv[1]);
    assert(strlen(braid_version()) >= 5);
    assert(strcmp(braid_code_name(BRAID_CONFLICT), "BRAID_CONFLICT") == 0);
    assert(strcmp(braid_code_name(12345), "unknown") == 0);

    /* Options. */
    braid_options *options = braid_options_new();
    OK(braid_options_set(options, "memory", "64MiB"));
    OK(braid_options_set(options, "durability", "buffered"));
    IS(BRAID_INVALID_ARGUMENT, braid_options_set(options, "memory", "many"));
    assert(strstr(braid_error_message(), "many"));
    IS(BRAID_INVALID_ARGUMENT, braid_options_set(options, "memroy", "64MiB"));
    IS(BRAID_INVALID_ARGUMENT, braid_options_set(options, NULL, "64MiB"));
    IS(BRAID_INVALID_ARGUMENT, braid_options_set(NULL, "memory", "64MiB"));
    int merges = 0;
    OK(braid_options_add_merge(options, "longer", longer, &merges, free_context));

    /* Databases and trees. */
    braid_db *db, *second;
    IS(BRAID_INVALID_ARGUMENT, braid_open(path, options, NULL));
    OK(braid_open(path, options, &db));
    IS(BRAID_LOCKED, braid_open(path, options, &second));
    assert(!second);
    braid_tree *tree, *multi, *other;
    OK(braid_tree_open(db, "plain", NULL, &tree));
    braid_options *of_multi = braid_options_new();
    OK(braid_options_set(of_multi, "multi", "true"));
    OK(braid_tree_open(db, "pairs", of_multi, &multi));
    IS(BRAID_INVALID_ARGUMENT, braid_tree_open(db, "plain", of_multi, &other));
    IS(BRAID_INVALID_ARGUMENT, braid_open_in_memory(of_multi, &second));
    IS(BRAID_INVALID_ARGUMENT, braid_tree_open(db, "plain", options, &other));
    braid_options_free(of_multi);
    braid_options_free(options);
    braid_value *name;
    OK(braid_tree_name(tree, &name));
    is_value(name, "plain");

    /* Single keys. */
    braid_value *value;
    OK(braid_put(tree, "a", 1, "one", 3));
    OK(braid_put(tree, "b", 1, "", 0));
    OK(braid_get(tree, "a", 1, &value));
    OK(braid_put(tree, "a", 1, "another", 7));
    is_value(value, "one"); /* Pinned. */
    OK(braid_get(tree, "b", 1, &value));
    is_value(value, "");
    IS(BRAID_NOT_FOUND, braid_get(tree, "c", 1, &value));
    assert(!value && !braid_value_bytes(value).data);
    char buffer[64];
    size_t len;
    OK(braid_get_into(tree, "a", 1, buffer, sizeof buffer, &len));
    assert(len == 7 && memcmp(buffer, "another", 7) == 0);
    IS(BRAID_BUFFER_TOO_SMALL, braid_get_into(tree, "a", 1, buffer, 6, &len));
    assert(len == 7);
    IS(BRAID_BUFFER_TOO_SMALL, braid_get_into(tree, "a", 1, NULL, 0, &len));
    IS(BRAID_NOT_FOUND, braid_get_into(tree, "c", 1, buffer, sizeof buffer, &len));
    OK(braid_contains(tree, "a", 1));
    IS(BRAID_NOT_FOUND, braid_contains(tree, "c", 1));
    IS(BRAID_INVALID_ARGUMENT, braid_put(tree, NULL, 1, "x", 1));
    IS(BRAID_INVALID_ARGUMENT, braid_get(NULL, "a", 1, &value));
    uint64_t expires;
    OK(braid_put_ttl(tree, "brief", 5, "gone soon", 9, 3600 * 1000));
    OK(braid_get_expiry(tree, "brief", 5, &value, &expires));
    assert(expires > 1700000000000);
    is_value(value, "gone soon");
    OK(braid_get_expiry(tree, "a", 1, &value, &expires));
    assert(expires == 0);
    is_value(value, "another");
    OK(braid_delete(tree, "brief", 5));

    /* Many keys. */
    braid_slice keys[3] = {text("a"), text("c"), text("b")}, values[3];
    OK(braid_get_many(tree, keys, 3, buffer, sizeof buffer, values, &len));
    is_text(values[0], "another");
    assert(!values[1].data && values[2].data && values[2].len == 0 && len == 7);
    IS(BRAID_BUFFER_TOO_SMALL, braid_get_many(tree, keys, 3, buffer, 3, values, &len));
    assert(!values[0].data && values[0].len == 7 && len == 7);

    /* Conditions and versions. */
    OK(braid_compare_and_set(tree, "a", 1, text("another"), text("1")));
    IS(BRAID_NOT_FOUND, braid_compare_and_set(tree, "a", 1, text("another"), text("2")));
    OK(braid_compare_and_set(tree, "new", 3, NONE, text("n")));
    OK(braid_compare_and_set(tree, "new", 3, text("n"), NONE));
    IS(BRAID_NOT_FOUND, braid_contains(tree, "new", 3));
    braid_version_tag version, next;
    OK(braid_get_version(tree, "a", 1, &value, &version));
    is_value(value, "1");
    assert(strlen(version.text) == 35 && version.text[0] == '"');
    OK(braid_put_if_version(tree, "a", 1, text("2"), &version, &next));
    IS(BRAID_NOT_FOUND, braid_put_if_version(tree, "a", 1, text("3"), &version, NULL));
    OK(braid_put_if_version(tree, "a", 1, text("1"), &next, &next));
    IS(BRAID_NOT_FOUND, braid_put_if_version(tree, "a", 1, text("1"), NULL, NULL));
    memset(version.text, 'x', sizeof version.text);
    IS(BRAID_INVALID_ARGUMENT, braid_put_if_version(tree, "a", 1, text("3"), &version, NULL));
    IS(BRAID_INVALID_ARGUMENT, braid_put_if_version(tree, "a", 1, NONE, NULL, NULL));

    /* Merge functions. */
    OK(braid_merge(tree, "longer", "m", 1, text("long")));
    OK(braid_merge(tree, "longer", "m", 1, text("longest")));
    OK(braid_merge(tree, "longer", "m", 1, text("short")));
    OK(braid_get(tree, "m", 1, &value));
    is_value(value, "longest");
    assert(merges > 0);
    OK(braid_merge(tree, "longer", "bad", 3, text("!")));
    IS(BRAID_MERGE_FAILED, braid_get(tree, "bad", 3, &value));
    assert(strstr(braid_error_message(), "returned 7"));
    OK(braid_delete(tree, "bad", 3));
    IS(BRAID_NO_SUCH, braid_merge(tree, "shorter", "m", 1, text("x")));
    OK(braid_delete(tree, "m", 1));

    /* Batches. */
    braid_batch *batch;
    uint64_t sequence = 0;
    OK(braid_batch_new(db, &batch));
    OK(braid_batch_put(batch, tree, "k1", 2, "v1", 2));
    OK(braid_batch_put_ttl(batch, tree, "k2", 2, "v2", 2, 60000));
    OK(braid_batch_put(batch, multi, "p", 1, "2", 1));
    OK(braid_batch_put(batch, multi, "p", 1, "1", 1));
    OK(braid_batch_put(batch, multi, "q", 1, "1", 1));
    OK(braid_batch_delete_pair(batch, multi, "p", 1, "3", 1));
    OK(braid_batch_merge(batch, tree, "append", "k3", 2, text("v3")));
    assert(braid_batch_len(batch) == 7);
    OK(braid_batch_commit(batch, BRAID_SYNC, &sequence));
    assert(sequence > 0 && braid_batch_len(batch) == 0);
    braid_range range = {text("k"), NONE, BRAID_PREFIX};
    uint64_t count;
    OK(braid_count(tree, &range, &count));
    assert(count == 3);
    OK(braid_batch_delete(batch, tree, "k1", 2));
    OK(braid_batch_delete_range(batch, tree, &range));
    OK(braid_batch_clear(batch));
    OK(braid_batch_delete_range(batch, tree, &range));
    OK(braid_batch_commit_async(batch, committed, &commit_codes[0]));
    IS(BRAID_INVALID_ARGUMENT, braid_batch_commit(batch, 99, NULL));
    braid_batch_free(batch);

    /* Many values per key. */
    OK(braid_put(multi, "p", 1, "9", 1));
    IS(BRAID_INVALID_ARGUMENT, braid_get(multi, "p", 1, &value));
    IS(BRAID_INVALID_ARGUMENT, braid_contains_pair(tree, "p", 1, "9", 1));
    OK(braid_contains_pair(multi, "p", 1, "9", 1));
    OK(braid_contains(multi, "p", 1));
    OK(braid_delete_pair(multi, "p", 1, "9", 1));
    IS(BRAID_NOT_FOUND, braid_contains_pair(multi, "p", 1, "9", 1));
    OK(braid_count(multi, NULL, &count));
    assert(count == 3);
    braid_scan *scan;
    braid_slice key, found;
    OK(braid_scan_new(multi, NULL, &scan));
    OK(braid_scan_next(scan, &key, &found));
    is_text(key, "p"), is_text(found, "1");
    OK(braid_scan_next(scan, &key, &found));
    is_text(key, "p"), is_text(found, "2");
    OK(braid_scan_next(scan, &key, &found));
    is_text(key, "q");
    IS(BRAID_END, braid_scan_next(scan, &key, &found));
    IS(BRAID_END, braid_scan_next(scan, NULL, NULL));
    braid_scan_free(scan);

    /* Scans in both directions, row by row and filled. */
    char row_key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(row_key, sizeof row_key, "r%03d", i);
        OK(braid_put(tree, row_key, 4, row_key, 4));
    }
    for (int reverse = 0; reverse < 2; reverse++) {
        braid_range rows_range = {text("r010"), text("r990"), BRAID_START_EXCLUSIVE | BRAID_END_INCLUSIVE};
        if (reverse) rows_range.flags |= BRAID_REVERSE;
        OK(braid_scan_new(tree, &rows_range, &scan));
        int at = reverse ? 990 : 11;
        char rows_buffer[100];
        braid_row rows[7];
        size_t filled;
        int32_t code;
        OK(braid_scan_next(scan, &key, NULL));
        is_text(key, reverse ? "r990" : "r011");
        at += reverse ? -1 : 1;
        while ((code = braid_scan_fill(scan, rows_buffer, sizeof rows_buffer, rows, 7, &filled, &len)) == BRAID_OK) {
            for (size_t i = 0; i < filled; i++, at += reverse ? -1 : 1) {
                snprintf(row_key, sizeof row_key, "r%03d", at);
                is_text(rows[i].key, row_key), is_text(rows[i].value, row_key);
            }
            if (at == (reverse ? 10 : 991)) continue;
            IS(BRAID_BUFFER_TOO_SMALL, braid_scan_fill(scan, rows_buffer, 5, rows, 7, &filled, &len));
            assert(len == 8 && filled == 0);
        }
        IS(BRAID_END, code);
        assert(at == (reverse ? 10 : 991));
        braid_scan_free(scan);
    }
    braid_range wrong = {text("a"), text("b"), 4096};
    IS(BRAID_INVALID_ARGUMENT, braid_scan_new(tree, &wrong, &scan));
    wrong.flags = BRAID_PREFIX;
    IS(BRAID_INVALID_ARGUMENT, braid_scan_new(tree, &wrong, &scan));
    braid_range backwards = {text("z"), text("a"), 0};
    OK(braid_scan_new(tree, &backwards, &scan));
    IS(BRAID_END, braid_scan_next(scan, &key, &found));
    braid_scan_free(scan);

    /* Cursors. */
    braid_cursor *cursor;
    OK(braid_cursor_new(tree, &cursor));
    IS(BRAID_END, braid_cursor_row(cursor, &key, &found));
    OK(braid_cursor_move(cursor, BRAID_SEEK, "r5", 2));
    OK(braid_cursor_row(cursor, &key, &found));
    is_text(key, "r500"), is_text(found, "r500");
    OK(braid_cursor_move(cursor, BRAID_PREV, NULL, 0));
    OK(braid_cursor_move(cursor, BRAID_SEEK_BEFORE, "r5", 2));
    OK(braid_cursor_row(cursor, &key, NULL));
    is_text(key, "r499");
    OK(braid_cursor_move(cursor, BRAID_LAST, NULL, 0));
    IS(BRAID_END, braid_cursor_move(cursor, BRAID_NEXT, NULL, 0));
    OK(braid_cursor_move(cursor, BRAID_FIRST, NULL, 0));
    OK(braid_cursor_row(cursor, &key, NULL));
    is_text(key, "a");
    IS(BRAID_INVALID_ARGUMENT, braid_cursor_move(cursor, 42, NULL, 0));
    braid_cursor_free(cursor);

    /* Snapshots. */
    braid_snapshot *snapshot;
    braid_tree *before, *pairs_before;
    OK(braid_snapshot_new(db, &snapshot));
    assert(braid_snapshot_sequence(snapshot) > sequence);
    OK(braid_snapshot_tree(snapshot, tree, &before));
    OK(braid_snapshot_tree(snapshot, multi, &pairs_before));
    braid_snapshot_free(snapshot);
    OK(braid_delete_range(tree, NULL));
    OK(braid_delete(multi, "p", 1));
    OK(braid_count(tree, NULL, &count));
    assert(count == 0);
    OK(braid_count(before, NULL, &count));
    assert(count == 1002);
    OK(braid_count(pairs_before, NULL, &count));
    assert(count == 3);
    OK(braid_contains(pairs_before, "p", 1));
    OK(braid_contains_pair(pairs_before, "p", 1, "2", 1));
    OK(braid_get(before, "a", 1, &value));
    is_value(value, "1");
    IS(BRAID_INVALID_ARGUMENT, braid_put(before, "a", 1, "x", 1));
    IS(BRAID_INVALID_ARGUMENT, braid_pop(before, false, &value, &value));
    OK(braid_scan_new(pairs_before, NULL, &scan));
    OK(braid_scan_next(scan, &key, &found));
    is_text(found, "1");
    braid_scan_free(scan);
    OK(braid_cursor_new(before, &cursor));
    OK(braid_cursor_move(cursor, BRAID_LAST, NULL, 0));
    braid_cursor_free(cursor);

    /* Pops. */
    braid_value *popped;
    OK(braid_put(tree, "1", 1, "x", 1));
    OK(braid_put(tree, "2", 1, "y", 1));
    OK(braid_pop(tree, true, &popped, &value));
    is_value(popped, "2"), is_value(value, "y");
    OK(braid_pop(tree, false, &popped, &value));
    is_value(popped, "1"), is_value(value, "x");
    IS(BRAID_NOT_FOUND, braid_pop(tree, false, &popped, &value));
    assert(!popped && !value);
    OK(braid_put(multi, "z", 1, "1", 1));
    OK(braid_put(multi, "z", 1, "2", 1));
    OK(braid_pop(multi, true, &popped, &value));
    is_value(popped, "z"), is_value(value, "2");
    braid_range last_pairs = {text("z"), NONE, 0};
    OK(braid_delete_range(multi, &last_pairs));
    OK(braid_count(multi, &last_pairs, &count));
    assert(count == 0);

    /* Transactions. */
    braid_transaction *transaction;
    braid_tree *inside, *pairs_inside;
    uint64_t savepoint;
    IS(BRAID_INVALID_ARGUMENT, braid_begin(db, 9, &transaction));
    OK(braid_begin(db, BRAID_OPTIMISTIC, &transaction));
    OK(braid_transaction_tree(transaction, tree, &inside));
    OK(braid_transaction_tree(transaction, multi, &pairs_inside));
    IS(BRAID_NOT_FOUND, braid_get(inside, "t", 1, &value));
    for (int i = 0; i < 100; i++) {
        snprintf(row_key, sizeof row_key, "r%03d", i);
        OK(braid_put(inside, row_key, 4, row_key, 4));
        OK(braid_put(pairs_inside, "many", 4, row_key, 4));
        OK(braid_put(pairs_inside, row_key, 4, "one", 3));
    }
    OK(braid_savepoint(transaction, &savepoint));
    OK(braid_delete_range(inside, NULL));
    OK(braid_delete(pairs_inside, "many", 4));
    OK(braid_rollback_to(transaction, savepoint));
    IS(BRAID_INVALID_ARGUMENT, braid_rollback_to(transaction, savepoint + 1));
    for (int reverse = 0; reverse < 2; reverse++) {
        braid_range all = {NONE, NONE, reverse ? BRAID_REVERSE : 0};
        int rows = 0;
        OK(braid_scan_new(inside, &all, &scan));
        while (braid_scan_next(scan, &key, &found) == BRAID_OK) {
            snprintf(row_key, sizeof row_key, "r%03d", reverse ? 99 - rows : rows);
            is_text(key, row_key), is_text(found, row_key);
            rows++;
        }
        braid_scan_free(scan);
        assert(rows == 100);
        int pairs = 0;
        char last[16] = "";
        OK(braid_scan_new(pairs_inside, &all, &scan));
        while (braid_scan_next(scan, &key, &found) == BRAID_OK) {
            char pair[16];
            snprintf(pair, sizeof pair, "%.*s %.*s", (int)key.len, (const char *)key.data, (int)found.len,
                     (const char *)found.data);
            assert(pairs == 0 || (reverse ? strcmp(pair, last) < 0 : strcmp(pair, last) > 0));
            strcpy(last, pair);
            pairs++;
        }
        braid_scan_free(scan);
        assert(pairs == 201); /* With ("q", "1"). */
    }
    OK(braid_cursor_new(inside, &cursor));
    OK(braid_cursor_move(cursor, BRAID_NEXT, NULL, 0));
    IS(BRAID_END, braid_cursor_move(cursor, BRAID_PREV, NULL, 0));
    OK(braid_cursor_move(cursor, BRAID_NEXT, NULL, 0));
    OK(braid_cursor_move(cursor, BRAID_SEEK, "r0500", 5));
    OK(braid_cursor_row(cursor, &key, &found));
    is_text(key, "r051");
    OK(braid_cursor_move(cursor, BRAID_SEEK_BEFORE, "r05", 3));
    OK(braid_cursor_row(cursor, &key, &found));
    is_text(key, "r049");
    OK(braid_cursor_move(cursor, BRAID_LAST, NULL, 0));
    IS(BRAID_END, braid_cursor_move(cursor, BRAID_NEXT, NULL, 0));
    OK(braid_cursor_move(cursor, BRAID_PREV, NULL, 0));
    braid_cursor_free(cursor);
    OK(braid_cursor_new(pairs_inside, &cursor));
    OK(braid_cursor_move(cursor, BRAID_SEEK, "many", 4));
    for (int i = 0; i < 100; i++) {
        OK(braid_cursor_row(cursor, &key, &found));
        snprintf(row_key, sizeof row_key, "r%03d", i);
        is_text(key, "many"), is_text(found, row_key);
        OK(braid_cursor_move(cursor, BRAID_NEXT, NULL, 0));
    }
    OK(braid_cursor_row(cursor, &key, &found));
    is_text(key, "q"), is_text(found, "1");
    OK(braid_cursor_move(cursor, BRAID_PREV, NULL, 0));
    OK(braid_cursor_row(cursor, &key, &found));
    is_text(key, "many"), is_text(found, "r099");
    IS(BRAID_END, braid_cursor_move(cursor, BRAID_SEEK_BEFORE, "many", 4));
    OK(braid_cursor_move(cursor, BRAID_LAST, NULL, 0));
    OK(braid_cursor_row(cursor, &key, NULL));
    is_text(key, "r099");
    braid_cursor_free(cursor);
    OK(braid_get_many(inside, keys, 3, buffer, sizeof buffer, values, &len));
    OK(braid_count(inside, NULL, &count));
    assert(count == 100);
    IS(BRAID_INVALID_ARGUMENT, braid_compare_and_set(inside, "a", 1, NONE, text("x")));
    IS(BRAID_INVALID_ARGUMENT, braid_get_version(inside, "r001", 4, &value, &version));
    OK(braid_put(tree, "t", 1, "in between", 10)); /* What the transaction has read. */
    IS(BRAID_CONFLICT, braid_commit(transaction, BRAID_DEFAULT, &sequence));
    IS(BRAID_TRANSACTION_ENDED, braid_get(inside, "t", 1, &value));
    IS(BRAID_TRANSACTION_ENDED, braid_rollback(transaction));
    braid_transaction_free(transaction);
    IS(BRAID_TRANSACTION_ENDED, braid_put(inside, "t", 1, "", 0));
    braid_tree_free(inside);
    braid_tree_free(pairs_inside);
    OK(braid_begin(db, BRAID_EXCLUSIVE, &transaction));
    OK(braid_transaction_tree(transaction, tree, &inside));
    OK(braid_put(inside, "x", 1, "exclusive", 9));
    OK(braid_commit(transaction, BRAID_BUFFERED, &sequence));
    braid_tree_free(inside);
    braid_transaction_free(transaction);
    OK(braid_begin(db, BRAID_OPTIMISTIC, &transaction));
    OK(braid_transaction_tree(transaction, tree, &inside));
    OK(braid_put(inside, "y", 1, "later", 5));
    OK(braid_commit_async(transaction, committed, &commit_codes[1]));
    IS(BRAID_TRANSACTION_ENDED, braid_commit_async(transaction, committed, &commit_codes[2]));
    OK(braid_batch_new(db, &batch));
    OK(braid_batch_put(batch, tree, "kept", 4, "", 0));
    IS(BRAID_INVALID_ARGUMENT, braid_batch_commit_async(batch, NULL, NULL));
    assert(braid_batch_len(batch) == 1);
    braid_batch_free(batch);
    IS(BRAID_NOT_FOUND, braid_contains(tree, "kept", 4));
    braid_tree_free(inside);
    braid_transaction_free(transaction);
    OK(braid_begin(db, BRAID_OPTIMISTIC, &transaction));
    OK(braid_rollback(transaction));
    braid_transaction_free(transaction);

    /* Streams. */
    braid_stream_writer *writer;
    braid_stream_reader *reader;
    OK(braid_stream_writer_new(tree, "large", 5, &writer));
    for (int i = 0; i < 10000; i++) OK(braid_stream_write(writer, "0123456789", 10));
    OK(braid_stream_commit(writer, BRAID_SYNC, &sequence));
    IS(BRAID_INVALID_ARGUMENT, braid_stream_write(writer, "x", 1));
    braid_stream_writer_free(writer);
    OK(braid_stream_writer_new(tree, "dropped", 7, &writer));
    OK(braid_stream_write(writer, "0123456789", 10));
    braid_stream_writer_free(writer);
    IS(BRAID_NOT_FOUND, braid_stream_reader_new(tree, "dropped", 7, &reader));
    OK(braid_stream_reader_new(tree, "large", 5, &reader));
    assert(braid_stream_len(reader) == 100000);
    OK(braid_stream_read(reader, 99995, buffer, sizeof buffer, &len));
    assert(len == 5 && memcmp(buffer, "56789", 5) == 0);
    OK(braid_stream_read(reader, 0, buffer, sizeof buffer, &len));
    assert(len == sizeof buffer && memcmp(buffer, "01234", 5) == 0);
    IS(BRAID_END, braid_stream_read(reader, 100000, buffer, sizeof buffer, &len));
    IS(BRAID_INVALID_ARGUMENT, braid_stream_read(reader, 0, NULL, 1, &len));
    braid_stream_reader_free(reader);

    /* The change stream. */
    braid_watch *watch;
    braid_changes *changes;
    braid_change change;
    OK(braid_watch_new(db, tree, text("w"), NONE, BRAID_WATCH_UNSYNCED, &watch));
    IS(BRAID_TIMEOUT, braid_watch_next(watch, 1, &changes));
    OK(braid_put(tree, "not", 3, "seen", 4));
    OK(braid_put_ttl(tree, "w1", 2, "seen", 4, 60000));
    OK(braid_delete(tree, "w1", 2));
    OK(braid_watch_next(watch, 60000, &changes));
    assert(braid_changes_count(changes) == 1 && braid_changes_sequence(changes) > sequence);
    OK(braid_changes_get(changes, 0, &change));
    assert(change.kind == BRAID_CHANGE_PUT && change.tree_id > 0 && change.expires_ms > 0);
    is_text(change.tree_name, "plain"), is_text(change.key, "w1"), is_text(change.value, "seen");
    IS(BRAID_NOT_FOUND, braid_changes_get(changes, 1, &change));
    char token[256];
    braid_slice kept = braid_changes_token(changes);
    assert(kept.len > 0 && kept.len <= sizeof token);
    memcpy(token, kept.data, kept.len);
    kept.data = token;
    braid_changes_free(changes);
    braid_watch_free(watch);
    OK(braid_watch_new(db, tree, text("w"), kept, BRAID_WATCH_UNSYNCED, &watch));
    OK(braid_put(tree, "w2", 2, "x", 1));
    size_t seen = 0;
    IS(BRAID_ABORTED, braid_watch_run(watch, two_changes, &seen));
    assert(seen == 2);
    OK(braid_watch_stop(watch));
    IS(BRAID_END, braid_watch_next(watch, UINT64_MAX, &changes));
    IS(BRAID_END, braid_watch_next(watch, 1, &changes));
    braid_watch_free(watch);
    IS(BRAID_INVALID_ARGUMENT, braid_watch_new(db, NULL, NONE, text("no token"), 0, &watch));

    /* Administration. */
    OK(braid_sync(db));
    OK(braid_flush(db));
    OK(braid_compact(db));
    uint64_t problems = 9, id = 0;
    OK(braid_verify(db, &problems));
    assert(problems == 0);
    braid_value *statistics;
    OK(braid_stats(db, &statistics));
    assert(memmem(braid_value_bytes(statistics).data, braid_value_bytes(statistics).len, "\nflushes ", 9));
    assert(memmem(braid_value_bytes(statistics).data, braid_value_bytes(statistics).len, "\nslow_commit_us_sync ", 21));
    braid_value_free(statistics);
    OK(braid_tree_open(db, "old", NULL, &other));
    OK(braid_rename_tree(db, "old", "new"));
    OK(braid_drop_tree(db, "new"));
    IS(BRAID_NO_SUCH, braid_drop_tree(db, "new"));
    braid_tree_free(other);
    OK(braid_trees(db, &scan));
    OK(braid_scan_next(scan, &key, &found));
    is_text(key, "pairs"), is_text(found, "multi");
    OK(braid_scan_next(scan, &key, &found));
    is_text(key, "plain"), is_text(found, "");
    IS(BRAID_END, braid_scan_next(scan, &key, &found));
    braid_scan_free(scan);
    OK(braid_backup(db, backups, &id));
    assert(id > 0);
    OK(braid_backup_verify(backups, 0));
    OK(braid_restore(backups, id, copy, NULL));

    /* After the close, handles stay valid. */
    braid_transaction *open;
    OK(braid_begin(db, BRAID_OPTIMISTIC, &open));
    OK(braid_scan_new(tree, NULL, &scan));
    OK(braid_get(tree, "y", 1, &value));
    OK(braid_close(db));
    IS(BRAID_CLOSED, braid_get(tree, "y", 1, &popped));
    IS(BRAID_CLOSED, braid_put(tree, "y", 1, "", 0));
    is_value(value, "later");
    braid_scan_free(scan);
    braid_transaction_free(open);
    braid_tree_free(before);
    braid_tree_free(pairs_before);
    braid_tree_free(tree);
    braid_tree_free(multi);
    assert(__atomic_load_n(&commits_done, __ATOMIC_SEQ_CST) == 3);
    assert(commit_codes[0] == BRAID_OK && commit_codes[1] == BRAID_OK && commit_codes[2] == BRAID_TRANSACTION_ENDED);
    assert(freed_contexts == 1);

    /* The restored copy, and a database in memory. */
    OK(braid_open(copy, NULL, &db));
    OK(braid_tree_open(db, "plain", NULL, &tree));
    OK(braid_get(tree, "y", 1, &value));
    is_value(value, "later");
    braid_tree_free(tree);
    OK(braid_close(db));
    OK(braid_open_in_memory(NULL, &db));
    OK(braid_close(db));
    IS(BRAID_INVALID_ARGUMENT, braid_close(NULL));

    braid_options_free(NULL), braid_tree_free(NULL), braid_value_free(NULL), braid_scan_free(NULL);
    braid_cursor_free(NULL), braid_batch_free(NULL), braid_snapshot_free(NULL), braid_transaction_free(NULL);
    braid_stream_writer_free(NULL), braid_stream_reader_free(NULL), braid_watch_free(NULL), braid_changes_free(NULL);
    puts("every call is right");
    return 0;
}
