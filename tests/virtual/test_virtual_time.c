/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time: one seed gives one history, and sleeps end in order. */
#define _GNU_SOURCE
#include "test.h"
#include "virtual_time.h"

#include <pthread.h>
#include <time.h>

enum { N_THREADS = 4, N_STEPS = 20 };

static struct {
    pthread_mutex_t lock;
    char text[N_THREADS * N_STEPS + 1];
    size_t n;
} history = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *append(void *of)
{
    for (int i = 0; i < N_STEPS; i++) {
        pthread_mutex_lock(&history.lock);
        history.text[history.n++] = *(const char *)of;
        pthread_mutex_unlock(&history.lock);
    }
    return NULL;
}

static void run_threads(uint64_t seed, void *(*start)(void *))
{
    static char names[N_THREADS] = {'a', 'b', 'c', 'd'};
    pthread_t threads[N_THREADS];
    memset(history.text, 0, sizeof history.text);
    history.n = 0;
    virtual_time_begin(seed);
    for (int i = 0; i < N_THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, start, &names[i]), 0);
    for (int i = 0; i < N_THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    virtual_time_end();
}

static void one_seed_gives_one_history(void)
{
    char first[sizeof history.text];
    bool differ = false;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        run_threads(seed, append);
        CHECK_INT(history.n, N_THREADS * N_STEPS);
        memcpy(first, history.text, sizeof first);
        run_threads(seed, append);
        CHECK_STR(history.text, first);
        run_threads(seed + 100, append);
        differ = differ || strcmp(history.text, first) != 0;
    }
    CHECK(differ);
}

/* 'd' sleeps for an hour, 'c' for two, and so on. */
static void *sleep_hours(void *of)
{
    const char *name = of;
    struct timespec before, after, span = {.tv_sec = ('e' - *name) * 3600};
    clock_gettime(CLOCK_MONOTONIC, &before);
    nanosleep(&span, NULL);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK(after.tv_sec - before.tv_sec >= span.tv_sec &&
          after.tv_sec - before.tv_sec <= span.tv_sec + 1);
    pthread_mutex_lock(&history.lock);
    history.text[history.n++] = *name;
    pthread_mutex_unlock(&history.lock);
    return NULL;
}

static void sleeps_end_in_order(void)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        run_threads(seed, sleep_hours);
        CHECK_STR(history.text, "dcba");
    }
}

int main(void)
{
    RUN(one_seed_gives_one_history);
    RUN(sleeps_end_in_order);
    return test_summary();
}
