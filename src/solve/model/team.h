/* SPDX-License-Identifier: Apache-2.0 */
/* Several pieces of work on several threads. */
#ifndef LHI_TEAM_H
#define LHI_TEAM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct lhi_team {
    void *context;
    /* Does piece i; `here`: on the thread that called lhi_team_run(). */
    void (*work)(void *context, uint32_t i, bool here);
    /* On that thread, after each piece that it did and about twenty times a
     * second while it waits: pieces 0 .. n_done - 1 are done. */
    void (*look)(void *context, uint32_t n_done);
} lhi_team;

/* Does pieces 0 .. n - 1, begun in order, on at most so many threads: the
 * calling one is among them, and where others cannot be had it does all. */
void lhi_team_run(const lhi_team *team, uint32_t n, uint32_t threads);

#endif
