/* Slows or fails the disk under a process: for tests of the causes of slow commits.
 *
 *     cc -shared -fPIC -O1 -o slow_disk.so slow_disk.c -ldl
 *     SLOW_DISK=FILE LD_PRELOAD=./slow_disk.so braid serve ..
 *
 * FILE holds six 32-bit numbers, which may be changed at any time: milliseconds that a sync of the
 * log takes, that a flush's and a merge's sync of a file takes, the error number with which these
 * then fail (0: none), and how many syncs of the log and of files have begun. The engine's threads
 * are known by their names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    _Atomic int32_t log_ms, flush_ms, merge_ms, failure, log_syncs, file_syncs;
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SLOW_DISK");
    int file = path ? open(path, O_RDWR) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        fputs("slow_disk: SLOW_DISK does not name a file with the numbers\n", stderr);
        abort();
    }
    control = mapped;
    close(file);
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && !strcmp(text + length - wanted, end);
}

/* Returns an error number or 0. */
static int delay(int file) {
    char link[64], path[4096], thread[17] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    prctl(PR_GET_NAME, thread);
    int is_flush = !strncmp(thread, "braiddb-flush", 13), is_merge = !strncmp(thread, "braiddb-merge", 13);
    int ms = 0, failure = 0;
    if (ends_with(path, ".wal")) {
        control->log_syncs++;
        ms = control->log_ms;
    } else if ((is_flush || is_merge) && (ends_with(path, ".run") || ends_with(path, ".view"))) {
        control->file_syncs++;
        ms = is_flush ? control->flush_ms : control->merge_ms;
        failure = control->failure;
    }
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) continue;
    return failure;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

int fdatasync(int file) {
    if ((errno = delay(file))) return -1;
    return REAL(int, "fdatasync", int)(file);
}

int fsync(int file) {
    if ((errno = delay(file))) return -1;
    return REAL(int, "fsync", int)(file);
}

ssize_t pwritev64v2(int file, const struct iovec *pieces, int count, off64_t at, int flags) {
    if (flags && (errno = delay(file))) return -1;
    return REAL(ssize_t, "pwritev64v2", int, const struct iovec *, int, off64_t, int)(file, pieces, count, at, flags);
}

ssize_t pwritev2(int file, const struct iovec *pieces, int count, off_t at, int flags) {
    return pwritev64v2(file, pieces, count, at, flags);
}
