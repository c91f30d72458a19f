/* SPDX-License-Identifier: Apache-2.0 */
/* Shared state for lh_solve(): the pipeline, the incumbent and the bound, which
 * all parts of src/schedule/solver improve.
 *
 *     model/      input: a pipeline. Its job shop, machine orders and their
 *                 evaluation, budgets, the list of engines
 *     bound/      lower bounds: closed forms, windows, lattices, shaving
 *     search/     clause learning: does a schedule meet a deadline?
 *     state/      this file; raising the bound; tasks on several threads
 *     improve/    constructive and improvement heuristics, one per file
 *     .           solve.c: sequence of engines; portfolio.c: searches and
 *                 improvements in turn until the end. Output: a solution
 *                 (solve.h). certify.c, best.c and memory_tradeoff.c call
 *                 lh_solve() */
#ifndef LHI_SCHEDULE_SOLVER_STATE_SOLVER_H
#define LHI_SCHEDULE_SOLVER_STATE_SOLVER_H

#include "base/random.h"
#include "schedule/solver/bound/windows.h"
#include "schedule/solver/model/machine_orders.h"
#include "schedule/solver/search/search.h"

/* Operations above which annealing on orders and beam search are too slow. */
enum { LHI_SOLVER_LARGE_OPERATIONS = 4096 };
enum {
    LHI_SOLVER_MIN_TASKS = 4,
    LHI_SOLVER_MAX_TASKS = 64
}; /* tasks per round */

typedef struct lhi_reduction lhi_reduction;
typedef struct lhi_justifier lhi_justifier;
typedef struct lhi_repairer lhi_repairer;

/* A parallel worker with its own arena; its state persists between calls. */
typedef struct lhi_worker {
    lhi_arena *mem;
    lhi_repairer *repairer;
} lhi_worker;

typedef struct lhi_solver lhi_solver;

/* The solver's state. */
struct lhi_solver {
    const lh_pipeline *p;
    lh_solve_options o;
    uint32_t n_parallel; /* number of parallel tasks: the threads, or a constant
                          * if limited by effort */
    lhi_budget budget;
    lhi_arena *mem;
    lhi_shop *shop;
    lhi_windows *windows;
    lhi_machine_orders *best, *scratch,
        *found;               /* best: the incumbent's orders */
    lhi_justifier *justifier; /* may be NULL */
    lhi_worker *workers;      /* NULL: not created, or not applicable */
    uint32_t n_workers;
    bool has_orders;
    lh_schedule *schedule;
    int64_t best_ns, bound_ns;
    int64_t low_units; /* lower bound for the job shop, units */
    const char *found_by, *proven_by;
    char why[160];
    bool infeasible;
    bool has_kind_bound; /* the lattices of pass kinds have been evaluated */
    lhi_reduction *reduction; /* may be NULL */
    bool is_reduced; /* solves a reduced problem; no progress reports */
    /* Runs the complete solver given p, options, budget and arena; used for
     * reduced problems. */
    lh_status (*solve)(lhi_solver *r, lh_error *err);
};

/* --- incumbent and bound: incumbent.c */

/* Checks whether the solver has to stop: the budget is used up, or the gap is
 * closed. */
bool lhi_solver_is_done(const lhi_solver *r);
/* Checks whether the solver has reached its goal. The relative gap between
 * lower bound and incumbent is at most the requested one, the target makespan
 * is met or refuted, or no schedule exists. */
bool lhi_solver_is_closed(const lhi_solver *r);
/* Reports progress (bound, incumbent, `phase`) to the caller's callback, which
 * may stop the solver. */
void lhi_solver_report(lhi_solver *r, const char *phase);
/* Converts a makespan in ns to job-shop time units and returns it, rounded
 * down. */
int64_t lhi_solver_convert_to_units(const lhi_solver *r, int64_t ns);
/* Raises the lower bound to `units` (job-shop time) and records `by` as the
 * engine that proved it. */
void lhi_solver_raise_bound(lhi_solver *r, int64_t units, const char *by);
/* Returns the requested target, or the bound, which is often the optimum, in
 * units. */
int64_t lhi_solver_get_first_deadline(const lhi_solver *r);
/* Returns the smallest makespan, in job-shop units, that would be no
 * improvement: that of the incumbent or, if smaller, one above the caller's
 * target. */
int64_t lhi_solver_get_deadline_limit(const lhi_solver *r);
/* Takes ownership of a schedule, made by method `by`; makes it the incumbent if
 * it is valid and better, otherwise frees it. */
lh_status lhi_solver_enter_schedule(lhi_solver *r, lh_schedule *schedule,
                                    const char *by, lh_error *err);
/* Runs all scheduling methods, unless their engine (LHI_ENGINE_METHODS) is
 * disabled. */
lh_status lhi_solver_run_methods(lhi_solver *r, lh_error *err);
/* Offers a copy of the caller's initial schedule to the solver. */
lh_status lhi_solver_copy_start(lhi_solver *r, lh_error *err);
/* Offers orders found by engine `by` as a schedule; keeps message orders only
 * where FIFO is worse. */
lh_status lhi_solver_offer_orders(lhi_solver *r,
                                  const lhi_machine_orders *orders,
                                  lhi_engine by, lh_error *err);

/* --- bounds by trial deadlines: raise_bound.c */

/* Raises the lower bound by windows (time range of each operation) as far as
 * they refute deadlines; call again after lhi_windows_set_max_states(). */
lh_status lhi_solver_bound_by_windows(lhi_solver *r, lh_error *err);
/* Returns "lattice" or "windows": the engine to credit when windows (each
 * operation's time range) prove a deadline impossible; see
 * lhi_solver_raise_bound(). */
const char *lhi_windows_get_engine_name(const lhi_solver *r);
/* Raises the bound by shaving deadlines that windows leave open. */
lh_status lhi_solver_bound_by_shaving(lhi_solver *r, lh_error *err);

#endif
