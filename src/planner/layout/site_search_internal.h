/* SPDX-License-Identifier: Apache-2.0 */
/* Internal placement-search interface, shared by the files behind
 * lhi_placement_search(). */
#ifndef LHI_PLANNER_LAYOUT_SITE_SEARCH_INTERNAL_H
#define LHI_PLANNER_LAYOUT_SITE_SEARCH_INTERNAL_H

#include "planner/layout/site_search.h"

#include "format/job/parse.h"
#include "model/paths.h"

enum {
    LHI_MOST_PARTS = LHI_MAX_PIPELINE_SEGMENTS,
    LHI_MOST_EXHAUSTIVE = 5, /* up to here, all groupings are tried */
    LHI_SPLITS = 5,          /* ways to split pipelines into parts */
};

/* A placement under construction: group g has the parts from[g] .. from[g + 1]
 * - 1. Replicas and stages may be 0: open. */
typedef struct lhi_placement_draft {
    uint32_t n_groups, n_parts;
    uint32_t from[LHI_MOST_PARTS + 1];
    uint32_t replicas[LHI_MOST_PARTS];
    uint32_t site[LHI_MOST_PARTS], stages[LHI_MOST_PARTS];
    double ns; /* estimate by lhi_placement_estimate() */
} lhi_placement_draft;

/* The job, the degrees and derived data. */
typedef struct lhi_placement_case {
    const lh_job *job;
    const lh_layout *layout;
    uint32_t group;             /* GPUs per pipeline rank */
    uint32_t *capacity;         /* capacity in ranks, per datacenter */
    double *speed;              /* per datacenter, all its GPUs, FLOP/s */
    bool same_speed;            /* the same in all datacenters */
    double flops, params;       /* per iteration; of the model */
    const uint32_t *symmetries; /* permutations that change nothing */
    /* permutations, job->n_datacenters numbers each */
    uint32_t n_symmetries;
    bool *interchangeable; /* [a * n + b]: interchangeable */
} lhi_placement_case;

/* ---- site_fill.c ---- */

/* Completes a draft placement: as many replicas per group as fit, as even as
 * possible, and stages by rule `split` (0 to LHI_SPLITS - 1, see
 * split_stages()). Returns false if they do not fit. */
bool lhi_placement_fill_draft(const lhi_placement_case *c,
                              const lhi_placement_draft *open, uint32_t split,
                              lhi_placement_draft *out);

/* ---- site_symmetry.c ---- */

/* Computes which datacenters are interchangeable (c->interchangeable) and, for
 * few datacenters, all renamings that change nothing (c->symmetries). Both are
 * in `mem`. */
lh_status lhi_placement_find_symmetries(lhi_placement_case *c, lhi_arena *mem,
                                        lh_error *err);

/* Sorts the groups of a draft placement by their first datacenter, so that
 * equal placements are equal drafts. */
void lhi_placement_sort_groups(lhi_placement_draft *d);
/* Compares two draft placements, for sorting: negative, 0 or positive. */
int lhi_placement_compare_drafts(const lhi_placement_draft *a,
                                 const lhi_placement_draft *b);

/* Checks whether swapping two interchangeable datacenters gives a draft
 * placement that sorts before `d`; then `d` need not be tried. */
bool lhi_placement_is_symmetric_copy(const lhi_placement_case *c,
                                     const lhi_placement_draft *d);

/* Computes the draft placement that sorts first among all with renamed
 * datacenters or reversed pipelines. */
void lhi_placement_make_canonical(const lhi_placement_case *c,
                                  const lhi_placement_draft *d,
                                  lhi_placement_draft *out);

/* Reverses the pipelines of a draft placement, which exchanges the datacenters
 * of embedding and head. Returns false if passes and messages would differ
 * otherwise, too, or if nothing differs. */
bool lhi_placement_reverse(const lhi_placement_case *c,
                           const lhi_placement_draft *d,
                           lhi_placement_draft *reversed);

/* ---- site_estimate.c ---- */

/* Estimates a placement's iteration time from work, links and rings, in d->ns;
 * only used to order and select placements. */
lh_status lhi_placement_estimate(const lhi_placement_case *c,
                                 lhi_ecmp_cache *known, lhi_placement_draft *d,
                                 lh_error *err);

/* Estimates the time in ns that an iteration's messages from datacenter `a` to
 * `b` and their gradients back need, for a pipeline with the degrees of `c`. */
lh_status lhi_placement_estimate_hop_ns(const lhi_placement_case *c, uint32_t a,
                                        uint32_t b, lhi_ecmp_cache *known,
                                        double *ns, lh_error *err);

/* ---- site_heuristics.c ---- */

/* Generates groups of datacenters if there are too many to try all: calls
 * `take` with each draft placement, whose replicas and stages are open. */
lh_status lhi_placement_generate_heuristic(
    const lhi_placement_case *c, lhi_arena *mem,
    lh_status (*take)(void *context, const lhi_placement_draft *d,
                      lh_error *err),
    void *context, lh_error *err);

#endif
