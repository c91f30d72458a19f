/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout/choice.h"

#include <longhaul/simulate.h>
#include <string.h>

lhi_asked lhi_schedule_asked(const lh_job *job)
{
    const char *want = job->layout.schedule;
    if (!want)
        return LHI_ASKED_ANY;
    if (strcmp(want, LH_OPTIMAL) == 0)
        return LHI_ASKED_OPTIMAL;
    return lh_method_is_choice(want) ? LHI_ASKED_ANY : LHI_ASKED_METHOD;
}

lhi_config lhi_config_of(const lh_choice *choice)
{
    return (lhi_config){.layout = choice->layout,
                        .placement = choice->placement,
                        .recompute = choice->recompute,
                        .microbatches = choice->microbatches,
                        .layers = choice->chunk_layers,
                        .zero_given = true,
                        .zero = choice->zero};
}

void lhi_choice_clear(lh_choice *choice)
{
    choice->iteration_ns = choice->makespan_ns = -1;
    choice->tokens_per_s = choice->mfu = choice->bubble_ratio = 0;
    choice->peak_memory_bytes = choice->memory_limit_bytes = 0;
}

void lhi_choice_memory(lh_choice *choice, const lh_pipeline *pipeline,
                       const lh_timeline *timeline)
{
    int64_t least_room = INT64_MAX;
    for (uint32_t d = 0; d < lh_pipeline_n_devices(pipeline); d++) {
        int64_t limit = lh_pipeline_memory_limit(pipeline, d);
        int64_t peak = lh_timeline_peak_memory(timeline, d);
        if (limit - peak < least_room) {
            least_room = limit - peak;
            choice->peak_memory_bytes = peak;
            choice->memory_limit_bytes = limit;
        }
    }
}

bool lhi_layout_refused(lh_status status)
{
    return status == LH_EUNSUPPORTED || status == LH_EINPUT ||
           status == LH_EINVAL;
}
