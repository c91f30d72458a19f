/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that make up lhi_sites_find() share. */
#ifndef LHI_SITES_OWN_H
#define LHI_SITES_OWN_H

#include "plan/layout/sites.h"

#include "cost/cost_links.h"
#include "spec/spec.h"

enum {
    LHI_MOST_PARTS = LHI_MAX_PARTS,
    LHI_MOST_EXHAUSTIVE = 5, /* datacenters whose groupings are all tried */
    LHI_SPLITS = 5,          /* ways to cut pipelines into parts */
};

/* A placement that is being made: groups one after the other, group g with the
 * parts from[g] .. from[g + 1] - 1. Replicas and stages may be 0: open. */
typedef struct lhi_draft {
    uint32_t n_groups, n_parts;
    uint32_t from[LHI_MOST_PARTS + 1];
    uint32_t replicas[LHI_MOST_PARTS];
    uint32_t site[LHI_MOST_PARTS], stages[LHI_MOST_PARTS];
    double ns; /* lhi_sites_rank() */
} lhi_draft;

/* The job and the degrees. */
typedef struct lhi_site_case {
    const lh_job *job;
    const lh_layout *layout;
    uint32_t group;             /* GPUs of a pipeline rank */
    uint32_t *units;            /* ranks that each datacenter has room for */
    double *speed;              /* of each datacenter's GPUs, FLOP/s */
    bool same_speed;            /* all of them */
    double flops, params;       /* of an iteration, and of the model */
    const uint32_t *symmetries; /* permutations that change nothing */
    uint32_t n_symmetries;      /* of job->n_datacenters numbers each */
    bool *alike;                /* [a * n + b]: may be swapped */
} lhi_site_case;

/* ---- sites_fit.c ---- */

/* Fills in what is open: as many replicas in each group as fit, as evenly as
 * they go, and stages in way `split` of LHI_SPLITS. False: they do not fit. */
bool lhi_sites_fit(const lhi_site_case *c, const lhi_draft *open,
                   uint32_t split, lhi_draft *out);

/* ---- sites_same.c ---- */

/* Fills in c->alike and c->symmetries, which lie in `mem`. */
lh_status lhi_sites_symmetries(lhi_site_case *c, lhi_arena *mem, lh_error *err);

/* Puts the groups in order of their first datacenter, so that equal placements
 * are equal drafts. */
void lhi_sites_sort(lhi_draft *d);
int lhi_sites_compare(const lhi_draft *a, const lhi_draft *b);

/* True if swapping two datacenters that are alike comes before `d`: then that
 * one is looked at in its place. */
bool lhi_sites_is_copy(const lhi_site_case *c, const lhi_draft *d);

/* The least of all drafts that come to the same. */
void lhi_sites_canonical(const lhi_site_case *c, const lhi_draft *d,
                         lhi_draft *out);

/* ---- sites_rank.c ---- */

/* Roughly how long an iteration takes, to try the best first. */
lh_status lhi_sites_rank(const lhi_site_case *c, lhi_busiest *known,
                         lhi_draft *d, lh_error *err);

/* Roughly what a pipeline of the degrees spends on going from a to b. */
lh_status lhi_sites_hop_ns(const lhi_site_case *c, uint32_t a, uint32_t b,
                           lhi_busiest *known, double *ns, lh_error *err);

/* ---- sites_many.c ---- */

/* Groupings of more datacenters than can all be tried: `take` is called with
 * each, replicas and stages open. */
lh_status lhi_sites_many(const lhi_site_case *c, lhi_arena *mem,
                         lh_status (*take)(void *context, const lhi_draft *d,
                                           lh_error *err),
                         void *context, lh_error *err);

#endif
