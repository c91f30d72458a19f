/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans among a plan's choices. */
#ifndef LHI_PLANNER_ELASTIC_CHOICES_H
#define LHI_PLANNER_ELASTIC_CHOICES_H

#include "planner/elastic/layout_search.h"

/* Capacity for a reason, in bytes; maximum row count for elastic schedules. */
enum { LHI_ELASTIC_WHY = 320, LHI_ELASTIC_ROWS = 14 };

/* Rows of a plan's table for elastic schedules. */
typedef struct lhi_elastic_choices {
    uint32_t n_rows; /* 0: none; the first is the fastest */
    /* Set by the caller: row 0 is PipeMesh's plan on the degrees of the
     * fastest, which follows it. */
    bool published;
    lh_choice rows[LHI_ELASTIC_ROWS];
    /* empty for rows that do not fit and for other schedules */
    lhi_elastic_result results[LHI_ELASTIC_ROWS];
    /* Set by the caller; called with whether anything works yet. True: adds no
     * more rows and ends all searches. */
    bool (*stopped)(void *context, bool works);
    void *context;
} lhi_elastic_choices;

/* Returns the options for a search of elastic plans: which sharding modes,
 * recomputation, chunk counts and layer partitions the job leaves open. */
lhi_elastic_options lhi_elastic_options_from_job(const lh_job *job);

/* Converts an elastic-plan search result to a plan candidate (lh_choice) with
 * times and memory. Throughput (tokens, mfu) is left 0. */
lh_status lhi_elastic_choice_of(const lhi_elastic_result *found,
                                lh_choice *choice, lh_error *err);

/* Builds the table for elastic plan `found`: the plan, its variants without one
 * feature each, and zero-bubble schedules on its degrees. Takes over `found`,
 * also on failure. Throughput is left 0. `out` must be zero except for
 * `stopped` and `published`; with `published`, LH_EINFEASIBLE means that the
 * published planner finds no plan. Texts are in `mem`; release with
 * lhi_elastic_choices_fini(), also on failure. */
lh_status lhi_elastic_choices_make(const lh_job *job, lhi_elastic_result *found,
                                   lhi_arena *mem, lhi_elastic_choices *out,
                                   lh_error *err);

/* Frees the pipelines and schedules of all table rows. */
void lhi_elastic_choices_fini(lhi_elastic_choices *choices);

#endif
