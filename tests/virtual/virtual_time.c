/* SPDX-License-Identifier: Apache-2.0 */
/* This file is compiled without sanitizers, and threads switch by raw futexes.
 * ThreadSanitizer thus observes the program's own locks only, and finds races
 * in the single execution order that it sees. */
#define _GNU_SOURCE
#include "virtual_time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int __real_pthread_create(pthread_t *, const pthread_attr_t *,
                          void *(*)(void *), void *);
int __real_pthread_join(pthread_t, void **);
int __real_pthread_mutex_lock(pthread_mutex_t *);
int __real_pthread_mutex_unlock(pthread_mutex_t *);
int __real_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __real_pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *,
                                  const struct timespec *);
int __real_pthread_cond_signal(pthread_cond_t *);
int __real_pthread_cond_broadcast(pthread_cond_t *);
int __real_clock_gettime(clockid_t, struct timespec *);
int __real_clock_nanosleep(clockid_t, int, const struct timespec *,
                           struct timespec *);
int __real_nanosleep(const struct timespec *, struct timespec *);
int __real_usleep(useconds_t);
int __real_sched_yield(void);
int __real_poll(struct pollfd *, nfds_t, int);
int __real_ppoll(struct pollfd *, nfds_t, const struct timespec *,
                 const sigset_t *);
int __real_epoll_wait(int, struct epoll_event *, int, int);
ssize_t __real_recv(int, void *, size_t, int);
ssize_t __real_read(int, void *, size_t);
pid_t __real_fork(void);
long __real_syscall(long, ...);

int __wrap_pthread_create(pthread_t *, const pthread_attr_t *,
                          void *(*)(void *), void *);
int __wrap_pthread_join(pthread_t, void **);
int __wrap_pthread_mutex_lock(pthread_mutex_t *);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *);
int __wrap_pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
int __wrap_pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *,
                                  const struct timespec *);
int __wrap_pthread_cond_signal(pthread_cond_t *);
int __wrap_pthread_cond_broadcast(pthread_cond_t *);
int __wrap_clock_gettime(clockid_t, struct timespec *);
int __wrap_clock_nanosleep(clockid_t, int, const struct timespec *,
                           struct timespec *);
int __wrap_nanosleep(const struct timespec *, struct timespec *);
int __wrap_usleep(useconds_t);
int __wrap_sched_yield(void);
int __wrap_poll(struct pollfd *, nfds_t, int);
int __wrap_ppoll(struct pollfd *, nfds_t, const struct timespec *,
                 const sigset_t *);
int __wrap_epoll_wait(int, struct epoll_event *, int, int);
ssize_t __wrap_recv(int, void *, size_t, int);
ssize_t __wrap_read(int, void *, size_t);
pid_t __wrap_fork(void);
long __wrap_syscall(long, ...);

static const int64_t never_ns = INT64_MAX;
/* Each clock reading advances the virtual clock by this much, so polling loops
 * with a time limit terminate. */
static const int64_t reading_ns = 100;
/* CLOCK_REALTIME minus CLOCK_MONOTONIC. A deadline above half this value is
 * interpreted as CLOCK_REALTIME. */
static const int64_t epoch_ns = INT64_C(1700000000) * 1000000000;

/* The state of a thread, or the object that blocks it. */
typedef enum wait_kind {
    RUNS, /* running or runnable */
    WAITS_MUTEX,
    WAITS_CONDITION,
    WAITS_FUTEX,
    WAITS_THREAD,
    WAITS_TIME,
    WAITS_FILES,
    ENDED
} wait_kind;

/* A thread under the scheduler's control. */
typedef struct thread {
    struct thread *next; /* in creation order */
    uint32_t number, go; /* go: futex word; 1: the thread may run */
    pthread_t handle;
    void *(*start)(void *);
    void *argument;
    wait_kind waits;
    const void *object; /* mutex, condition, futex or thread waited for */
    int64_t until_ns;   /* never_ns: no limit */
    bool timed_out;
    struct pollfd *files;
    nfds_t n_files;
} thread;

static struct {
    bool on;
    int64_t now_ns;
    uint64_t random;
    uint32_t n_threads;
    thread *first;
} scheduler;
static __thread thread *self;

/* ---- switching threads ---- */

static uint64_t random_below(uint64_t n)
{
    /* xorshift64*: Vigna, ACM TOMS 42 (2016). */
    uint64_t x = scheduler.random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    scheduler.random = x;
    return (x * UINT64_C(2685821657736338717) >> 33) % n;
}

static void resume(thread *t)
{
    __atomic_store_n(&t->go, 1, __ATOMIC_RELEASE);
    __real_syscall(SYS_futex, &t->go, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL,
                   NULL, 0);
}

static void await_turn(thread *t)
{
    while (!__atomic_load_n(&t->go, __ATOMIC_ACQUIRE))
        __real_syscall(SYS_futex, &t->go, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0,
                       NULL, NULL, 0);
    t->go = 0;
}

static void wake(thread *t, bool timed_out)
{
    t->waits = RUNS;
    t->object = NULL;
    t->timed_out = timed_out;
    t->until_ns = never_ns;
}

static void report_deadlock(void)
{
    static const char *const names[] = {"runs",    "a mutex",  "a condition",
                                        "a futex", "a thread", "a time",
                                        "files",   "ended"};
    fprintf(stderr, "virtual time: no thread can run, at %" PRId64 " ns\n",
            scheduler.now_ns);
    for (const thread *t = scheduler.first; t; t = t->next)
        fprintf(stderr, "  thread %u waits for %s %p\n", t->number,
                names[t->waits], t->object);
    abort();
}

/* Checks whether a socket uses the loopback interface, where the kernel may
 * deliver slightly after the send. Local socket pairs deliver immediately. */
static bool is_network(int fd)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
           domain == AF_INET || domain == AF_INET6;
}

/* Wakes the threads whose files are ready. Waits up to `wait_us` in real time
 * for the first. Returns whether a thread was woken. */
static bool wake_ready_files(int wait_us)
{
    struct pollfd all[1024];
    nfds_t n = 0;
    bool woke = false, network = false;
    for (thread *t = scheduler.first; t; t = t->next)
        for (nfds_t i = 0; t->waits == WAITS_FILES && i < t->n_files; i++) {
            if (n == sizeof all / sizeof *all)
                abort();
            all[n] = t->files[i];
            all[n++].revents = 0;
            network = network || is_network(t->files[i].fd);
        }
    if (!n)
        return false;
    struct timespec limit = {0, wait_us * 1000L};
    if (wait_us >= 1000000)
        limit = (struct timespec){wait_us / 1000000, 0};
    else if (!network)
        limit.tv_nsec = 0;
    if (__real_ppoll(all, n, &limit, NULL) <= 0)
        return false;
    n = 0;
    for (thread *t = scheduler.first; t; t = t->next) {
        bool ready = false;
        if (t->waits != WAITS_FILES)
            continue;
        for (nfds_t i = 0; i < t->n_files; i++)
            ready = ready || all[n + i].revents != 0;
        n += t->n_files;
        if (ready)
            wake(t, false);
        woke = woke || ready;
    }
    return woke;
}

/* Advances the clock to the earliest deadline and wakes the threads that have
 * reached theirs. Returns false if no thread has a deadline. */
static bool advance(void)
{
    int64_t next_ns = never_ns;
    for (thread *t = scheduler.first; t; t = t->next)
        if (t->waits != RUNS && t->waits != ENDED && t->until_ns < next_ns)
            next_ns = t->until_ns;
    if (next_ns == never_ns)
        return false;
    if (next_ns > scheduler.now_ns)
        scheduler.now_ns = next_ns;
    for (thread *t = scheduler.first; t; t = t->next)
        if (t->waits != RUNS && t->waits != ENDED &&
            t->until_ns <= scheduler.now_ns)
            wake(t, true);
    return true;
}

static thread *choose(void)
{
    enum { GRACE_US = 50, LAST_US = 20000000 };
    for (;;) {
        uint32_t n = 0;
        for (thread *t = scheduler.first; t; t = t->next)
            n += t->waits == RUNS;
        if (n) {
            uint64_t k = random_below(n);
            for (thread *t = scheduler.first;; t = t->next)
                if (t->waits == RUNS && k-- == 0)
                    return t;
        }
        if (wake_ready_files(0) || wake_ready_files(GRACE_US) || advance())
            continue;
        if (!wake_ready_files(LAST_US))
            report_deadlock();
    }
}

/* Switches to another thread and returns when the scheduler selects this one
 * again. */
static void hand_over(void)
{
    thread *t = choose();
    if (t == self)
        return;
    resume(t);
    await_turn(self);
}

/* Blocks the calling thread. Returns true if `until_ns` has passed. */
static bool block(wait_kind kind, const void *object, int64_t until_ns)
{
    self->waits = kind;
    self->object = object;
    self->until_ns = until_ns;
    hand_over();
    return self->timed_out;
}

/* Preemption point: switches to another thread with probability 1/4. */
static void may_switch(void)
{
    if (random_below(4) == 0)
        hand_over();
}

static void wake_waiters(wait_kind kind, const void *object, uint32_t most)
{
    for (thread *t = scheduler.first; t && most; t = t->next)
        if (t->waits == kind && t->object == object) {
            wake(t, false);
            most--;
        }
}

/* ---- start and end ---- */

static int64_t of_timespec(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

void virtual_time_suspend(int64_t ns)
{
    scheduler.now_ns += ns;
}

bool virtual_time_is_on(void)
{
    return scheduler.on && self;
}

static thread *add_thread(void)
{
    thread *t = calloc(1, sizeof *t), **at = &scheduler.first;
    if (!t)
        abort();
    while (*at)
        at = &(*at)->next;
    *at = t;
    t->number = scheduler.n_threads++;
    t->until_ns = never_ns;
    return t;
}

static void remove_thread(thread *t)
{
    thread **at = &scheduler.first;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
}

void virtual_time_begin(uint64_t seed)
{
    if (scheduler.on)
        abort();
    struct timespec now;
    __real_clock_gettime(CLOCK_MONOTONIC, &now);
    scheduler.on = true;
    scheduler.now_ns = of_timespec(&now);
    scheduler.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 0x1234567;
    scheduler.n_threads = 0;
    self = add_thread();
}

void virtual_time_end(void)
{
    if (!virtual_time_is_on())
        return;
    for (thread *t = scheduler.first; t; t = t->next)
        if (t != self && t->waits != ENDED)
            report_deadlock();
    while (scheduler.first)
        remove_thread(scheduler.first);
    self = NULL;
    scheduler.on = false;
}

/* ---- threads ---- */

static void *run_thread(void *of)
{
    thread *t = of;
    self = t;
    await_turn(t);
    void *result = t->start(t->argument);
    t->waits = ENDED;
    wake_waiters(WAITS_THREAD, t, UINT32_MAX);
    self = NULL;
    resume(choose());
    return result;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *how,
                          void *(*start)(void *), void *argument)
{
    if (!virtual_time_is_on())
        return __real_pthread_create(out, how, start, argument);
    thread *t = add_thread();
    t->start = start;
    t->argument = argument;
    int error = __real_pthread_create(out, how, run_thread, t);
    if (error) {
        remove_thread(t);
        return error;
    }
    t->handle = *out;
    may_switch();
    return 0;
}

pid_t __wrap_fork(void)
{
    virtual_time_end();
    return __real_fork();
}

int __wrap_pthread_join(pthread_t handle, void **result)
{
    thread *t = scheduler.first;
    if (!virtual_time_is_on())
        return __real_pthread_join(handle, result);
    while (t && (t->number == 0 || !pthread_equal(t->handle, handle)))
        t = t->next;
    if (!t)
        return ESRCH;
    while (t->waits != ENDED)
        block(WAITS_THREAD, t, never_ns);
    int error = __real_pthread_join(handle, result);
    remove_thread(t);
    return error;
}

/* ---- locks ---- */

static int lock(pthread_mutex_t *mutex)
{
    int error;
    while ((error = pthread_mutex_trylock(mutex)) == EBUSY)
        block(WAITS_MUTEX, mutex, never_ns);
    return error;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!virtual_time_is_on())
        return __real_pthread_mutex_lock(mutex);
    may_switch();
    return lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int error = __real_pthread_mutex_unlock(mutex);
    if (virtual_time_is_on())
        wake_waiters(WAITS_MUTEX, mutex, UINT32_MAX);
    return error;
}

static int wait_condition(pthread_cond_t *condition, pthread_mutex_t *mutex,
                          int64_t until_ns)
{
    __real_pthread_mutex_unlock(mutex);
    wake_waiters(WAITS_MUTEX, mutex, UINT32_MAX);
    bool late = block(WAITS_CONDITION, condition, until_ns);
    int error = lock(mutex);
    return error ? error : late ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    return virtual_time_is_on() ? wait_condition(condition, mutex, never_ns)
                                : __real_pthread_cond_wait(condition, mutex);
}

static int64_t deadline_ns(const struct timespec *until)
{
    int64_t at_ns = of_timespec(until);
    return at_ns > epoch_ns / 2 ? at_ns - epoch_ns : at_ns;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition,
                                  pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    return virtual_time_is_on()
               ? wait_condition(condition, mutex, deadline_ns(until))
               : __real_pthread_cond_timedwait(condition, mutex, until);
}

int __wrap_pthread_cond_signal(pthread_cond_t *condition)
{
    if (!virtual_time_is_on())
        return __real_pthread_cond_signal(condition);
    wake_waiters(WAITS_CONDITION, condition, 1);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition)
{
    if (!virtual_time_is_on())
        return __real_pthread_cond_broadcast(condition);
    wake_waiters(WAITS_CONDITION, condition, UINT32_MAX);
    return 0;
}

static long futex(uint32_t *word, int operation, uint32_t value,
                  const struct timespec *until)
{
    int what = operation & FUTEX_CMD_MASK;
    if (what == FUTEX_WAKE) {
        wake_waiters(WAITS_FUTEX, word, value);
        may_switch();
        return 0;
    }
    if (what != FUTEX_WAIT_BITSET)
        abort();
    may_switch();
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
        errno = EAGAIN;
        return -1;
    }
    if (!block(WAITS_FUTEX, word, until ? deadline_ns(until) : never_ns))
        return 0;
    errno = ETIMEDOUT;
    return -1;
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex && virtual_time_is_on())
        return futex((uint32_t *)a[0], (int)a[1], (uint32_t)a[2],
                     (const struct timespec *)a[3]);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- time ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!virtual_time_is_on() ||
        (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
        return __real_clock_gettime(clock, out);
    int64_t now_ns = scheduler.now_ns += reading_ns;
    if (clock == CLOCK_REALTIME)
        now_ns += epoch_ns;
    *out = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
    return 0;
}

static void sleep_until(int64_t until_ns)
{
    if (until_ns > scheduler.now_ns)
        block(WAITS_TIME, NULL, until_ns);
    else
        may_switch();
}

int __wrap_clock_nanosleep(clockid_t clock, int flags,
                           const struct timespec *time, struct timespec *left)
{
    if (!virtual_time_is_on())
        return __real_clock_nanosleep(clock, flags, time, left);
    sleep_until(flags & TIMER_ABSTIME ? deadline_ns(time)
                                      : scheduler.now_ns + of_timespec(time));
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!virtual_time_is_on())
        return __real_nanosleep(time, left);
    sleep_until(scheduler.now_ns + of_timespec(time));
    return 0;
}

int __wrap_usleep(useconds_t us)
{
    if (!virtual_time_is_on())
        return __real_usleep(us);
    sleep_until(scheduler.now_ns + (int64_t)us * 1000);
    return 0;
}

int __wrap_sched_yield(void)
{
    if (!virtual_time_is_on())
        return __real_sched_yield();
    hand_over();
    return 0;
}

/* ---- files ---- */

static int wait_files(struct pollfd *files, nfds_t n, int64_t limit_ns)
{
    may_switch();
    int ready = __real_poll(files, n, 0);
    if (ready || limit_ns == 0)
        return ready;
    self->files = files;
    self->n_files = n;
    block(WAITS_FILES, NULL,
          limit_ns < 0 ? never_ns : scheduler.now_ns + limit_ns);
    return __real_poll(files, n, 0);
}

int __wrap_poll(struct pollfd *files, nfds_t n, int limit_ms)
{
    return virtual_time_is_on()
               ? wait_files(files, n, (int64_t)limit_ms * 1000000)
               : __real_poll(files, n, limit_ms);
}

int __wrap_ppoll(struct pollfd *files, nfds_t n, const struct timespec *limit,
                 const sigset_t *signals)
{
    return virtual_time_is_on()
               ? wait_files(files, n, limit ? of_timespec(limit) : -1)
               : __real_ppoll(files, n, limit, signals);
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int most,
                      int limit_ms)
{
    struct pollfd file = {.fd = epoll, .events = POLLIN};
    if (virtual_time_is_on()) {
        wait_files(&file, 1, (int64_t)limit_ms * 1000000);
        limit_ms = 0;
    }
    return __real_epoll_wait(epoll, events, most, limit_ms);
}

/* Waits until the file is readable, if a call may block on it. */
static void wait_readable(int fd, int flags)
{
    struct pollfd file = {.fd = fd, .events = POLLIN};
    if (virtual_time_is_on() && !(flags & MSG_DONTWAIT) &&
        !(fcntl(fd, F_GETFL) & O_NONBLOCK))
        wait_files(&file, 1, -1);
}

ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    wait_readable(fd, 0);
    return __real_read(fd, bytes, size);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    size_t at = 0;
    if (!virtual_time_is_on() || !(flags & MSG_WAITALL)) {
        wait_readable(fd, flags);
        return __real_recv(fd, bytes, size, flags);
    }
    while (at < size) {
        wait_readable(fd, flags);
        ssize_t n = __real_recv(fd, (char *)bytes + at, size - at,
                                flags & ~MSG_WAITALL);
        if (n <= 0)
            return at ? (ssize_t)at : n;
        at += (size_t)n;
    }
    return (ssize_t)at;
}
