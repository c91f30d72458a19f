/* SPDX-License-Identifier: Apache-2.0 */
/* Exports schedules for PyTorch. Other programs support only unsplit
 * weight-gradient passes. */
#include "interop/export/export_internal.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/export.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/simulate.h>

/* Builds a copy of the pipeline in which each overlapped pair (F and B of one
 * device as one pass) has a duration, as PyTorch runs it as one action.
 * LH_EUNSUPPORTED: a pass launches data-parallel operations, which pairs
 * exclude. */
static lh_status join_pairs(const lh_pipeline *pipeline, lh_pipeline **out,
                            lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(pipeline, &desc, err));
    if (desc.n_dp_ops)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "PyTorch runs an overlapped pair as one action, in "
                        "which no pass can launch data-parallel operations; "
                        "use the form compute_only, or another schedule");
    if (!(desc.overlap_f_b > 0))
        desc.overlap_f_b = 1;
    return lh_pipeline_make(&desc, out, err);
}

/* Checks whether the schedule has overlapped pairs (F and B of one device that
 * run as one pass). */
static bool has_pairs(const lh_schedule *schedule)
{
    for (uint32_t d = 0; d < lh_schedule_n_devices(schedule); d++) {
        uint32_t n;
        const lh_pass *order = lh_schedule_order(schedule, d, &n);
        for (uint32_t i = 0; i < n; i++)
            if (order[i].overlapped)
                return true;
    }
    return false;
}

/* Formats a simulated schedule's passes and communication actions (sends,
 * receives, waits, collectives) as CSV, in time order. The caller frees
 * *text. */
static lh_status format_with_comms(const lh_pipeline *pipeline,
                                   const lh_schedule *schedule, char **text,
                                   size_t *len, lh_error *err)
{
    lh_sim_options fifo = {.size = sizeof fifo, .fifo = true};
    lh_pipeline *joined = NULL;
    lh_timeline *timeline = NULL;
    lh_trace *trace = NULL;
    if (has_pairs(schedule))
        LHI_TRY(join_pairs(pipeline, &joined, err));
    const lh_pipeline *p = joined ? joined : pipeline;
    lh_status status = lh_simulate(p, schedule, &fifo, &timeline, err);
    if (status == LH_OK)
        status = lh_trace_make(p, timeline, NULL, &trace, err);
    if (status == LH_OK)
        status = lhi_export_pytorch_comms(trace, text, len, err);
    lh_trace_free(trace);
    lh_timeline_free(timeline);
    lh_pipeline_free(joined);
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
    if (lhi_pipeline_n_slices(pipeline) > 1)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "PyTorch's schedules do not support sliced sequences "
                        "(slices)");
    if (lhi_pipeline_is_bidirectional(pipeline))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "PyTorch's schedules do not support two directions "
                        "(placement bd); use dualpipev on placement wave");
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
                     : format_with_comms(pipeline, whole, text, len, err);
    if (status == LH_OK && cost_ns)
        *cost_ns = lh_timeline_makespan(after) - lh_timeline_makespan(before);
    lh_timeline_free(after);
    lh_timeline_free(before);
    lh_schedule_free(whole);
    return status;
}
