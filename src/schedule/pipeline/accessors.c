/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline values, and what parts of the library require of a pipeline. */
#include "schedule/pipeline/accessors.h"

#include "schedule/pipeline/pipeline_internal.h"

uint32_t lh_pipeline_n_devices(const lh_pipeline *pipeline)
{
    return pipeline->n_devices;
}

uint32_t lh_pipeline_n_chunks(const lh_pipeline *pipeline)
{
    return pipeline->n_chunks;
}

uint32_t lh_pipeline_n_microbatches(const lh_pipeline *pipeline)
{
    return pipeline->n_microbatches;
}

bool lhi_pipeline_is_joint(const lh_pipeline *pipeline)
{
    return pipeline->joint;
}

bool lhi_pipeline_is_bidirectional(const lh_pipeline *pipeline)
{
    return pipeline->bidirectional;
}

double lhi_pipeline_overlap_f_b(const lh_pipeline *pipeline)
{
    return pipeline->overlap_f_b;
}

bool lh_pipeline_offloads(const lh_pipeline *pipeline)
{
    return pipeline->offloads;
}

const lh_chunk *lh_pipeline_chunk(const lh_pipeline *pipeline, uint32_t chunk)
{
    return &pipeline->chunks[chunk];
}

uint32_t lh_pipeline_n_links(const lh_pipeline *pipeline)
{
    return pipeline->n_links;
}

const lh_link *lh_pipeline_link(const lh_pipeline *pipeline, uint32_t link)
{
    return &pipeline->links[link];
}

int64_t lh_pipeline_memory_limit(const lh_pipeline *pipeline, uint32_t device)
{
    return pipeline->memory_limits[device];
}

const char *lh_pipeline_memory_unit(const lh_pipeline *pipeline)
{
    return pipeline->memory_unit;
}

uint32_t lhi_pipeline_n_sites(const lh_pipeline *pipeline)
{
    return pipeline->n_sites;
}

const char *lhi_pipeline_site_name(const lh_pipeline *pipeline, uint32_t site)
{
    return pipeline->sites[site].name;
}

uint32_t lh_pipeline_device_site(const lh_pipeline *pipeline, uint32_t device)
{
    return pipeline->device_sites ? pipeline->device_sites[device] : LH_NONE;
}

bool lhi_link_is_inter_site(const lh_pipeline *p, const lh_link *link)
{
    return p->n_sites < 2 || lh_pipeline_device_site(p, link->from) !=
                                 lh_pipeline_device_site(p, link->to);
}

lh_status lhi_pipeline_remove_overlap(const lh_pipeline *pipeline,
                                      lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    *out = NULL;
    if (pipeline->overlap_f_b == 0)
        return LH_OK;
    LHI_TRY(lh_pipeline_describe(pipeline, &desc, err));
    desc.overlap_f_b = 0;
    return lh_pipeline_make(&desc, out, err);
}

lh_status lhi_pipeline_require_plain_passes(const lh_pipeline *pipeline,
                                            const char *what, lh_error *err)
{
    if (pipeline->n_slices > 1)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "%s does not support sliced sequences (slices): the "
                        "method seq1f1b does, and simulate, check and train",
                        what);
    return lhi_pipeline_require_separate_passes(pipeline, what, err);
}

lh_status lhi_pipeline_require_separate_passes(const lh_pipeline *pipeline,
                                               const char *what, lh_error *err)
{
    if (pipeline->overlap_f_b == 0)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "%s does not support overlapped passes (overlap): the "
                    "methods dualpipe, dualpipev and greedy do, and simulate, "
                    "check and compare",
                    what);
}

lh_status lhi_pipeline_require_one_direction(const lh_pipeline *pipeline,
                                             const char *what, lh_error *err)
{
    if (!pipeline->bidirectional)
        return lhi_pipeline_require_plain_passes(pipeline, what, err);
    const bool many = pipeline->n_copies > 2;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "%s does not support %s: the "
                    "methods %sgreedy, gpipe and optimal do, and "
                    "simulate, check, compare, explain and train",
                    what,
                    many ? "several copies of the model (copies)"
                         : "two directions (placement bd)",
                    many ? "" : "dualpipe, chimera, ");
}

lh_placement lhi_pipeline_placement(const lh_pipeline *pipeline)
{
    return pipeline->placement;
}

const char *lh_placement_name(lh_placement placement)
{
    switch (placement) {
    case LH_PLACEMENT_UD:
        return "ud";
    case LH_PLACEMENT_LOOP:
        return "loop";
    case LH_PLACEMENT_WAVE:
        return "wave";
    case LH_PLACEMENT_BD:
        return "bd";
    default:
        return "irregular";
    }
}

uint32_t lhi_pipeline_count_sequence_groups(const lh_pipeline *pipeline)
{
    uint32_t n = pipeline->n_microbatches / pipeline->n_slices;
    return pipeline->n_copies * n;
}

uint32_t lhi_pipeline_count_model_chunks(const lh_pipeline *pipeline)
{
    return lhi_count_direction_chunks(pipeline);
}

uint32_t lhi_pipeline_n_slices(const lh_pipeline *pipeline)
{
    return pipeline->n_slices;
}

double lhi_pipeline_slice_attention(const lh_pipeline *pipeline)
{
    return pipeline->slice_attention;
}
