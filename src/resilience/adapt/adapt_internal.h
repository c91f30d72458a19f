/* SPDX-License-Identifier: Apache-2.0 */
/* lh_adapt internals.
 *
 * Input: the estimated pipeline and the active events. Output: whether to
 * switch to another schedule (longhaul/experimental/adapt.h).
 *
 * - persistent_changes.c: expected remaining duration of slowdowns
 * - candidates.c: candidate schedules and their iteration times
 * - reduction_order.c: bitwise reproducibility of a candidate's training
 * - decision.c: benefit of a switch against its cost, with the reason as text
 * - adapt.c: the public functions */
#ifndef LHI_RESILIENCE_ADAPT_ADAPT_INTERNAL_H
#define LHI_RESILIENCE_ADAPT_ADAPT_INTERNAL_H

#include "base/fail.h"

#include <longhaul/experimental/adapt.h>

/* --- persistent changes --------------------------------------------------- */

enum { LHI_MAX_PAST_DURATIONS = 16 };

/* A slowdown of a link, of a device's passes or of its data loading; the last
 * slot is the state without any slowdown. */
typedef struct lhi_persistent_change {
    bool is_active, is_observed; /* is_observed: in the current call */
    uint64_t since_step;
    /* Past durations in iterations: a ring buffer. */
    uint64_t n_ended, past_steps[LHI_MAX_PAST_DURATIONS];
} lhi_persistent_change;

/* Estimates for how many more iterations the current combination of `n`
 * changes lasts; `step` is the last observed step. The last entry of `changes`
 * stands for the absence of slowdowns. Returns UINT64_MAX if no change is
 * active. */
uint64_t
lhi_persistent_change_estimate_remaining(const lhi_persistent_change *changes,
                                         uint32_t n, uint64_t step);
/* Ends an active slowdown at `step`, the first step without it, and stores its
 * duration, in iterations, among the link's or device's past durations. */
void lhi_persistent_change_end(lhi_persistent_change *change, uint64_t step);

/* --- candidates ----------------------------------------------------------- */

/* Best candidate of a search with its predicted iteration times. */
typedef struct lhi_adapt_candidate_result {
    lh_schedule *schedule; /* NULL if no candidate beats the running one */
    const char *name;
    lh_data_path path;
    const bool *links; /* for the mixed path; owned by the lh_adapt */
    int64_t current_ns, predicted_ns, bound_ns;
    int64_t loss_after_ns; /* extra time per iteration without slowdowns */
    uint64_t effort;
} lhi_adapt_candidate_result;

/* Evaluates all schedule candidates on the pipeline measured in `now`, over all
 * available data paths. *out is the fastest one and owns its schedule. */
lh_status lhi_adapt_find_candidate(lh_adapt *adapt, const lh_adapt_input *now,
                                   lhi_adapt_candidate_result *out,
                                   lh_error *err);

/* --- reduction order ------------------------------------------------------ */

/* Builds the order in which each chunk adds its microbatches' gradients:
 * *out[chunk * n_microbatches + i] is the chunk's i-th microbatch. The caller
 * frees *out with free(). */
lh_status lhi_reduction_order_build(const lh_pipeline *p,
                                    const lh_schedule *schedule, uint32_t **out,
                                    lh_error *err);
/* Sets *agree to whether `schedule` adds every chunk's gradients in the order
 * `sums` from lhi_reduction_order_build(), so that results are bitwise equal.
 * */
lh_status lhi_reduction_order_matches(const lh_pipeline *p,
                                      const uint32_t *sums,
                                      const lh_schedule *schedule, bool *agree,
                                      lh_error *err);

/* --- state ---------------------------------------------------------------- */

enum { LHI_ADAPT_REASON_SIZE = 400 };

/* Decision maker state: the running schedule, active changes and the last
 * search. */
struct lh_adapt {
    lh_pipeline *pipeline; /* without slowdowns: its shape and names */
    lh_schedule *original, *running;
    const char *running_name;
    lh_sim_options sim;  /* for the initial data path */
    bool *initial_links; /* delegated links in `sim` */
    bool may_delegate, has_staging_time;
    lh_delegation delegation;
    int64_t *link_staging_ns; /* in `delegation`; NULL: all links equal */
    lh_data_path path;
    bool *running_links, *slow_links; /* per link: delegated */
    uint64_t effort;
    int64_t switch_ns;
    uint32_t min_interval_steps;
    double urgent_slowdown, min_gain;
    uint32_t candidates;       /* bit i: lh_adapt_candidate(i) */
    uint32_t *reduction_order; /* the initial schedule's; NULL: any order */

    uint64_t step; /* last step seen; UINT64_MAX: none yet */
    /* Slots in this order: links, devices, devices' data loading, no slowdown.
     */
    uint32_t n_changes;
    lhi_persistent_change *changes;
    bool is_pending;        /* a proposed switch is unanswered */
    bool was_refused;       /* the last proposal, with no change since */
    bool has_switched;      /* at least one switch was followed */
    uint64_t switched_step; /* last switch's step */
    uint64_t changed_step;  /* step at which the last change was reported */
    bool needs_search;      /* a change since the last search */
    bool is_final_search;   /* searched again `min_interval_steps` after it */
    int64_t baseline_ns;    /* running schedule's time when last chosen */
    lhi_adapt_candidate_result candidate; /* last search result */
    lh_decision decision;
    char why[LHI_ADAPT_REASON_SIZE];
};

/* Fills in adapt->decision (switch or not, with reason) from adapt->candidate,
 * the best schedule for the measured conditions `now`. `is_new`: the candidate
 * was searched in this call, so that its effort counts. */
void lhi_adapt_decide_switch(lh_adapt *adapt, const lh_adapt_input *now,
                             bool is_new);

#endif
