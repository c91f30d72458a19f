/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a schedule meets a deadline. Clause learning over "a before b
 * on their machine", with heads and tails, one-machine bounds and memory as
 * propagators (docs/theory/optimal.md, "Search"). */
#ifndef LHI_SCHEDULE_SOLVER_SEARCH_SEARCH_H
#define LHI_SCHEDULE_SOLVER_SEARCH_SEARCH_H

#include "schedule/solver/bound/windows.h"
#include "schedule/solver/model/machine_orders.h"

typedef struct lhi_search lhi_search;

/* Results of a search. */
typedef enum lhi_answer {
    LHI_FOUND,
    LHI_REFUTED, /* proven: no schedule exists */
    LHI_GAVE_UP
} lhi_answer;

/* Computes in *out an upper bound on a search's initial memory, in bytes.
 * with_counts: also uses the time windows' `least` and `most` counts of
 * preceding operations. SIZE_MAX: the search is not applicable. */
lh_status lhi_search_estimate_bytes(const lhi_windows *windows,
                                    bool with_counts, size_t *out,
                                    lh_error *err);
/* Returns the work spent on creating a search, in ticks. */
uint64_t lhi_search_get_creation_ticks(const lhi_search *search);

/* Creates a CDCL search for a schedule within `deadline` (job-shop time); its
 * Boolean variables are the orders of operation pairs. `windows`: time
 * windows for this deadline, with the counts of preceding operations computed;
 * must outlive the search. `hint`: machine orders, with computed start times,
 * near which the search begins; may be NULL. Release with lhi_search_free(). */
lh_status lhi_search_make(const lhi_shop *shop, int64_t deadline,
                          const lhi_windows *windows,
                          const lhi_machine_orders *hint, lhi_search **out,
                          lh_error *err);
/* Frees a search; NULL is allowed. */
void lhi_search_free(lhi_search *search);

/* Sets a shorter deadline for the search, for which all learnt clauses remain
 * valid, and a new `hint` (orders to search near; may be NULL). */
void lhi_search_set_deadline(lhi_search *search, int64_t deadline,
                             const lhi_machine_orders *hint);

/* Continues the search for `ticks` of work, or until it uses `room` bytes.
 * *answer LHI_FOUND: `out` has the machine orders. LH_ENOMEM: nothing is
 * proven. */
lh_status lhi_search_run(lhi_search *search, uint64_t ticks, size_t room,
                         lhi_budget *budget, lhi_machine_orders *out,
                         lhi_answer *answer, lh_error *err);
/* Log of learnt clauses, in order. Each clause: the literal count, then
 * that many pairs of operations (first before second). At least one pair holds
 * in every schedule that meets the deadline. */
typedef struct lhi_clause_log {
    uint32_t *words;
    size_t n, room, most; /* in words; clauses beyond `most` are ... */
    bool incomplete;      /* ... dropped */
} lhi_clause_log;

/* Lets the search log its learnt clauses in `log`, which must outlive it; call
 * before the first lhi_search_run(). */
void lhi_search_set_log(lhi_search *search, lhi_clause_log *log);
/* Returns the search's current memory, in bytes. */
size_t lhi_search_get_bytes(const lhi_search *search);
/* Returns the number of conflicts so far. */
uint64_t lhi_search_count_conflicts(const lhi_search *search);

#endif
