/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A pool: the current job, its finished tasks, and the worker threads. */
struct lhi_crew {
    uint32_t most;        /* threads, including the caller */
    bool works;           /* lock and conditions are initialised */
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t begin, change;
    const lhi_team *team;
    uint32_t n, next;
    bool over; /* worker threads must exit */
    bool done[LHI_TEAM_PIECES];
    uint32_t n_others, n_named;
    pthread_t others[LHI_TEAM_PIECES];
};

/* Claims the next task; returns false if none remains. */
static bool take_piece(lhi_crew *c, uint32_t *out)
{
    pthread_mutex_lock(&c->lock);
    bool any = c->next < c->n;
    if (any)
        *out = c->next++;
    pthread_mutex_unlock(&c->lock);
    return any;
}

static uint32_t count_done(const lhi_crew *c) /* requires the lock */
{
    uint32_t n = 0;
    while (n < c->n && c->done[n])
        n++;
    return n;
}

/* Worker thread: runs tasks, one job after another. */
static void *work_on(void *context)
{
    lhi_crew *c = context;
    pthread_mutex_lock(&c->lock);
    const uint32_t who = ++c->n_named;
    while (!c->over) {
        if (c->next >= c->n) {
            pthread_cond_wait(&c->begin, &c->lock);
            continue;
        }
        const uint32_t i = c->next++;
        const lhi_team *team = c->team;
        pthread_mutex_unlock(&c->lock);
        team->work(team->context, i, who);
        pthread_mutex_lock(&c->lock);
        c->done[i] = true;
        pthread_cond_signal(&c->change);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Waits for all tasks and reports progress about twenty times a second. */
static void wait_for(lhi_crew *c)
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
        c->team->look(c->team->context, n);
        if (n == c->n)
            return;
    }
}

/* Runs tasks on the calling thread until none remains. */
static void do_here(lhi_crew *c)
{
    uint32_t i;
    while (take_piece(c, &i)) {
        c->team->work(c->team->context, i, 0);
        pthread_mutex_lock(&c->lock);
        c->done[i] = true;
        uint32_t n = count_done(c);
        pthread_mutex_unlock(&c->lock);
        c->team->look(c->team->context, n);
    }
}

static void open_crew(lhi_crew *c, uint32_t threads)
{
    *c = (lhi_crew){.most =
                        threads < LHI_TEAM_PIECES ? threads : LHI_TEAM_PIECES};
    if (pthread_mutex_init(&c->lock, NULL) != 0)
        return;
    bool begins = pthread_cond_init(&c->begin, NULL) == 0;
    c->works = begins && pthread_cond_init(&c->change, NULL) == 0;
    if (c->works)
        return;
    if (begins)
        pthread_cond_destroy(&c->begin);
    pthread_mutex_destroy(&c->lock);
}

static void close_crew(lhi_crew *c)
{
    if (!c->works)
        return;
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_broadcast(&c->begin);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->n_others; i++)
        pthread_join(c->others[i], NULL);
    pthread_cond_destroy(&c->begin);
    pthread_cond_destroy(&c->change);
    pthread_mutex_destroy(&c->lock);
}

lh_status lhi_crew_make(uint32_t threads, lhi_crew **out, lh_error *err)
{
    lhi_crew *crew = malloc(sizeof *crew);
    if (!crew)
        return lhi_fail_nomem(err);
    open_crew(crew, threads);
    *out = crew;
    return LH_OK;
}

void lhi_crew_free(lhi_crew *crew)
{
    if (!crew)
        return;
    close_crew(crew);
    free(crew);
}

void lhi_crew_run(lhi_crew *c, const lhi_team *team, uint32_t n)
{
    if (n > LHI_TEAM_PIECES)
        n = LHI_TEAM_PIECES;
    if (!c->works) {
        for (uint32_t i = 0; i < n; i++) {
            team->work(team->context, i, 0);
            team->look(team->context, i + 1);
        }
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->team = team;
    c->n = n;
    c->next = 0;
    memset(c->done, 0, sizeof c->done);
    pthread_cond_broadcast(&c->begin);
    pthread_mutex_unlock(&c->lock);
    while (c->n_others + 1 < c->most && c->n_others + 1 < n &&
           pthread_create(&c->others[c->n_others], NULL, work_on, c) == 0)
        c->n_others++;
    do_here(c);
    wait_for(c);
}

void lhi_team_run(const lhi_team *team, uint32_t n, uint32_t threads)
{
    lhi_crew c;
    open_crew(&c, threads);
    lhi_crew_run(&c, team, n);
    close_crew(&c);
}

uint32_t lhi_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (uint32_t)CPU_COUNT(&set);
    /* more processors than a cpu_set_t holds */
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n < LHI_TEAM_PIECES ? (uint32_t)n : LHI_TEAM_PIECES;
}
