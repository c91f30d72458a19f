/* SPDX-License-Identifier: Apache-2.0 */
/* Shared diagnosis declarations. */
#ifndef LHI_DIAGNOSE_OWN_H
#define LHI_DIAGNOSE_OWN_H

#include "diagnose/play_again.h"
#include "diagnose/usual_passes.h"

#include <longhaul/trace.h>

/* A recommendation's timeline source: a replay scenario for the recorded steps,
 * or one replica's simulated iteration. */
typedef struct lhi_help_source {
    lhi_scenario *scenario; /* NULL: `trace` is set */
    lh_trace *trace;
} lhi_help_source;

/* A diagnosis under construction with its memory. */
typedef struct lhi_diagnosing {
    lh_diagnosis out; /* first: the caller's pointer is to this */
    lhi_arena *arena; /* owns the result */
    lhi_arena *scratch;
    const lh_recording *recording;
    uint32_t threads;
    int64_t usual_ns[LHI_N_OPS];
    lhi_usual_passes passes;
    /* straggler search; NULL after the diagnosis */
    struct lhi_looking *looking;
    lhi_help_source *sources;    /* one per recommendation */
} lhi_diagnosing;

/* Fills in out's t, ideal, slowdowns and shares. */
lh_status lhi_diagnose_measures(lhi_diagnosing *d, lh_error *err);
/* Fills in out's slow_components. */
lh_status lhi_find_slow_things(lhi_diagnosing *d, lh_error *err);
/* Fills in out's remedies from the stragglers and from other schedules. */
lh_status lhi_find_helps(lhi_diagnosing *d, lh_error *err);
/* Builds a scenario in `arena` in which all operations keep their recorded
 * times, with an empty table for replacement times. */
lh_status lhi_scenario_instead(lhi_diagnosing *d, lhi_arena *arena,
                               lhi_scenario *out, lh_error *err);
/* Builds a scenario in the diagnosis's arena in which straggler number `thing`
 * (LH_NONE: all) takes as long as its peers. */
lh_status lhi_scenario_mended(const lhi_diagnosing *d, uint32_t thing,
                              lhi_scenario *out, lh_error *err);
/* Computes the mean step time under one scenario. */
lh_status lhi_play_mean(lhi_diagnosing *d, const lhi_scenario *scenario,
                        double *out_ns, lh_error *err);

#endif
