/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the simulator and reads the resulting timeline. */
#include "schedule/simulator/timeline.h"

#include "base/options.h"

lh_status lhi_sim_options(const lh_pipeline *pipeline,
                          const lh_sim_options *options, lh_sim_options *out,
                          lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_sim_options, out, options, err));
    if (out->receives > LH_RECEIVES_LATE_FD)
        return lhi_fail(err, LH_EINVAL, "lh_sim_options.receives is %d",
                        (int)out->receives);
    if (out->host_copy_ns < 0 || out->host_copy_ns > INT64_C(1) << 52)
        return lhi_fail(err, LH_EINVAL,
                        "lh_sim_options.host_copy_ns is negative or above 2^52 "
                        "ns (52 days)");
    if (!out->override_receives && out->receives == LH_RECEIVES_EARLY)
        out->receives = pipeline->receives;
    out->override_receives = true;
    return LH_OK;
}

lh_status lhi_simulate_with_network(const lh_pipeline *pipeline,
                                    const lh_schedule *schedule,
                                    const lh_sim_options *options,
                                    const lhi_sim_network *network,
                                    lh_timeline **out, lh_error *err)
{
    lh_sim_options checked;
    LHI_TRY(lhi_sim_options(pipeline, options, &checked, err));
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_event_engine_run(pipeline, schedule, &checked,
                                            network, NULL, mem, out, err);
    if (status != LH_OK)
        lhi_arena_free(mem);
    return status;
}

lh_status lh_simulate(const lh_pipeline *pipeline, const lh_schedule *schedule,
                      const lh_sim_options *options, lh_timeline **out,
                      lh_error *err)
{
    return lhi_simulate_with_network(pipeline, schedule, options, NULL, out,
                                     err);
}

void lh_timeline_free(lh_timeline *timeline)
{
    if (timeline)
        lhi_arena_free(timeline->mem);
}

int64_t lh_timeline_makespan(const lh_timeline *timeline)
{
    return timeline->makespan_ns;
}

int64_t lh_timeline_first_device_end(const lh_timeline *timeline)
{
    return timeline->first_device_end_ns;
}

double lh_timeline_bubble_ratio(const lh_timeline *timeline)
{
    if (timeline->makespan_ns == 0)
        return 0;
    double all = (double)timeline->makespan_ns * timeline->n_devices;
    return (all - (double)timeline->busy_ns) / all;
}

int64_t lh_timeline_peak_memory(const lh_timeline *timeline, uint32_t device)
{
    return timeline->peak_memory[device];
}

bool lh_timeline_fits(const lh_timeline *timeline, uint32_t *device)
{
    for (uint32_t d = 0; d < timeline->n_devices; d++)
        if (timeline->peak_memory[d] > timeline->memory_limits[d]) {
            if (device)
                *device = d;
            return false;
        }
    return true;
}

uint32_t lh_timeline_n_devices(const lh_timeline *timeline)
{
    return timeline->n_devices;
}

const lh_timeline_run *lh_timeline_runs(const lh_timeline *timeline,
                                        uint32_t device, uint32_t *n_runs)
{
    const size_t *at = &timeline->offsets[device];
    *n_runs = (uint32_t)(at[1] - at[0]);
    return timeline->runs + at[0];
}

const lh_message *lh_timeline_messages(const lh_timeline *timeline,
                                       uint32_t *n_messages)
{
    *n_messages = timeline->n_messages;
    return timeline->messages;
}

const lh_collective *lh_timeline_collectives(const lh_timeline *timeline,
                                             uint32_t *n_collectives)
{
    *n_collectives = timeline->n_collectives;
    return timeline->collectives;
}

const lh_offload_copy *lh_timeline_copies(const lh_timeline *timeline,
                                          uint32_t *n_copies)
{
    *n_copies = timeline->n_copies;
    return timeline->copies;
}

uint32_t lh_timeline_n_resources(const lh_timeline *timeline)
{
    return timeline->n_resources;
}

const char *lh_timeline_resource_name(const lh_timeline *timeline,
                                      uint32_t resource)
{
    return timeline->resource_names[resource];
}
