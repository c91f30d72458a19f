/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that make a diagnosis share. */
#ifndef LHI_DIAGNOSE_OWN_H
#define LHI_DIAGNOSE_OWN_H

#include "diagnose/play_again.h"
#include "diagnose/usual_passes.h"

#include <longhaul/trace.h>

/* What a help is played by: a scenario of the recorded steps, or the iteration
 * of one replica that was simulated. */
typedef struct lhi_help_source {
    lhi_scenario *scenario; /* NULL: there is the trace */
    lh_trace *trace;
} lhi_help_source;

/* A diagnosis and what it is in. */
typedef struct lhi_diagnosing {
    lh_diagnosis out; /* first: what the caller has points to it */
    lhi_arena *arena; /* of the result */
    lhi_arena *scratch;
    const lh_recording *recording;
    uint32_t threads;
    int64_t usual_ns[LHI_N_OPS];
    lhi_usual_passes passes;
    struct lhi_looking *looking; /* what is slow, while it is diagnosed */
    lhi_help_source *sources;    /* of each help */
} lhi_diagnosing;

/* Into out: t, ideal, slowdowns and shares. */
lh_status lhi_diagnose_measures(lhi_diagnosing *d, lh_error *err);
/* Into out: slow_things; and then, of these and of schedules, helps. */
lh_status lhi_find_slow_things(lhi_diagnosing *d, lh_error *err);
lh_status lhi_find_helps(lhi_diagnosing *d, lh_error *err);
/* In the arena a scenario in which all have their own times, with a table for
 * others. */
lh_status lhi_scenario_instead(lhi_diagnosing *d, lhi_arena *arena,
                               lhi_scenario *out, lh_error *err);
/* In the diagnosis's arena one in which one of slow_things, LH_NONE: each of
 * them, takes as long as others. */
lh_status lhi_scenario_mended(const lhi_diagnosing *d, uint32_t thing,
                              lhi_scenario *out, lh_error *err);
/* Mean of a step under one scenario. */
lh_status lhi_play_mean(lhi_diagnosing *d, const lhi_scenario *scenario,
                        double *out_ns, lh_error *err);

#endif
