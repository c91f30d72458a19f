/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/thread_team.h"

#include "base/fail.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A thread of the team. */
typedef struct member {
    lhi_thread_team *team;
    pthread_t thread;
    uint32_t number; /* from 1 */
} member;

/* A team; the lock protects all that changes. */
struct lhi_thread_team {
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    member *members;
    uint32_t n_members; /* without the caller */
    void (*run)(void *context, uint32_t task, uint32_t thread);
    void *context;
    uint32_t n_tasks, next; /* next: first task that no thread has taken */
    uint64_t round;         /* number of calls of lhi_thread_team_run() */
    uint32_t n_busy;        /* members that have not ended the round */
    bool stops;
};

/* Runs the team's tasks as thread number `thread`, one after the other, until
 * none is left. */
static void run_tasks(lhi_thread_team *team, uint32_t thread)
{
    pthread_mutex_lock(&team->lock);
    while (team->next < team->n_tasks) {
        const uint32_t task = team->next++;
        pthread_mutex_unlock(&team->lock);
        team->run(team->context, task, thread);
        pthread_mutex_lock(&team->lock);
    }
    pthread_mutex_unlock(&team->lock);
}

/* Main function for a team's thread: waits for calls of lhi_thread_team_run()
 * and runs their tasks. */
static void *run_member(void *of)
{
    const member *me = of;
    lhi_thread_team *team = me->team;
    uint64_t round = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->round == round && !team->stops)
            pthread_cond_wait(&team->begun, &team->lock);
        if (team->stops)
            break;
        round = team->round;
        pthread_mutex_unlock(&team->lock);
        run_tasks(team, me->number);
        pthread_mutex_lock(&team->lock);
        if (--team->n_busy == 0)
            pthread_cond_signal(&team->ended);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

lh_status lhi_thread_team_make(uint32_t n_threads, lhi_thread_team **out,
                               lh_error *err)
{
    lhi_thread_team *team = calloc(1, sizeof *team);
    if (!team || !(team->members = calloc(n_threads, sizeof *team->members))) {
        free(team);
        return lhi_fail_nomem(err);
    }
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begun, NULL);
    pthread_cond_init(&team->ended, NULL);
    for (uint32_t i = 1; i < n_threads; i++) {
        member *m = &team->members[i - 1];
        *m = (member){.team = team, .number = i};
        const int cause = pthread_create(&m->thread, NULL, run_member, m);
        if (cause != 0) {
            lhi_thread_team_free(team);
            return lhi_fail(err, LH_EIO,
                            "cannot start thread %u of %u of a rank: %s; give "
                            "fewer threads",
                            i, n_threads, strerror(cause));
        }
        team->n_members++;
    }
    *out = team;
    return LH_OK;
}

void lhi_thread_team_free(lhi_thread_team *team)
{
    if (!team)
        return;
    pthread_mutex_lock(&team->lock);
    team->stops = true;
    pthread_cond_broadcast(&team->begun);
    pthread_mutex_unlock(&team->lock);
    for (uint32_t i = 0; i < team->n_members; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->ended);
    pthread_cond_destroy(&team->begun);
    pthread_mutex_destroy(&team->lock);
    free(team->members);
    free(team);
}

void lhi_thread_team_run(lhi_thread_team *team, uint32_t n_tasks,
                         void (*run)(void *context, uint32_t task,
                                     uint32_t thread),
                         void *context)
{
    pthread_mutex_lock(&team->lock);
    team->run = run;
    team->context = context;
    team->n_tasks = n_tasks;
    team->next = 0;
    team->n_busy = team->n_members;
    team->round++;
    pthread_cond_broadcast(&team->begun);
    pthread_mutex_unlock(&team->lock);
    run_tasks(team, 0);
    pthread_mutex_lock(&team->lock);
    while (team->n_busy > 0)
        pthread_cond_wait(&team->ended, &team->lock);
    pthread_mutex_unlock(&team->lock);
}
