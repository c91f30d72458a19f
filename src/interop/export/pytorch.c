/* SPDX-License-Identifier: Apache-2.0 */
/* Exports schedules for PyTorch. Other programs support only unsplit
 * weight-gradient passes. */
#include "interop/export/export_internal.h"

#include <longhaul/experimental/export.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/simulate.h>

/* Formats the passes and communication actions of a simulated timeline as CSV,
 * in its order. The caller frees *text. */
static lh_status format_with_comms(const lh_pipeline *pipeline,
                                   const lh_timeline *timeline, char **text,
                                   size_t *len, lh_error *err)
{
    lh_trace *trace = NULL;
    LHI_TRY(lh_trace_make(pipeline, timeline, NULL, &trace, err));
    lh_status status = lhi_export_pytorch_comms(trace, text, len, err);
    lh_trace_free(trace);
    return status;
}

lh_status lh_export_pytorch(const lh_pipeline *pipeline,
                            const lh_schedule *schedule, lh_pytorch_form form,
                            char **text, size_t *len, int64_t *cost_ns,
                            lh_error *err)
{
    lh_schedule *whole = NULL;
    lh_timeline *before = NULL, *after = NULL;
    if (!lh_pytorch_form_name(form))
        return lhi_fail(err, LH_EINVAL, "unknown schedule form %d", (int)form);
    if (lh_pipeline_offloads(pipeline))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "PyTorch's schedules do not support activation "
                        "offloading; plan without training.offload");
    lh_status status = lh_schedule_merge_parts(pipeline, schedule, &whole, err);
    if (status == LH_OK)
        status = lh_simulate(pipeline, schedule, NULL, &before, err);
    /* Message priorities cannot be expressed either. */
    lh_sim_options fifo = {.size = sizeof fifo, .fifo = true};
    if (status == LH_OK)
        status = lh_simulate(pipeline, whole, &fifo, &after, err);
    if (status == LH_OK)
        status = form == LH_PYTORCH_COMPUTE_ONLY
                     ? lh_schedule_format(whole, text, len, err)
                     : format_with_comms(pipeline, after, text, len, err);
    if (status == LH_OK && cost_ns)
        *cost_ns = lh_timeline_makespan(after) - lh_timeline_makespan(before);
    lh_timeline_free(after);
    lh_timeline_free(before);
    lh_schedule_free(whole);
    return status;
}
