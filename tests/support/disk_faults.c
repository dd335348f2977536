/* Faults of a disk, for tests: preload it, and arm one fault for the files under a folder.
 *
 * It counts the writes to these files. At the chosen one it kills the process (KILL), cuts the power (TORN: of what was not
 * flushed, some is lost and some is half written), or lets writes fail for want of space (FULL; FULL_WAL only in a WAL), or
 * delays them (SLOW). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONE, KILL, TORN, FULL, FULL_WAL, SLOW };

struct unflushed {
    char path[PATH_MAX];
    off_t offset, size; /* where it was written, and the size of the file before */
    size_t length, had; /* of what was written, and of what was there */
    char *before;
};

static char folder[PATH_MAX];
static int kind;
static long at, most, seen;
static unsigned long dice;
static struct unflushed *kept;
static size_t count, room;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);

__attribute__((constructor)) static void find(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
}

static unsigned long draw(unsigned long bound) {
    dice = dice * 6364136223846793005UL + 1442695040888963407UL;
    return (dice >> 33) % bound;
}

static int is_ours(int file, char *path) {
    char link[32];
    if (kind == NONE) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

static void remember(int file, const char *path, size_t length, off_t offset) {
    struct stat found;
    if (kind != TORN || fstat(file, &found)) return;
    if (count == room) kept = realloc(kept, (room = 2 * room + 64) * sizeof *kept);
    struct unflushed *new = &kept[count++];
    *new = (struct unflushed){.offset = offset, .size = found.st_size, .length = length, .before = malloc(length)};
    strcpy(new->path, path);
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t had = pread(reader, new->before, length, offset);
    close(reader);
    new->had = had < 0 ? 0 : had;
}

static void flushed(int file) {
    char path[PATH_MAX];
    if (!is_ours(file, path)) return;
    size_t left = 0;
    for (size_t each = 0; each < count; each++)
        if (strcmp(kept[each].path, path)) kept[left++] = kept[each];
    count = left;
}

/* Newest first, so that what is put back is what was there before. */
static void cut_power(void) {
    while (count) {
        struct unflushed *last = &kept[--count];
        unsigned long fate = draw(3);
        if (!fate) continue; /* it has reached the disk */
        size_t from = fate == 1 ? 0 : last->length / 2; /* it is lost, or its second half */
        int file = open(last->path, O_WRONLY | O_CLOEXEC);
        if (last->had > from) real_pwrite(file, last->before + from, last->had - from, last->offset + from);
        off_t end = last->offset + (off_t)from;
        if (last->size < last->offset + (off_t)last->length && ftruncate(file, end > last->size ? end : last->size)) abort();
        close(file);
    }
    raise(SIGKILL);
}

/* Whether the write fails. */
static int fails(int file, size_t length, off_t offset) {
    char path[PATH_MAX];
    if (!is_ours(file, path)) return 0;
    if (kind == FULL_WAL && !strstr(path, "-wal")) return 0;
    remember(file, path, length, offset);
    if (++seen < at || seen >= at + most) return 0;
    if (kind == KILL) raise(SIGKILL);
    if (kind == TORN) cut_power();
    if (kind == SLOW) usleep(2000);
    if (kind != FULL && kind != FULL_WAL) return 0;
    errno = ENOSPC;
    return 1;
}

ssize_t pwrite64(int file, const void *data, size_t length, off_t offset) {
    return fails(file, length, offset) ? -1 : real_pwrite(file, data, length, offset);
}

ssize_t pwrite(int file, const void *data, size_t length, off_t offset) { return pwrite64(file, data, length, offset); }

ssize_t write(int file, const void *data, size_t length) {
    return fails(file, length, lseek(file, 0, SEEK_CUR)) ? -1 : real_write(file, data, length);
}

int fsync(int file) {
    int result = real_fsync(file);
    flushed(file);
    return result;
}

int fdatasync(int file) {
    int result = real_fdatasync(file);
    flushed(file);
    return result;
}

/* From now on: one kind of fault, at write number `first` under `where` and at `times` writes in all. */
void arm(const char *where, int what, long first, long times, unsigned long seed) {
    snprintf(folder, sizeof folder, "%s", where);
    kind = what, at = first, most = times, dice = seed, seen = 0, count = 0;
}

long writes(void) { return seen; }
