/* Preloaded into a server, makes its disk slow and remembers what is safe on it.
 *
 * The file KVLOCK_DISK_FILE holds two numbers of eight bytes in the machine's
 * order: how many microseconds longer each fsync is to take, which may change
 * while the server runs; and how many bytes of its append-only file are synced,
 * which we write there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct disk {
    volatile long long delay_us;
    volatile long long synced;
};

/* Two threads that ask at once both map it, which does no harm. */
static struct disk *find_disk(void) {
    static struct disk *volatile disk;
    if (!disk) {
        const char *path = getenv("KVLOCK_DISK_FILE");
        int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (fd >= 0) {
            void *map = mmap(NULL, sizeof(*disk), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (map != MAP_FAILED) disk = map;
            close(fd);
        }
    }
    return disk;
}

static int is_append_only_file(int fd) {
    static const char end[] = ".incr.aof";
    char link[32], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path));
    ssize_t from = length - (ssize_t)(sizeof(end) - 1);
    return from >= 0 && !memcmp(path + from, end, sizeof(end) - 1);
}

/* What is written after this began may or may not be safe when it is done: it
 * does not count. */
static int sync_slowly(int fd, long number) {
    struct disk *disk = find_disk();
    struct stat before;
    int counts = disk && is_append_only_file(fd) && !fstat(fd, &before);
    if (disk && disk->delay_us > 0) {
        long long us = disk->delay_us;
        struct timespec delay = {us / 1000000, us % 1000000 * 1000};
        while (nanosleep(&delay, &delay) && errno == EINTR) continue;
    }
    int failed = syscall(number, fd);
    if (!failed && counts) disk->synced = before.st_size;
    return failed;
}

int fsync(int fd) { return sync_slowly(fd, SYS_fsync); }

int fdatasync(int fd) { return sync_slowly(fd, SYS_fdatasync); }
