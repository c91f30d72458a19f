/* SPDX-License-Identifier: Apache-2.0 */
/* Parallel for: runs independent parts of a search on several threads. The
 * result does not depend on the thread count: each part sees the search's state
 * at the start, and results are applied in order. The part count in flight must
 * therefore not depend on the threads either. */
#ifndef LHI_PLANNER_SEARCH_PARALLEL_FOR_H
#define LHI_PLANNER_SEARCH_PARALLEL_FOR_H

#include "planner/search/candidate.h"

/* A search's threads and their state. */
typedef struct lhi_workers lhi_workers;

/* Creates a search's worker threads; `threads` 0: one per processor.
 * Threads start with the first work. Results in the workers' arenas live as
 * long as `mem`. */
lh_status lhi_workers_make(uint32_t threads, lhi_arena *mem, lhi_workers **out,
                           lh_error *err);
/* Ends and frees the worker threads; NULL is allowed. */
void lhi_workers_free(lhi_workers *workers);
/* Returns the largest thread count; thread numbers (`thread`) are below it. */
uint32_t lhi_workers_count(const lhi_workers *workers); /* NULL: 1 */

/* Runs part i. `own` is this thread's search copy: `mem` is its own, its counts
 * are added to the search's afterwards, and its front's choices go to the
 * search's front. Candidates are shared: a part changes only its own ones and
 * adds none. Other results go to an entry for part i in `context`. `thread` is
 * the thread, for per-thread data. */
typedef lh_status lhi_search_task(void *context, lhi_layout_search *own,
                                  uint32_t thread, uint32_t i, lh_error *err);

/* Runs part(context, own, thread, i) for i = 0 .. n - 1 in parallel; results do
 * not depend on the thread count. Returns the status and error of the first
 * failed part; other parts may have run. */
lh_status lhi_layout_search_parallel_for(lhi_layout_search *s, uint32_t n,
                                         lhi_search_task *part, void *context,
                                         lh_error *err);

#endif
