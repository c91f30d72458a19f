/* SPDX-License-Identifier: Apache-2.0 */
/* Relations between a layout's degrees. */
#include "format/job/job_values.h"
#include "format/job/model_size.h"
#include "format/job/parse.h"

uint32_t lh_layout_expert_tensor(const lh_layout *layout)
{
    if (layout->expert_tensor)
        return layout->expert_tensor;
    return layout->expert > 1 ? 1 : layout->tensor;
}

uint64_t lh_layout_expert_block(const lh_layout *layout)
{
    return (uint64_t)layout->expert * lh_layout_expert_tensor(layout);
}

uint32_t lh_layout_site_tensor(const lh_layout *layout, uint32_t datacenter)
{
    return layout->site_tensors ? layout->site_tensors[datacenter]
                                : layout->tensor;
}

uint64_t lh_layout_gpus(const lh_layout *layout)
{
    const lh_sites *sites = layout->site_tensors ? layout->sites : NULL;
    uint64_t ranks = sites ? 0 : (uint64_t)layout->tensor * layout->pipeline;
    for (uint32_t i = 0; sites && i < sites->groups[0].n_parts; i++)
        ranks +=
            (uint64_t)sites->groups[0].parts[i].stages *
            lh_layout_site_tensor(layout, sites->groups[0].parts[i].datacenter);
    return ranks * layout->context * layout->data;
}

uint32_t lhi_layout_group_micro_batch(const lh_layout *layout, uint32_t group)
{
    return layout->group_micro_batches ? layout->group_micro_batches[group]
                                       : layout->micro_batch;
}

uint64_t lhi_layout_count_sequences(const lh_layout *layout)
{
    uint64_t all = 0;
    if (!layout->group_micro_batches)
        return (uint64_t)layout->data * layout->micro_batch;
    for (uint32_t g = 0; g < layout->sites->n_groups; g++)
        all += (uint64_t)layout->sites->groups[g].replicas *
               layout->group_micro_batches[g];
    return all;
}

bool lhi_layout_fits_gpus(const lh_layout *layout, uint64_t gpus)
{
    /* Each factor is at most 2^20, so comparing after each step avoids an
     * overflow. Experts are spread over the same GPUs. */
    const uint32_t degrees[] = {layout->tensor, layout->context,
                                layout->pipeline, layout->data};
    uint64_t least = 1;
    for (size_t i = 0; i < 4 && least <= gpus; i++)
        least *= degrees[i] ? degrees[i] : 1;
    return least <= gpus;
}

double lhi_layout_count_params(const lh_model *m, const lh_layout *l,
                               uint32_t first, uint32_t n_layers)
{
    const lh_layer_params p = lhi_model_range_params(m, first, n_layers);
    return (double)(p.total - p.experts) / l->tensor +
           (double)p.experts / (double)lh_layout_expert_block(l);
}

double lhi_layout_count_all_params(const lh_model *m, const lh_layout *l)
{
    const lh_layer_params last = lhi_model_module_params(m);
    const double layers = (double)lhi_model_range_params(m, 0, m->layers).total;
    const double experts = (double)last.experts * m->mtp_layers;
    const double others = (double)lh_model_params(m) - layers +
                          (double)lhi_model_mtp_params(m) - experts;
    return lhi_layout_count_params(m, l, 0, m->layers) + others / l->tensor +
           experts / (double)lh_layout_expert_block(l);
}

/* rope_utils.py and MLATransformerConfig of core 0.16.1, whose gpt_builders.py
 * does not pass on another factor of Llama 3.1's. */
const lh_rope_scaling lhi_megatron_llama3 = {.type = LH_ROPE_LLAMA3,
                                             .factor = 8,
                                             .original_positions = 8192,
                                             .low_freq_factor = 1,
                                             .high_freq_factor = 4};
const lh_rope_scaling lhi_megatron_yarn = {.type = LH_ROPE_YARN,
                                           .factor = 1,
                                           .original_positions = 4096,
                                           .beta_fast = 32,
                                           .beta_slow = 1,
                                           .mscale = 1};

uint32_t lhi_megatron_padded_vocab(uint32_t vocab, uint32_t tensor,
                                   uint32_t *multiple)
{
    uint32_t by = 128;
    while (by > 8 && vocab % ((uint64_t)by * tensor) != 0)
        by /= 2;
    if (vocab % ((uint64_t)by * tensor) != 0)
        by = 128;
    const uint64_t each = (uint64_t)by * tensor;
    *multiple = by;
    return (uint32_t)((vocab + each - 1) / each * each);
}

uint32_t lhi_job_padded_vocab(const lh_job *job, uint32_t tensor)
{
    uint32_t multiple;
    if (job->target != LH_TARGET_MEGATRON &&
        job->framework.preset != LH_FRAMEWORK_MEGATRON)
        return job->model->vocab;
    return lhi_megatron_padded_vocab(job->model->vocab, tensor, &multiple);
}

lh_outermost lh_layout_rank_order(const lh_layout *layout)
{
    if (layout->rank_order != LH_OUTERMOST_ANY)
        return layout->rank_order;
    return layout->outermost == LH_OUTERMOST_DATA ? LH_OUTERMOST_DATA
                                                  : LH_OUTERMOST_PIPELINE;
}
