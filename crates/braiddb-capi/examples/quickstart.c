/*
 * A tour of BraidDB from C: trees, ranges, a transaction, a snapshot.
 *
 *     cc quickstart.c $(pkg-config --cflags --libs braiddb) -o quickstart && ./quickstart music.db
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "braiddb.h"

static int32_t check(int32_t code, const char *what) {
    if (code < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, braid_code_name(code), braid_error_message());
        exit(1);
    }
    return code;
}

/* Moves money between two accounts. Repeats the transaction after a conflict. */
static void transfer(braid_db *db, braid_tree *accounts, const char *from, const char *to, int64_t amount) {
    int32_t code;
    do {
        braid_transaction *transaction;
        braid_tree *tree;
        check(braid_begin(db, BRAID_OPTIMISTIC, &transaction), "begin");
        check(braid_transaction_tree(transaction, accounts, &tree), "tree");
        int64_t balances[2] = {0, 0};
        const char *names[2] = {from, to};
        for (int i = 0; i < 2; i++) {
            size_t len;
            /* An absent account has nothing. */
            check(braid_get_into(tree, names[i], strlen(names[i]), &balances[i], sizeof balances[i], &len), "get");
        }
        balances[0] -= amount;
        balances[1] += amount;
        for (int i = 0; i < 2; i++)
            check(braid_put(tree, names[i], strlen(names[i]), &balances[i], sizeof balances[i]), "put");
        code = braid_commit(transaction, BRAID_DEFAULT, NULL);
        braid_tree_free(tree);
        braid_transaction_free(transaction);
    } while (code == BRAID_CONFLICT);
    check(code, "commit");
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s DATABASE\n", argv[0]);
        return 2;
    }
    braid_options *options = braid_options_new();
    check(braid_options_set(options, "memory", "64MiB"), "memory");
    check(braid_options_set(options, "compression", "lz4"), "compression");
    braid_db *db;
    check(braid_open(argv[1], options, &db), "open");
    braid_options_free(options);

    braid_tree *albums;
    check(braid_tree_open(db, "albums", NULL, &albums), "tree");
    check(braid_put(albums, "ten", 3, "Pearl Jam", 9), "put");
    check(braid_put(albums, "versus", 6, "Pearl Jam", 9), "put");
    check(braid_put(albums, "nevermind", 9, "Nirvana", 7), "put");

    braid_value *artist;
    if (check(braid_get(albums, "ten", 3, &artist), "get") == BRAID_OK) {
        braid_slice bytes = braid_value_bytes(artist);
        printf("ten: %.*s\n", (int)bytes.len, (const char *)bytes.data);
        braid_value_free(artist);
    }

    /* A snapshot, then a delete that it does not see. */
    braid_snapshot *snapshot;
    braid_tree *before;
    check(braid_snapshot_new(db, &snapshot), "snapshot");
    check(braid_snapshot_tree(snapshot, albums, &before), "snapshot");
    check(braid_delete(albums, "nevermind", 9), "delete");
    uint64_t now, then;
    check(braid_count(albums, NULL, &now), "count");
    check(braid_count(before, NULL, &then), "count");
    printf("%" PRIu64 " albums, %" PRIu64 " before\n", now, then);

    /* Rows of a range, many in one call. */
    braid_range range = {{"t", 1}, {NULL, 0}, 0};
    braid_scan *scan;
    check(braid_scan_new(before, &range, &scan), "scan");
    char buffer[4096];
    braid_row rows[64];
    size_t count;
    while (check(braid_scan_fill(scan, buffer, sizeof buffer, rows, 64, &count, NULL), "fill") == BRAID_OK)
        for (size_t i = 0; i < count; i++)
            printf("%.*s = %.*s\n", (int)rows[i].key.len, (const char *)rows[i].key.data, (int)rows[i].value.len,
                   (const char *)rows[i].value.data);
    braid_scan_free(scan);

    braid_tree *accounts;
    check(braid_tree_open(db, "accounts", NULL, &accounts), "tree");
    transfer(db, accounts, "ann", "bob", 30);
    int64_t balance;
    size_t len;
    check(braid_get_into(accounts, "bob", 3, &balance, sizeof balance, &len), "get");
    printf("bob has %" PRId64 "\n", balance);

    braid_tree_free(accounts);
    braid_tree_free(before);
    braid_snapshot_free(snapshot);
    braid_tree_free(albums);
    check(braid_close(db), "close");
    return 0;
}
