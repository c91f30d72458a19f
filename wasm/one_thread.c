/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces base/thread_pool.c on platforms without threads: the caller runs all
 * tasks, as base/thread_pool.h specifies if no threads are available. */
#include "base/thread_pool.h"

#include <stdlib.h>

/* Team without threads; C requires one member. */
struct lhi_thread_pool {
    char none;
};

lh_status lhi_thread_pool_make(uint32_t threads, lhi_thread_pool **out,
                               lh_error *err)
{
    (void)threads;
    lhi_thread_pool *crew = calloc(1, sizeof *crew);
    if (!crew)
        return lhi_fail_nomem(err);
    *out = crew;
    return LH_OK;
}

void lhi_thread_pool_free(lhi_thread_pool *crew)
{
    free(crew);
}

void lhi_thread_pool_run(lhi_thread_pool *crew, const lhi_parallel_job *team,
                         uint32_t n)
{
    (void)crew;
    lhi_run_parallel(team, n, 1);
}

void lhi_run_parallel(const lhi_parallel_job *team, uint32_t n,
                      uint32_t threads)
{
    (void)threads;
    for (uint32_t i = 0; i < n; i++) {
        team->run_task(team->context, i, 0);
        if (team->report_progress)
            team->report_progress(team->context, i + 1);
    }
}

uint32_t lhi_count_processors(void)
{
    return 1;
}
