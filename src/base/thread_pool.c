/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A pool: the current job, its finished tasks, and the worker threads. */
struct lhi_thread_pool {
    uint32_t max_threads; /* threads, including the caller */
    bool initialised;     /* lock and conditions are initialised */
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t begin, change;
    const lhi_parallel_job *job;
    uint32_t n, next;
    bool stopping; /* worker threads must exit */
    bool done[LHI_MAX_PARALLEL_TASKS];
    uint32_t n_workers, n_numbered;
    pthread_t workers[LHI_MAX_PARALLEL_TASKS];
};

/* Takes the current job's next task for the calling thread: *out is its number.
 * Returns false if none remains. */
static bool claim_task(lhi_thread_pool *c, uint32_t *out)
{
    pthread_mutex_lock(&c->lock);
    bool any = c->next < c->n;
    if (any)
        *out = c->next++;
    pthread_mutex_unlock(&c->lock);
    return any;
}

/* Returns the number of tasks finished without a gap from task 0 on; requires
 * the lock. */
static uint32_t count_done(const lhi_thread_pool *c)
{
    uint32_t n = 0;
    while (n < c->n && c->done[n])
        n++;
    return n;
}

/* Runs the pool's tasks on a worker thread, one job after another. */
static void *run_worker(void *context)
{
    lhi_thread_pool *c = context;
    pthread_mutex_lock(&c->lock);
    const uint32_t thread = ++c->n_numbered;
    while (!c->stopping) {
        if (c->next >= c->n) {
            pthread_cond_wait(&c->begin, &c->lock);
            continue;
        }
        const uint32_t i = c->next++;
        const lhi_parallel_job *team = c->job;
        pthread_mutex_unlock(&c->lock);
        team->run_task(team->context, i, thread);
        pthread_mutex_lock(&c->lock);
        c->done[i] = true;
        pthread_cond_signal(&c->change);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Waits until all tasks of the pool's job have ended, and meanwhile reports
 * progress about twenty times a second. */
static void wait_for_tasks(lhi_thread_pool *c)
{
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 50000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_mutex_lock(&c->lock);
        uint32_t before = count_done(c);
        if (before < c->n)
            pthread_cond_timedwait(&c->change, &c->lock, &until);
        uint32_t n = count_done(c);
        pthread_mutex_unlock(&c->lock);
        c->job->report_progress(c->job->context, n);
        if (n == c->n)
            return;
    }
}

/* Runs tasks of the pool's job on the calling thread until none remains to be
 * started. */
static void run_on_caller(lhi_thread_pool *c)
{
    uint32_t i;
    while (claim_task(c, &i)) {
        c->job->run_task(c->job->context, i, 0);
        pthread_mutex_lock(&c->lock);
        c->done[i] = true;
        uint32_t n = count_done(c);
        pthread_mutex_unlock(&c->lock);
        c->job->report_progress(c->job->context, n);
    }
}

/* Initialises an empty pool of at most `threads` threads, with lock and
 * conditions; c->initialised stays false if that fails. */
static void init_pool(lhi_thread_pool *c, uint32_t threads)
{
    *c = (lhi_thread_pool){.max_threads = threads < LHI_MAX_PARALLEL_TASKS
                                              ? threads
                                              : LHI_MAX_PARALLEL_TASKS};
    if (pthread_mutex_init(&c->lock, NULL) != 0)
        return;
    bool begins = pthread_cond_init(&c->begin, NULL) == 0;
    c->initialised = begins && pthread_cond_init(&c->change, NULL) == 0;
    if (c->initialised)
        return;
    if (begins)
        pthread_cond_destroy(&c->begin);
    pthread_mutex_destroy(&c->lock);
}

/* Stops and joins all worker threads, and destroys lock and conditions. */
static void stop_pool(lhi_thread_pool *c)
{
    if (!c->initialised)
        return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_broadcast(&c->begin);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->n_workers; i++)
        pthread_join(c->workers[i], NULL);
    pthread_cond_destroy(&c->begin);
    pthread_cond_destroy(&c->change);
    pthread_mutex_destroy(&c->lock);
}

lh_status lhi_thread_pool_make(uint32_t threads, lhi_thread_pool **out,
                               lh_error *err)
{
    lhi_thread_pool *crew = malloc(sizeof *crew);
    if (!crew)
        return lhi_fail_nomem(err);
    init_pool(crew, threads);
    *out = crew;
    return LH_OK;
}

void lhi_thread_pool_free(lhi_thread_pool *crew)
{
    if (!crew)
        return;
    stop_pool(crew);
    free(crew);
}

void lhi_thread_pool_run(lhi_thread_pool *c, const lhi_parallel_job *team,
                         uint32_t n)
{
    if (n > LHI_MAX_PARALLEL_TASKS)
        n = LHI_MAX_PARALLEL_TASKS;
    if (!c->initialised) {
        for (uint32_t i = 0; i < n; i++) {
            team->run_task(team->context, i, 0);
            team->report_progress(team->context, i + 1);
        }
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->job = team;
    c->n = n;
    c->next = 0;
    memset(c->done, 0, sizeof c->done);
    pthread_cond_broadcast(&c->begin);
    pthread_mutex_unlock(&c->lock);
    while (c->n_workers + 1 < c->max_threads && c->n_workers + 1 < n &&
           pthread_create(&c->workers[c->n_workers], NULL, run_worker, c) == 0)
        c->n_workers++;
    run_on_caller(c);
    wait_for_tasks(c);
}

void lhi_run_parallel(const lhi_parallel_job *team, uint32_t n,
                      uint32_t threads)
{
    lhi_thread_pool c;
    init_pool(&c, threads);
    lhi_thread_pool_run(&c, team, n);
    stop_pool(&c);
}

uint32_t lhi_count_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    /* more processors than a cpu_set_t holds */
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1                        ? 1
           : n < LHI_MAX_PARALLEL_TASKS ? (uint32_t)n
                                        : LHI_MAX_PARALLEL_TASKS;
}
