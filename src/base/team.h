/* SPDX-License-Identifier: Apache-2.0 */
/* Several pieces of work on several threads. */
#ifndef LHI_TEAM_H
#define LHI_TEAM_H

#include "base/fail.h"

#include <stdint.h>

enum { LHI_TEAM_PIECES = 256 }; /* of one job, at most */

typedef struct lhi_team {
    void *context;
    /* Does piece i on thread `who`: 0 is the one that called, others are below
     * the number of threads. */
    void (*work)(void *context, uint32_t i, uint32_t who);
    /* On the calling thread, after each piece that it did and about twenty
     * times a second while it waits: pieces 0 .. n_done - 1 are done. */
    void (*look)(void *context, uint32_t n_done);
} lhi_team;

/* Threads that stay for more than one job. */
typedef struct lhi_crew lhi_crew;

/* At most so many threads, the calling one among them. Others begin with the
 * first job that has pieces for them. */
lh_status lhi_crew_make(uint32_t threads, lhi_crew **out, lh_error *err);
void lhi_crew_free(lhi_crew *crew); /* NULL is fine */

/* Does pieces 0 .. n - 1, begun in order: one job at a time, and no piece asks
 * for another of the same crew. Where other threads cannot be had the calling
 * one does all. */
void lhi_crew_run(lhi_crew *crew, const lhi_team *team, uint32_t n);

/* The same with threads for this job alone. */
void lhi_team_run(const lhi_team *team, uint32_t n, uint32_t threads);

/* How many processors the process may run on: 1 or more. */
uint32_t lhi_processors(void);

#endif
