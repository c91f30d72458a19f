/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "solve/model/team.h"

#include <pthread.h>
#include <time.h>

enum { MOST = 256 };

typedef struct crew {
    const lhi_team *team;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t change;
    uint32_t n, next;
    bool done[MOST];
} crew;

static bool take_piece(crew *c, uint32_t *out)
{
    pthread_mutex_lock(&c->lock);
    bool any = c->next < c->n;
    if (any)
        *out = c->next++;
    pthread_mutex_unlock(&c->lock);
    return any;
}

static void note_done(crew *c, uint32_t i)
{
    pthread_mutex_lock(&c->lock);
    c->done[i] = true;
    pthread_cond_signal(&c->change);
    pthread_mutex_unlock(&c->lock);
}

static uint32_t count_done(const crew *c) /* under the lock */
{
    uint32_t n = 0;
    while (n < c->n && c->done[n])
        n++;
    return n;
}

static void *work_on(void *context)
{
    crew *c = context;
    uint32_t i;
    while (take_piece(c, &i)) {
        c->team->work(c->team->context, i, false);
        note_done(c, i);
    }
    return NULL;
}

static void wait_for(crew *c)
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

static void run_here(crew *c)
{
    uint32_t i;
    while (take_piece(c, &i)) {
        c->team->work(c->team->context, i, true);
        note_done(c, i);
        pthread_mutex_lock(&c->lock);
        uint32_t n = count_done(c);
        pthread_mutex_unlock(&c->lock);
        c->team->look(c->team->context, n);
    }
}

void lhi_team_run(const lhi_team *team, uint32_t n, uint32_t threads)
{
    pthread_t others[MOST];
    crew c = {.team = team, .n = n < MOST ? n : MOST};
    uint32_t started = 0;
    bool locks = pthread_mutex_init(&c.lock, NULL) == 0;
    bool waits = locks && pthread_cond_init(&c.change, NULL) == 0;
    if (!waits) {
        if (locks)
            pthread_mutex_destroy(&c.lock);
        for (uint32_t i = 0; i < n; i++) {
            team->work(team->context, i, true);
            team->look(team->context, i + 1);
        }
        return;
    }
    while (started + 1 < threads && started + 1 < c.n &&
           pthread_create(&others[started], NULL, work_on, &c) == 0)
        started++;
    run_here(&c);
    wait_for(&c);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    pthread_cond_destroy(&c.change);
    pthread_mutex_destroy(&c.lock);
}
