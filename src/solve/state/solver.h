/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of lh_solve() share: what is known of a pipeline, the best
 * schedule and the bound, which all rooms of src/solve raise and lower.
 *
 *     model/    in: a pipeline. The job shop it is, orders of its machines
 *               ("words") and their times, budgets, the list of engines
 *     bound/    what no schedule is below: closed forms, windows, lattices,
 *               shaving
 *     search/   clause learning: is there a schedule done by a deadline?
 *     state/    this; the bound raised; pieces of work on several threads
 *     improve/  schedules made and made better, one idea a file
 *     .         solve.c: what comes after what; rounds.c: searches and
 *               improvements in turn, to the end. Out: a solution (solve.h)
 *               certify.c, best.c, memory_tradeoff.c, which ask lh_solve() */
#ifndef LHI_SOLVER_H
#define LHI_SOLVER_H

#include "base/random.h"
#include "solve/bound/windows.h"
#include "solve/model/words.h"
#include "solve/search/search.h"

/* Operations: too many to anneal on their orders, and for beams. */
enum { LHI_LARGE = 4096 };
enum { LHI_LEAST_TASKS = 4, LHI_MOST_TASKS = 64 }; /* of a round */

typedef struct lhi_fewer lhi_fewer;
typedef struct lhi_justifier lhi_justifier;
typedef struct lhi_regrower lhi_regrower;

/* Works in memory of its own, as it runs beside others, and goes on where it
 * ended. */
typedef struct lhi_worker {
    lhi_arena *mem;
    lhi_regrower *regrower;
} lhi_worker;

typedef struct lhi_solver lhi_solver;

struct lhi_solver {
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
    /* All of it, from p, options, budget and arena: how parts are solved. */
    lh_status (*solve)(lhi_solver *r, lh_error *err);
};

/* --- what is known: incumbent.c */

bool lhi_is_done(const lhi_solver *r);   /* closed, or stopped */
bool lhi_is_closed(const lhi_solver *r); /* nothing is left to do */
void lhi_report(lhi_solver *r, const char *phase);
int64_t lhi_units_of(const lhi_solver *r, int64_t ns);
/* No schedule of the shop takes fewer units; the engine at work gained that. */
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
/* Orders of all machines as a schedule, which that engine made; message orders
 * stay only where first in, first out is worse. */
lh_status lhi_solver_offer(lhi_solver *r, const lhi_words *words, lhi_engine by,
                           lh_error *err);

/* --- bounds by trial deadlines: raise_bound.c */

/* By windows, as far up as they refute; again after lhi_windows_allow(). */
lh_status lhi_bound_by_windows(lhi_solver *r, lh_error *err);
/* Who refuted what windows refute, for lhi_raise_bound(). */
const char *lhi_windows_name(const lhi_solver *r);
/* What windows leave open shaving may refute. */
lh_status lhi_bound_by_shaving(lhi_solver *r, lh_error *err);

#endif
