/* SPDX-License-Identifier: Apache-2.0 */
/* One layout in the search: its bound, and what schedules make of it. */
#ifndef LHI_CANDIDATE_H
#define LHI_CANDIDATE_H

#include "plan/elastic_choices.h"
#include "plan/layout.h"

typedef struct lhi_candidate {
    lhi_config config;
    int64_t bound_ns;    /* of an iteration; INT64_MAX: does not fit */
    int64_t missing;     /* bytes, where it does not fit */
    uint32_t missing_on; /* device */
    bool simulated;
    lh_choice choice; /* best method, once simulated */
    char bound_text[160];
} lhi_candidate;

typedef struct lhi_search {
    const lh_job *job;
    lh_plan_options options;
    lhi_arena *mem; /* the plan's */
    lhi_candidate *candidates;
    uint32_t n;
    uint32_t n_memory, n_simulated, n_unsupported, n_dropped;
    lh_error first_refusal; /* why the first layout did not work */
    lhi_elastic_choices elastic;
} lhi_search;

/* A bound that no schedule of the layout beats, or that it does not fit or
 * work at all. */
lh_status lhi_candidate_bound(lhi_search *s, lhi_candidate *c, lh_error *err);

/* What is known of a layout before any method has run. */
lh_choice lhi_candidate_choice(const lhi_candidate *c, const char *method);
/* Tokens per second and utilisation of a time. */
void lhi_search_rates(const lhi_search *s, lh_choice *choice);

/* Tries every method; the best is left in c->choice, its schedule in *best
 * (NULL: none works). `all`, if not NULL, takes every method's result. */
lh_status lhi_candidate_methods(lhi_search *s, lhi_candidate *c,
                                const lhi_built *built, lh_schedule **best,
                                lh_choice *all, uint32_t *n_all, lh_error *err);
/* The same from the layout on, and counted. */
lh_status lhi_candidate_simulate(lhi_search *s, lhi_candidate *c,
                                 lh_error *err);

/* The fastest simulated; NULL: none works. */
lhi_candidate *lhi_search_best(const lhi_search *s);

/* What the search comes to, or why nothing works: LH_EINFEASIBLE. */
lh_status lhi_search_finish(lhi_search *s, lh_plan *plan, lh_error *err);

#endif
