/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline ranks over datacenters, in the order in which the job has them. */
#include "plan/layout.h"

#include <inttypes.h>

uint32_t lhi_group_size(const lh_layout *layout)
{
    return layout->tensor * layout->context * layout->expert;
}

/* Pipeline outermost: each datacenter takes as many consecutive stages, with
 * all their replicas, as it has room for. */
static lh_status place_stages(const lh_job *job, const lh_layout *l,
                              lhi_rank *ranks, lh_error *err)
{
    uint32_t group = lhi_group_size(l), placed = 0;
    uint64_t stage_gpus = (uint64_t)group * l->data;
    for (uint32_t dc = 0; dc < job->n_datacenters; dc++) {
        uint64_t room = job->datacenters[dc].gpus / stage_gpus;
        for (uint64_t i = 0; i < room && placed < l->pipeline; i++)
            ranks[placed++] =
                (lhi_rank){dc, (uint32_t)(i * stage_gpus)};
    }
    if (placed < l->pipeline)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "pipeline %" PRIu32 " does not fit: a stage takes "
                        "%" PRIu64 " GPUs (tensor x context x expert x data), "
                        "and the datacenters have room for %" PRIu32
                        " whole stages",
                        l->pipeline, stage_gpus, placed);
    return LH_OK;
}

/* Data outermost: whole replicas in each datacenter, equally many. */
static lh_status place_replicas(const lh_job *job, const lh_layout *l,
                                lhi_rank *ranks, uint32_t *data_datacenters,
                                lh_error *err)
{
    uint32_t group = lhi_group_size(l), n = job->n_datacenters;
    uint64_t replica_gpus = (uint64_t)group * l->pipeline;
    if (l->data % n != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "data %" PRIu32 " does not divide over %" PRIu32
                        " datacenters: with data parallelism outermost each "
                        "has equally many replicas",
                        l->data, n);
    for (uint32_t dc = 0; dc < n; dc++) {
        uint64_t room = job->datacenters[dc].gpus / replica_gpus;
        if (room < l->data / n)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "datacenter %s has room for %" PRIu64
                            " whole replicas of %" PRIu64
                            " GPUs, not for %" PRIu32,
                            job->datacenters[dc].name, room, replica_gpus,
                            l->data / n);
    }
    for (uint32_t s = 0; s < l->pipeline; s++)
        ranks[s] = (lhi_rank){0, s * group};
    *data_datacenters = n;
    return LH_OK;
}

lh_status lhi_layout_place(const lh_job *job, const lh_layout *layout,
                           lhi_rank *ranks, uint32_t *data_datacenters,
                           lh_error *err)
{
    *data_datacenters = 1;
    if (layout->outermost == LH_OUTERMOST_DATA)
        return place_replicas(job, layout, ranks, data_datacenters, err);
    return place_stages(job, layout, ranks, err);
}

void lhi_layer_range(uint32_t layers, uint32_t n_chunks, uint32_t chunk,
                     uint32_t *first, uint32_t *count)
{
    uint32_t each = layers / n_chunks, more = layers % n_chunks;
    /* Chunks from..from+more-1 hold one layer more. */
    uint32_t from = (n_chunks - more) / 2;
    uint32_t before = chunk < from          ? 0
                      : chunk < from + more ? chunk - from
                                            : more;
    *first = chunk * each + before;
    *count = each + (chunk >= from && chunk < from + more);
}

void lhi_config_layers(uint32_t layers, const lhi_config *config,
                       uint32_t chunk, uint32_t *first, uint32_t *count)
{
    const lh_layout *l = &config->layout;
    if (!config->layers) {
        lhi_layer_range(layers, l->pipeline * l->chunks_per_device, chunk,
                        first, count);
        return;
    }
    *first = 0;
    for (uint32_t c = 0; c < chunk; c++)
        *first += config->layers[c];
    *count = config->layers[chunk];
}

lhi_config lhi_config_of(const lh_choice *choice)
{
    return (lhi_config){.layout = choice->layout,
                        .placement = choice->placement,
                        .recompute = choice->recompute,
                        .microbatches = choice->microbatches,
                        .layers = choice->chunk_layers};
}

uint32_t lhi_config_device(const lhi_config *config, uint32_t chunk)
{
    uint32_t P = config->layout.pipeline;
    if (config->placement == LH_PLACEMENT_WAVE && chunk >= P)
        return 2 * P - 1 - chunk;
    return chunk % P;
}
