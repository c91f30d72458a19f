/* SPDX-License-Identifier: Apache-2.0 */
/* Layer partitions in proportion to the speed of the datacenters' GPUs. */
#include "planner/layout/layer_partition.h"
#include "planner/layout/partition_search.h"

#include <stdlib.h>

/* Computes the time of one middle layer (F, D and W) in each datacenter, in ns.
 */
static lh_status compute_layer_times(const lh_job *job,
                                     const lhi_config *config, double *ns,
                                     lh_error *err)
{
    lh_job as_configured = *job;
    as_configured.training.recompute = config->recompute;
    for (uint32_t d = 0; d < job->n_datacenters; d++) {
        lh_cost_layer_range slice = {.first_layer = job->model->layers / 2,
                                     .n_layers = 1,
                                     .datacenter = d,
                                     .data_datacenters = 1};
        lh_cost_options options = {.size = sizeof options,
                                   .estimate_missing = true};
        const lh_layout own = lhi_layout_in_datacenter(&config->layout, d);
        lh_cost cost;
        LHI_TRY(
            lh_cost_chunk(&as_configured, &own, &slice, &options, &cost, err));
        ns[d] = (double)(cost.f.total_ns + cost.d.total_ns + cost.w.total_ns);
    }
    return LH_OK;
}

/* Returns the longest of a stage's datacenter times: replicas of a stage wait
 * for each other. */
static double find_slowest(const lhi_stage_placement *spread,
                           const double *times)
{
    double slowest = 0;
    for (uint32_t i = 0; i < spread->n_sites; i++)
        if (times[spread->sites[i].datacenter] > slowest)
            slowest = times[spread->sites[i].datacenter];
    return slowest;
}

lh_status lhi_layer_partition_by_speed(const lh_job *job,
                                       const lh_plan_options *options,
                                       lhi_arena *mem, lhi_config *config,
                                       lh_error *err)
{
    const uint32_t n =
        config->layout.pipeline * config->layout.chunks_per_device;
    lhi_layout_placement places;
    if (lhi_layer_partition_speed_ratio(job) <= 1 ||
        !lhi_layer_partition_has_alternatives(job, config, options) ||
        config->layout.outermost == LH_OUTERMOST_DATA)
        return LH_OK;
    lhi_arena *own = lhi_arena_make(0);
    double *times = calloc(job->n_datacenters, sizeof *times);
    double *speed = calloc(n, sizeof *speed);
    uint32_t *layers = LHI_NEW(mem, uint32_t, n);
    lh_error why = {0};
    lh_status status = LH_OK;
    if (!own || !times || !speed || !layers)
        status = lhi_fail_nomem(&why);
    if (status == LH_OK)
        status = lhi_layout_place(job, &config->layout, own, &places, &why);
    if (status == LH_OK)
        status = compute_layer_times(job, config, times, &why);
    for (uint32_t c = 0; status == LH_OK && c < n; c++)
        speed[c] = 1 / find_slowest(
                           &places.stages[lhi_config_device(config, c)], times);
    if (status == LH_OK) {
        lhi_partition_distribute(job->model->layers, n,
                                 lhi_layer_partition_ratio(options), speed,
                                 layers);
        config->layers = layers;
    }
    lhi_arena_free(own);
    free(times);
    free(speed);
    if (status == LH_OK || status == LH_EUNSUPPORTED)
        return LH_OK; /* building the layout reports the reason */
    if (err)
        *err = why;
    return status;
}
