/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a search that know nothing of each other, on several threads. What
 * comes out does not depend on how many there are: each part sees the search
 * as it was when all of them began, and what they bring is taken in order. So
 * how many parts are done at once must not depend on threads either. */
#ifndef LHI_EACH_H
#define LHI_EACH_H

#include "plan/search/candidate.h"

/* Threads of a search, and what each of them keeps. */
typedef struct lhi_workers lhi_workers;

/* `threads` 0: as many as processors. Begins none before there is work. What
 * parts leave in their arenas lives as long as `mem`. */
lh_status lhi_workers_make(uint32_t threads, lhi_arena *mem, lhi_workers **out,
                           lh_error *err);
void lhi_workers_free(lhi_workers *workers); /* NULL is fine */
/* How many threads there may be: parts have numbers below that. */
uint32_t lhi_workers_count(const lhi_workers *workers); /* NULL: 1 */

/* Part i. `own` is the search as this thread has it: a copy whose `mem` is its
 * own, whose counts add to the search's afterwards, and whose front's choices
 * go to the search's front. Candidates are shared: a part changes none but
 * those that are its own, and adds none. Other results go where `context` has a
 * place for part i. `who`: the thread, for what is kept for each. */
typedef lh_status lhi_search_part(void *context, lhi_layout_search *own,
                                  uint32_t who, uint32_t i, lh_error *err);

/* Parts 0 .. n - 1; n may be any number. Of those that fail the first one's
 * status and error; others may have been done. */
lh_status lhi_layout_search_each(lhi_layout_search *s, uint32_t n,
                                 lhi_search_part *part, void *context,
                                 lh_error *err);

#endif
