/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_adapt.
 *
 * In: a pipeline as it is estimated, and events that go on. Out: whether to go
 * on with another schedule (longhaul/adapt.h).
 * lasting.c: how long things are expected to stay as they are.
 * candidates.c: schedules that may be better, and what they take.
 * same_sums.c: which of them train to the same bits.
 * weigh.c: whether the best of them is worth a switch, and why, in words.
 * adapt.c: the calls. */
#ifndef LHI_ADAPT_OWN_H
#define LHI_ADAPT_OWN_H

#include "base/fail.h"

#include <longhaul/adapt.h>

/* --- lasting -------------------------------------------------------------- */

enum { LHI_PAST = 16 };

/* A link, a device's passes, its data; or that nothing is slow. */
typedef struct lhi_lasting {
    bool is_on, is_seen; /* seen: in the present call */
    uint64_t since;
    /* How long those were that are over; of many the last. */
    uint64_t n_past, past[LHI_PAST];
} lhi_lasting;

/* For how many iterations more what goes on of `n` things is expected to stay
 * as it is, after `step` was the last that had it. The last of them is that
 * nothing is slow. */
uint64_t lhi_lasting_left(const lhi_lasting *things, uint32_t n, uint64_t step);
/* It is over: `step` is the first that has it not. */
void lhi_lasting_end(lhi_lasting *thing, uint64_t step);

/* --- candidates ----------------------------------------------------------- */

typedef struct lhi_found {
    lh_schedule *schedule; /* NULL: none is better than what runs */
    const char *name;
    lh_data_path path;
    const bool *links; /* mixed: of the adapt */
    int64_t now_ns, predicted_ns, bound_ns;
    int64_t loss_ns; /* of an iteration, once nothing is slow any more */
    uint64_t effort;
} lhi_found;

/* Tries all candidates on the pipeline as it is now, on all paths that there
 * are. *out owns its schedule. */
lh_status lhi_find_better(lh_adapt *adapt, const lh_adapt_now *now,
                          lhi_found *out, lh_error *err);

/* --- same sums ------------------------------------------------------------ */

/* The order in which each chunk's gradients are added; to be freed. */
lh_status lhi_sum_order_make(const lh_pipeline *p, const lh_schedule *schedule,
                        uint32_t **out, lh_error *err);
/* Whether a schedule's is that. */
lh_status lhi_sum_order_agrees(const lh_pipeline *p, const uint32_t *sums,
                         const lh_schedule *schedule, bool *agree,
                         lh_error *err);

/* --- all of it ------------------------------------------------------------ */

enum { LHI_WHY_TEXT = 400 };

struct lh_adapt {
    lh_pipeline *pipeline; /* for its shape and names */
    lh_schedule *original, *running;
    const char *running_name;
    lh_sim_options sim; /* on the path that the run began with */
    bool *began_links;  /* of it */
    bool may_delegate, staging_counts;
    lh_delegation delegation;
    int64_t *staging; /* of it; NULL: all alike */
    lh_data_path path;
    bool *running_links, *slow_links; /* per link: delegated */
    uint64_t effort;
    int64_t switch_ns;
    uint32_t least_steps;
    double at_once, least_gain;
    uint32_t candidates; /* bit i: lh_adapt_candidate(i) */
    uint32_t *sums;      /* of what the run began with; NULL: any will do */

    uint64_t step; /* of the last call; UINT64_MAX: there was none */
    /* Links, devices, devices' data; then that nothing is slow. */
    uint32_t n_things;
    lhi_lasting *things;
    bool is_open;         /* a switch was proposed and not answered */
    bool was_refused;     /* the last one, and nothing has changed since */
    bool has_switched;    /* once */
    uint64_t switched_at; /* then */
    uint64_t changed_at;  /* something, as far as was noticed */
    bool needs_search;    /* for candidates: something has changed since */
    bool settled;         /* it was searched some time after that */
    int64_t usual_ns;     /* what runs, as it was when it was chosen */
    lhi_found found;      /* by the last search */
    lh_decision decision;
    char why[LHI_WHY_TEXT];
};

/* Fills in adapt->decision, once adapt->found holds for now; `is_new`: it was
 * found for it. */
void lhi_weigh(lh_adapt *adapt, const lh_adapt_now *now, bool is_new);

#endif
