/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds, and schedules to extend, from pipelines with fewer microbatches
 * (docs/theory/optimal.md, "Reduction to fewer microbatches"). */
#ifndef LHI_SCHEDULE_SOLVER_IMPROVE_REDUCTION_H
#define LHI_SCHEDULE_SOLVER_IMPROVE_REDUCTION_H

#include "schedule/solver/state/solver.h"

/* Results for one reduced number of microbatches. */
typedef struct lhi_reduced_problem {
    int64_t bound_ns; /* lower bound on the makespan */
    int64_t best_ns;  /* -1: none known */
    lh_schedule *best;
    int64_t *start; /* per operation of its job shop; NULL: unknown */
} lhi_reduced_problem;

/* The reduction's results and limits. */
struct lhi_reduction {
    uint32_t n;                    /* microbatches in the full pipeline */
    lhi_reduced_problem *problems; /* [microbatches], 0 .. n - 1 */
    uint64_t ticks;                /* limit per problem in the next round */
};

/* Creates the state for solving the pipeline with fewer microbatches (reduced
 * problems); *out is NULL if that does not help: several chunks per device, few
 * microbatches, FIFO links, or other restrictions. Release with
 * lhi_reduction_free(), because its schedules are not in the arena. */
lh_status lhi_reduction_make(lhi_solver *r, lhi_reduction **out, lh_error *err);
/* Frees the reduced problems' schedules; NULL is allowed. */
void lhi_reduction_free(lhi_reduction *fewer);

/* Solves the pipeline with fewer microbatches for a while, in increasing size,
 * each problem starting from smaller ones. Then raises the solver's lower bound
 * and extends the schedules found. */
lh_status lhi_reduction_solve(lhi_solver *r, lh_error *err);

/* Raises the tails (time that must follow) of chunk 0's forwards in the
 * solver's job shop to the reduced problems' lower bounds. */
void lhi_reduction_raise_tails(lhi_solver *r);
/* Offers schedules to the solver that extend the best known ones with fewer
 * microbatches by repeating their steady state, for `ticks` of work. */
lh_status lhi_reduction_extend_schedules(lhi_solver *r, uint64_t ticks,
                                         lh_error *err);

#endif
