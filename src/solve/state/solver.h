/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of lh_solve() share. */
#ifndef LHI_SOLVER_H
#define LHI_SOLVER_H

#include "base/random.h"
#include "solve/bound/windows.h"
#include "solve/improve/justify.h"
#include "solve/model/words.h"
#include "solve/search/search.h"

/* Operations: too many to anneal on their orders, and for beams. */
enum { LHI_LARGE = 4096 };
enum { LHI_LEAST_TASKS = 4, LHI_MOST_TASKS = 64 }; /* of a round */

typedef struct lhi_fewer lhi_fewer;
typedef struct lhi_regrower lhi_regrower;

/* Works in memory of its own, as it runs beside others, and goes on where it
 * ended. */
typedef struct lhi_worker {
    lhi_arena *mem;
    lhi_regrower *regrower;
} lhi_worker;

typedef struct lhi_solver {
    const lh_pipeline *p;
    lh_solve_options o;
    uint32_t at_once; /* pieces to cut work into: as many as threads, but
                         limited by effort the same for any number of them */
    lhi_budget budget;
    lhi_arena *mem;
    lhi_shop *shop;
    lhi_windows *windows;
    lhi_words *best, *scratch, *found; /* best: orders of the best schedule */
    lhi_justifier *justifier;          /* may be NULL */
    lhi_worker *regrowers; /* none: not made yet, or not for this shop */
    uint32_t n_regrowers;
    bool has_words;
    lh_schedule *schedule;
    int64_t best_ns, bound_ns;
    int64_t low; /* units: no schedule of the shop takes fewer */
    const char *found_by, *proven_by;
    char why[160];
    bool infeasible;
    lhi_fewer *fewer; /* may be NULL */
    bool is_part;     /* it solves one of those, and tells nobody */
} lhi_solver;

/* --- what is known: incumbent.c */

bool lhi_is_done(const lhi_solver *r);   /* closed, or stopped */
bool lhi_is_closed(const lhi_solver *r); /* nothing is left to do */
void lhi_report(lhi_solver *r, const char *phase);
int64_t lhi_units_of(const lhi_solver *r, int64_t ns);
/* No schedule of the shop takes fewer units. */
void lhi_raise_bound(lhi_solver *r, int64_t units, const char *by);
/* What is asked for, or the bound, which is so often the optimum. */
int64_t lhi_first_deadline(const lhi_solver *r);
/* Units: as long as this or longer is of no use. */
int64_t lhi_first_enough(const lhi_solver *r);
/* Takes a schedule over and keeps it if it is valid and better. */
lh_status lhi_enter(lhi_solver *r, lh_schedule *schedule, const char *by,
                    lh_error *err);
/* The schedules of all generators, and a copy of the one to start from. */
lh_status lhi_generate(lhi_solver *r, lh_error *err);
lh_status lhi_copy_start(lhi_solver *r, lh_error *err);
/* Orders of all machines as a schedule; message orders stay only where first
 * in, first out is worse. */
lh_status lhi_solver_offer(lhi_solver *r, const lhi_words *words, const char *by,
                    lh_error *err);

/* --- the bound of the windows: solve.c */

/* As far up as they refute; again after lhi_windows_allow(). */
lh_status lhi_bound_by_windows(lhi_solver *r, lh_error *err);
const char *lhi_windows_name(const lhi_solver *r);
/* Microbatches inserted one after another, for so many ticks on all threads
 * together: inserts.c. */
lh_status lhi_try_insertion(lhi_solver *r, uint64_t ticks, lh_error *err);
void lhi_free_regrowers(lhi_solver *r);
/* Beam searches of this width for deadlines between the bound and the best:
 * beams.c. */
lh_status lhi_try_beams(lhi_solver *r, uint32_t width, lh_error *err);

enum { LHI_NEAR_KINDS = 3 }; /* all devices, three quarters of them, half */

/* Improves the best schedule by searches that may change it in a stretch of
 * time only, on all devices or some, in `room` bytes. Where that ends they go
 * on from others that are hardly longer. */
typedef struct lhi_near {
    int64_t at;                    /* of the makespan, in 1024th */
    int64_t share[LHI_NEAR_KINDS]; /* likewise */
    int64_t step;                  /* units that a schedule is to be shorter */
    uint32_t n_asked, n_vain;      /* questions; since one was */
    lhi_words *now;       /* to begin with: the best, or what was found since */
    lhi_words *elsewhere; /* its times, out of order */
    int64_t best_ns;      /* that was there when `now` was taken from it */
    lhi_random random;
} lhi_near;
lh_status lhi_try_near(lhi_solver *r, lhi_near *state, uint64_t ticks,
                       size_t room, lh_error *err);

/* All of it, from r->p, options, budget and arena. */
lh_status lhi_solve_within(lhi_solver *r, lh_error *err);

/* --- rounds of searches and improvements at the same time: rounds.c */

/* Until the gap is closed or the budget spent. Needs a schedule. */
lh_status lhi_close_gap(lhi_solver *r, lh_error *err);
/* A search has a Boolean for every pair of passes that is open; for thousands
 * of microbatches that can be more than there is room for. How many searches
 * there is room for, but no more than `most`. */
lh_status lhi_count_searches(const lhi_solver *r, uint32_t most, uint32_t *out,
                             lh_error *err);
/* A search for a schedule of at most so many units, or an answer at once. */
lh_status lhi_begin_search(lhi_solver *r, int64_t units, lhi_search **out,
                           lhi_answer *answer, lh_error *err);

#endif
