/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/diagnose_internal.h"

#include "base/options.h"

#include <stdlib.h>
#include <string.h>

/* Copies the recording's numbers of stages, replicas, chunks and microbatches
 * into the diagnosis, with the replicas' numbers in the recording. */
static lh_status fill_header(lhi_diagnosis_state *d, lh_error *err)
{
    const lh_recording *r = d->recording;
    const lhi_op_graph *g = r->steps[0].graph;
    uint32_t *numbers = LHI_NEW(d->arena, uint32_t, r->n_replicas);
    if (!numbers)
        return lhi_fail_nomem(err);
    memcpy(numbers, g->replicas, r->n_replicas * sizeof *numbers);
    d->out.replicas = numbers;
    d->out.n_stages = r->n_stages;
    d->out.n_replicas = r->n_replicas;
    d->out.n_chunks = g->n_chunks;
    d->out.n_microbatches = g->n_microbatches;
    return LH_OK;
}

/* Computes all diagnosis parts in order: slowdowns, typical times, stragglers,
 * remedies, defects. Without steps there are only activities. */
static lh_status diagnose(lhi_diagnosis_state *d, lh_error *err)
{
    const lh_recording *r = d->recording;
    LHI_TRY(lhi_rank_activities_compare(r->activities, r->n_activities,
                                        d->arena, &d->out.ranks, err));
    d->out.n_ranks = r->n_activities;
    if (r->n_steps == 0) {
        d->out.unreplayed = lhi_arena_strdup(d->arena, r->unreplayed.text);
        if (!d->out.unreplayed)
            return lhi_fail_nomem(err);
        return lhi_defects_list(&r->remarks, d->arena, &d->out.defects,
                                &d->out.n_defects, err);
    }
    LHI_TRY(fill_header(d, err));
    LHI_TRY(lhi_diagnosis_compute_slowdowns(d, err));
    LHI_TRY(
        lhi_typical_passes_compute(d->recording, d->scratch, &d->passes, err));
    LHI_TRY(lhi_diagnosis_find_slow_components(d, err));
    LHI_TRY(lhi_diagnosis_find_remedies(d, err));
    return lhi_defects_list(&d->recording->remarks, d->arena, &d->out.defects,
                            &d->out.n_defects, err);
}

lh_status lh_diagnose(const lh_recording *recording,
                      const lh_diagnose_options *options, lh_diagnosis **out,
                      lh_error *err)
{
    lh_diagnose_options with;
    LHI_TRY(LHI_OPTIONS_COPY(lh_diagnose_options, &with, options, err));
    lhi_diagnosis_state *d = calloc(1, sizeof *d);
    if (!d)
        return lhi_fail_nomem(err);
    d->recording = recording;
    d->threads = with.threads;
    d->arena = lhi_arena_make(0);
    d->scratch = lhi_arena_make(0);
    lh_status status =
        d->arena && d->scratch ? diagnose(d, err) : lhi_fail_nomem(err);
    lhi_arena_free(d->scratch);
    d->scratch = NULL;
    d->slow_search = NULL;
    if (status != LH_OK) {
        lh_diagnosis_free(&d->out);
        return status;
    }
    *out = &d->out;
    return LH_OK;
}

void lh_diagnosis_free(lh_diagnosis *diagnosis)
{
    lhi_diagnosis_state *d = (lhi_diagnosis_state *)diagnosis;
    if (!d)
        return;
    for (uint32_t i = 0; d->sources && i < d->out.n_remedies; i++)
        lh_trace_free(d->sources[i].trace);
    lhi_arena_free(d->arena);
    free(d);
}
