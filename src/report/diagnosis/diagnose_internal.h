/* SPDX-License-Identifier: Apache-2.0 */
/* Shared diagnosis declarations. */
#ifndef LHI_REPORT_DIAGNOSIS_DIAGNOSE_INTERNAL_H
#define LHI_REPORT_DIAGNOSIS_DIAGNOSE_INTERNAL_H

#include "report/diagnosis/replay.h"
#include "report/diagnosis/typical_passes.h"

#include <longhaul/experimental/trace.h>

/* A recommendation's timeline source: a replay scenario for the recorded steps,
 * or one replica's simulated iteration. */
typedef struct lhi_remedy_source {
    lhi_scenario *scenario; /* NULL: `trace` is set */
    lh_trace *trace;
} lhi_remedy_source;

/* A diagnosis under construction with its memory. */
typedef struct lhi_diagnosis_state {
    lh_diagnosis out; /* first: the caller's pointer is to this */
    lhi_arena *arena; /* owns the result */
    lhi_arena *scratch;
    const lh_recording *recording;
    uint32_t threads;
    int64_t typical_ns[LHI_N_OPS];
    lhi_typical_passes passes;
    /* straggler search; NULL after the diagnosis */
    struct lhi_slow_search *slow_search;
    lhi_remedy_source *sources; /* one per recommendation */
} lhi_diagnosis_state;

/* Computes step time, ideal time, slowdowns and shares, and stores them in the
 * diagnosis. */
lh_status lhi_diagnosis_compute_slowdowns(lhi_diagnosis_state *d,
                                          lh_error *err);
/* Finds the stragglers (slow workers, stages and links), and stores them in
 * the diagnosis. */
lh_status lhi_diagnosis_find_slow_components(lhi_diagnosis_state *d,
                                             lh_error *err);
/* Finds recommendations, from the stragglers and from other schedules, and
 * stores them in the diagnosis. */
lh_status lhi_diagnosis_find_remedies(lhi_diagnosis_state *d, lh_error *err);
/* Builds a replay scenario in `arena` in which all operations take their
 * recorded times. Adds tables of replacement times by worker and kind, all 0,
 * for the caller to fill. */
lh_status lhi_scenario_make_replaceable(lhi_diagnosis_state *d,
                                        lhi_arena *arena, lhi_scenario *out,
                                        lh_error *err);
/* Builds a replay scenario in the diagnosis's arena in which straggler number
 * `straggler` (a slow worker, stage or link; LH_NONE: all) takes as long as its
 * peers. */
lh_status lhi_scenario_make_repaired(const lhi_diagnosis_state *d,
                                     uint32_t straggler, lhi_scenario *out,
                                     lh_error *err);
/* Computes the mean step time in ns under one replay scenario (which operations
 * keep their recorded times) into *out_ns. */
lh_status lhi_replay_mean_step(lhi_diagnosis_state *d,
                               const lhi_scenario *scenario, double *out_ns,
                               lh_error *err);

#endif
