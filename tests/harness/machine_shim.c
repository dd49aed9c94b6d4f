/* Preloaded into a process: moves its date, delays its syncs, and records how much of its append-only file is
 * synced.
 *
 * The file KVLOCK_MACHINE_FILE holds the numbers of struct machine, each of eight bytes in the machine's
 * order. A test may change them while the process runs.
 *
 * The clock functions call the kernel directly: the server's allocator reads clocks before the dynamic linker
 * is done, so looking up the real functions would hang. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct machine {
    volatile long long date_ahead_us;
    /* Time by which each fsync is delayed. */
    volatile long long sync_delay_us;
    /* Number of synced bytes of the append-only file. Written by this library. */
    volatile long long synced;
};

/* Two threads that call this at the same time may both map the file, which does no harm. */
static struct machine *machine(void) {
    static struct machine as_it_is;
    static struct machine *volatile found;
    if (!found) {
        const char *path = getenv("KVLOCK_MACHINE_FILE");
        int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        found = map == MAP_FAILED ? &as_it_is : map;
        if (fd >= 0) close(fd);
    }
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long us = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + machine()->date_ahead_us;
        now->tv_sec = us / 1000000;
        now->tv_nsec = us % 1000000 * 1000 + now->tv_nsec % 1000;
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}

static int is_append_only_file(int fd) {
    static const char end[] = ".incr.aof";
    char link[32], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path));
    ssize_t from = length - (ssize_t)(sizeof(end) - 1);
    return from >= 0 && !memcmp(path + from, end, sizeof(end) - 1);
}

/* Syncs a file after the delay. Data that are written during the call may be synced or not, so they do not
 * count as synced. */
static int sync_slowly(int fd, long number) {
    struct stat before;
    int counts = is_append_only_file(fd) && !fstat(fd, &before);
    long long us = machine()->sync_delay_us;
    struct timespec delay = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && nanosleep(&delay, &delay) && errno == EINTR) continue;
    int failed = syscall(number, fd);
    if (!failed && counts) machine()->synced = before.st_size;
    return failed;
}

int fsync(int fd) { return sync_slowly(fd, SYS_fsync); }

int fdatasync(int fd) { return sync_slowly(fd, SYS_fdatasync); }

/* Some servers load a module with RTLD_DEEPBIND. The module would then not use the functions above. */
void *dlopen(const char *path, int mode) {
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return real(path, mode & ~RTLD_DEEPBIND);
}
