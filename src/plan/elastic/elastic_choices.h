/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans among a plan's choices. */
#ifndef LHI_ELASTIC_CHOICES_H
#define LHI_ELASTIC_CHOICES_H

#include "plan/elastic/elastic_layout.h"

enum { LHI_ELASTIC_WHY = 320, LHI_ELASTIC_ROWS = 14 };

typedef struct lhi_elastic_choices {
    uint32_t n_rows; /* 0: there is none; the first is the fastest */
    /* The caller's: the first is what PipeMesh's planner has on the degrees of
     * the fastest, which comes next. */
    bool published;
    lh_choice rows[LHI_ELASTIC_ROWS];
    lhi_elastic_result results[LHI_ELASTIC_ROWS]; /* empty where none fits,
                                                     and of other schedules */
    /* The caller's, asked with whether anything works yet; true: no more rows,
     * and none is searched to the end. */
    bool (*stopped)(void *context, bool works);
    void *context;
} lhi_elastic_choices;

/* What the job leaves open. */
lhi_elastic_freedom lhi_elastic_freedom_of(const lh_job *job);

/* What was found as a choice: times and memory. Rates (tokens, mfu) are left
 * 0. */
lh_status lhi_elastic_choice_of(const lhi_elastic_result *found,
                                lh_choice *choice, lh_error *err);

/* An elastic plan, what it takes without its parts, and what zero-bubble
 * schedules take on its degrees. Takes what `found` owns, on failure too. Rates
 * are left 0. `out` is zero but for `stopped`
 * and `published`; with that LH_EINFEASIBLE where that planner finds none.
 * Texts live in `mem`; release with lhi_elastic_choices_fini(), on failure
 * too. */
lh_status lhi_elastic_choices_make(const lh_job *job, lhi_elastic_result *found,
                                   lhi_arena *mem, lhi_elastic_choices *out,
                                   lh_error *err);

void lhi_elastic_choices_fini(lhi_elastic_choices *choices);

#endif
