/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines under the present host and layer assignment. */
#include "resilience/adapt/emulation_internal.h"

#include "resilience/event_timeline/timeline.h"
#include "resilience/placement/placement.h"
#include "resilience/placement/placement_internal.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <stdlib.h>
#include <string.h>

/* Copies `n` numbers into a new array *out, which the caller frees. Leaves *out
 * unchanged if `from` is NULL. */
static lh_status copy_numbers(const uint32_t *from, uint32_t n, uint32_t **out,
                              lh_error *err)
{
    if (!from)
        return LH_OK;
    if (!(*out = calloc(n, sizeof **out)))
        return lhi_fail_nomem(err);
    memcpy(*out, from, n * sizeof *from);
    return LH_OK;
}

lh_status lhi_emulation_add_assignment(lhi_emulation_run *p,
                                       const uint32_t *hosts,
                                       const uint32_t *numbers, lh_error *err)
{
    uint32_t states = lh_event_timeline_n_states(p->timeline);
    size_t n = (size_t)p->n_assignments + 1;
    lhi_emulation_assignment *more = realloc(p->assignments, n * sizeof *more);
    if (!more)
        return lhi_fail_nomem(err);
    p->assignments = more;
    lhi_emulation_assignment *spot = &more[p->n_assignments++];
    *spot = (lhi_emulation_assignment){
        .pipelines = calloc(states, sizeof *spot->pipelines),
        .samples = calloc(states, sizeof *spot->samples)};
    if (!spot->pipelines || !spot->samples)
        return lhi_fail_nomem(err);
    if (hosts)
        LHI_TRY(copy_numbers(hosts,
                             lhi_host_placement_n_hosts(p->timeline->placement),
                             &spot->hosts, err));
    return copy_numbers(numbers, p->timeline->base->n_chunks,
                        &spot->layer_counts, err);
}

void lhi_emulation_free_assignments(lhi_emulation_run *p)
{
    uint32_t states = lh_event_timeline_n_states(p->timeline);
    for (uint32_t i = 0; i < p->n_assignments; i++) {
        lhi_emulation_assignment *spot = &p->assignments[i];
        for (uint32_t s = 0; s < states; s++) {
            if (spot->pipelines)
                lh_pipeline_free(spot->pipelines[s]);
            if (spot->samples)
                lhi_jitter_sampler_free(spot->samples[s]);
        }
        free(spot->pipelines);
        free(spot->samples);
        free(spot->hosts);
        free(spot->layer_counts);
    }
    free(p->assignments);
}

lh_status lhi_emulation_require_pipeline(lhi_emulation_run *p, uint32_t i,
                                         uint32_t state, lh_error *err)
{
    lhi_emulation_assignment *spot = &p->assignments[i];
    if (!spot->pipelines[state])
        LHI_TRY(lh_event_timeline_pipeline_with_hosts(
            p->timeline, state, spot->hosts, &spot->pipelines[state], err));
    if (p->jitter && !spot->samples[state])
        return lhi_jitter_sampler_make(spot->pipelines[state], p->jitter,
                                       &spot->samples[state], err);
    return LH_OK;
}

lh_status lhi_emulation_assign_layers(const lhi_emulation_run *p, uint32_t spot,
                                      const lh_pipeline *pipeline,
                                      lh_pipeline **out, lh_error *err)
{
    const uint32_t *numbers = p->assignments[spot].layer_counts;
    if (!numbers)
        return lhi_pipeline_copy(pipeline, out, err);
    return lh_layers_pipeline(p->layers, pipeline, numbers, out, err);
}
