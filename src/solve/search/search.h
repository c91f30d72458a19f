/* SPDX-License-Identifier: Apache-2.0 */
/* Is there a schedule that is done by a deadline? Clause learning over "this
 * before that on their machine", with heads and tails, one-machine bounds and
 * memory as propagators (docs/theory/optimal.md, "Search"). */
#ifndef LHI_SEARCH_H
#define LHI_SEARCH_H

#include "solve/bound/windows.h"
#include "solve/model/words.h"

typedef struct lhi_search lhi_search;

typedef enum lhi_answer {
    LHI_FOUND,
    LHI_REFUTED, /* proven: there is none */
    LHI_GAVE_UP
} lhi_answer;

/* Bytes that a search starts with, at most; with_counts: with the windows as
 * they are and their counts. SIZE_MAX: none can be made. */
lh_status lhi_search_size(const lhi_windows *windows, bool with_counts,
                          size_t *out, lh_error *err);
/* What making it took. */
uint64_t lhi_search_ticks(const lhi_search *search);

/* `windows`: set for this very deadline, with counts; live longer. `hint`:
 * timed orders to stay near; may be NULL. Release with lhi_search_free(). */
lh_status lhi_search_make(const lhi_shop *shop, int64_t deadline,
                          const lhi_windows *windows, const lhi_words *hint,
                          lhi_search **out, lh_error *err);
void lhi_search_free(lhi_search *search); /* NULL is fine */

/* Goes on for a shorter deadline, for which all that was learnt holds as well,
 * near another hint (may be NULL). */
void lhi_search_shorten(lhi_search *search, int64_t deadline,
                        const lhi_words *hint);

/* Goes on for so many ticks, or until it has used `room` bytes. LHI_FOUND:
 * `out` has the orders. LH_ENOMEM: nothing is proven. */
lh_status lhi_search_run(lhi_search *search, uint64_t ticks, size_t room,
                         lhi_budget *budget, lhi_words *out, lhi_answer *answer,
                         lh_error *err);
/* What is learnt, in order: how many literals, then so many pairs of operations
 * (first before second), of which at least one holds in every schedule that is
 * done by the deadline. */
typedef struct lhi_clause_log {
    uint32_t *words;
    size_t n, room, most; /* words; what would go beyond `most` is ... */
    bool incomplete;      /* ... not kept */
} lhi_clause_log;

/* To be set before the first lhi_search_run(). `log` outlives the search. */
void lhi_search_set_log(lhi_search *search, lhi_clause_log *log);
size_t lhi_search_bytes(const lhi_search *search);
uint64_t lhi_search_conflicts(const lhi_search *search);

#endif
