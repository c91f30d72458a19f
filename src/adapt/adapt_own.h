/* SPDX-License-Identifier: Apache-2.0 */
/* lh_adapt internals.
 *
 * Input: the estimated pipeline and the active events. Output: whether to
 * switch to another schedule (longhaul/adapt.h).
 *
 * - persistent_changes.c: expected remaining duration of slowdowns
 * - candidates.c: candidate schedules and their iteration times
 * - reduction_order.c: bitwise reproducibility of a candidate's training
 * - decision.c: benefit of a switch against its cost, with the reason as text
 * - adapt.c: the public functions */
#ifndef LHI_ADAPT_OWN_H
#define LHI_ADAPT_OWN_H

#include "base/fail.h"

#include <longhaul/adapt.h>

/* --- persistent changes --------------------------------------------------- */

enum { LHI_PAST = 16 };

/* A slowdown of a link, of a device's passes or of its data loading; the last
 * slot is the state without any slowdown. */
typedef struct lhi_lasting {
    bool is_on, is_seen; /* is_observed: in the current call */
    uint64_t since;
    /* Past durations in iterations: a ring buffer. */
    uint64_t n_past, past[LHI_PAST];
} lhi_lasting;

/* Estimates for how many more iterations the current state of `n` changes stays
 * the same, given that `step` is the last step observed. The last slot is the
 * state without any slowdown. UINT64_MAX if no change is active. */
uint64_t lhi_lasting_left(const lhi_lasting *things, uint32_t n, uint64_t step);
/* Ends a change: `step` is the first step without it. */
void lhi_lasting_end(lhi_lasting *thing, uint64_t step);

/* --- candidates ----------------------------------------------------------- */

/* Best candidate of a search with its predicted iteration times. */
typedef struct lhi_found {
    lh_schedule *schedule; /* NULL if no candidate beats the running one */
    const char *name;
    lh_data_path path;
    const bool *links; /* for the mixed path; owned by the lh_adapt */
    int64_t now_ns, predicted_ns, bound_ns;
    int64_t loss_ns; /* extra time per iteration without slowdowns */
    uint64_t effort;
} lhi_found;

/* Evaluates all candidates on the current pipeline over all available data
 * paths. *out owns its schedule. */
lh_status lhi_find_better(lh_adapt *adapt, const lh_adapt_now *now,
                          lhi_found *out, lh_error *err);

/* --- reduction order ------------------------------------------------------ */

/* Builds the order in which each chunk accumulates its microbatches' gradients.
 * The caller frees *out with free(). */
lh_status lhi_sum_order_make(const lh_pipeline *p, const lh_schedule *schedule,
                        uint32_t **out, lh_error *err);
/* Checks whether a schedule accumulates gradients in the order `sums`. */
lh_status lhi_sum_order_agrees(const lh_pipeline *p, const uint32_t *sums,
                         const lh_schedule *schedule, bool *agree,
                         lh_error *err);

/* --- state ---------------------------------------------------------------- */

enum { LHI_WHY_TEXT = 400 };

/* Decision maker state: the running schedule, active changes and the last
 * search. */
struct lh_adapt {
    lh_pipeline *pipeline; /* without slowdowns: its shape and names */
    lh_schedule *original, *running;
    const char *running_name;
    lh_sim_options sim; /* for the initial data path */
    bool *began_links;  /* delegated links in `sim` */
    bool may_delegate, staging_counts;
    lh_delegation delegation;
    int64_t *staging; /* in `delegation`; NULL: all links equal */
    lh_data_path path;
    bool *running_links, *slow_links; /* per link: delegated */
    uint64_t effort;
    int64_t switch_ns;
    uint32_t least_steps;
    double at_once, least_gain;
    uint32_t candidates; /* bit i: lh_adapt_candidate(i) */
    uint32_t *sums;      /* the initial schedule's; NULL: any order */

    uint64_t step; /* last step seen; UINT64_MAX: none yet */
    /* Slots in this order: links, devices, devices' data loading, no slowdown.
     */
    uint32_t n_things;
    lhi_lasting *things;
    bool is_open;         /* a proposed switch is unanswered */
    bool was_refused;     /* the last proposal, with no change since */
    bool has_switched;    /* at least one switch was followed */
    uint64_t switched_at; /* last switch's step */
    uint64_t changed_at;  /* step at which the last change was reported */
    bool needs_search;    /* a change since the last search */
    bool settled;         /* searched again `min_interval_steps` after it */
    int64_t usual_ns;     /* running schedule's time when last chosen */
    lhi_found found;      /* last search result */
    lh_decision decision;
    char why[LHI_WHY_TEXT];
};

/* Fills in adapt->decision from adapt->candidate, which has to be up to date.
 * `is_new`: this call's search found it, so its effort counts now. */
void lhi_weigh(lh_adapt *adapt, const lh_adapt_now *now, bool is_new);

#endif
