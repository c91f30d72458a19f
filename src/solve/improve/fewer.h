/* SPDX-License-Identifier: Apache-2.0 */
/* What pipelines of fewer microbatches tell of one: bounds, and schedules to
 * stretch (docs/theory/optimal.md, "Fewer microbatches"). */
#ifndef LHI_FEWER_H
#define LHI_FEWER_H

#include "solve/state/solver.h"

typedef struct lhi_rung {
    int64_t bound_ns; /* no schedule of so many microbatches is shorter */
    int64_t best_ns;  /* -1: none known */
    lh_schedule *best;
    int64_t *start; /* per operation of its shop; NULL: not known */
} lhi_rung;

struct lhi_fewer {
    uint32_t n;     /* of the whole pipeline */
    lhi_rung *rung; /* [microbatches], 0 .. n - 1 */
    uint64_t ticks; /* for each the next time */
};

/* *out is NULL where nothing can be learnt. Its schedules are not the arena's:
 * free it with lhi_fewer_free(). */
lh_status lhi_fewer_make(lhi_solver *r, lhi_fewer **out, lh_error *err);
void lhi_fewer_free(lhi_fewer *fewer);

/* Solves pipelines of fewer microbatches for a while, each from what is known
 * of smaller ones, and then raises r's bound and stretches what was found. */
lh_status lhi_fewer_climb(lhi_solver *r, lh_error *err);

/* Tails of the first forwards of r's shop. */
void lhi_fewer_tails(lhi_solver *r);
/* Offers the best known schedules of fewer microbatches with their middle
 * repeated. */
lh_status lhi_fewer_stretch(lhi_solver *r, uint64_t ticks, lh_error *err);

#endif
