/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing a job's layout. */
#include "format/job/job_internal.h"

#include "format/job/job_values.h"

#include <string.h>

/* Reads an optional parallel degree of the layout; *out is unchanged if the key
 * is absent. */
static lh_status read_degree(lhi_job_reader *r, const lhi_node *map,
                             const char *key, uint32_t *out, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    return node ? lhi_node_get_u32(r->doc, node, 1, LHI_MAX_DEGREE, out, err)
                : LH_OK;
}

/* Reads the tensor degree: a number, or the request to try different degrees
 * per datacenter. */
static lh_status read_tensor(lhi_job_reader *r, const lhi_node *map,
                             lh_error *err)
{
    lh_layout *l = &r->job->layout;
    const lhi_node *node = lhi_node_find(map, "tensor");
    const char *word;
    l->tensor_per_site =
        node && lhi_node_get_string(r->doc, node, &word, NULL) == LH_OK &&
        strcmp(word, LHI_TENSOR_PER_SITE) == 0;
    if (!l->tensor_per_site)
        return read_degree(r, map, "tensor", &l->tensor, err);
    const char *obstacle =
        r->job->n_datacenters < 2 ? "requires several datacenters"
        : lhi_node_find(map, "sites")
            ? "cannot be combined with sites; give each datacenter in sites "
              "its tensor"
        : lhi_node_find(map, "slices") ? "cannot be combined with slices"
        : r->job->model->experts       ? "requires a model without experts"
                                       : NULL;
    return obstacle ? lhi_doc_fail(r->doc, node, err, LH_EINPUT, "%s", obstacle)
                    : LH_OK;
}

/* Returns a parallel degree; 1 if it is unspecified (0). */
static uint64_t get_degree(uint32_t degree)
{
    return degree ? degree : 1;
}

/* Checks that expert x expert_tensor divides one pipeline stage's ranks, tensor
 * x context x data, over which the experts are distributed. */
static lh_status check_block(lhi_job_reader *r, const lhi_node *map,
                             lh_error *err)
{
    const lh_layout *l = &r->job->layout;
    const lhi_node *node =
        lhi_node_find(map, l->expert > 1 ? "expert" : "expert_tensor");
    uint64_t block, ranks;
    if (!l->expert || (l->expert == 1 && !l->expert_tensor))
        return LH_OK;
    block = lh_layout_expert_block(l);
    ranks = r->job->n_gpus / get_degree(l->pipeline);
    if (block > ranks)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "expert x expert_tensor is %llu, above the %llu "
                            "GPUs of a pipeline stage",
                            (unsigned long long)block,
                            (unsigned long long)ranks);
    if (!l->tensor || !l->context || !l->data)
        return LH_OK;
    ranks = (uint64_t)l->tensor * l->context * l->data;
    if (ranks % block == 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "expert x expert_tensor (%llu) does not divide the "
                        "tensor x context x data (%llu) GPUs of a pipeline "
                        "stage",
                        (unsigned long long)block, (unsigned long long)ranks);
}

/* Checks that the expert degrees divide the model's experts and their width. */
static lh_status check_experts(lhi_job_reader *r, const lhi_node *map,
                               lh_error *err)
{
    const lh_layout *l = &r->job->layout;
    const lh_model *m = r->job->model;
    const lhi_node *node = lhi_node_find(map, "expert");
    const lhi_node *cut = lhi_node_find(map, "expert_tensor");
    if (l->expert > 1 && m->experts % l->expert != 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "the %u experts of %s are not divisible by %u",
                            m->experts, m->name, l->expert);
    if ((l->expert > 1 || l->expert_tensor) && m->experts == 0)
        return lhi_doc_fail(r->doc, l->expert > 1 ? node : cut, err, LH_EINPUT,
                            "%s has no experts", m->name);
    if (l->expert_tensor && m->expert_ffn % l->expert_tensor != 0)
        return lhi_doc_fail(
            r->doc, cut, err, LH_EINPUT,
            "the expert width of %s, %u, is not divisible by %u", m->name,
            m->expert_ffn, l->expert_tensor);
    return check_block(r, map, err);
}

/* Reads the list of layers per chunk. LH_EINPUT: it does not match the layout
 * or the model. */
static lh_status read_layers(lhi_job_reader *r, const lhi_node *list,
                             lh_error *err)
{
    lh_layout *l = &r->job->layout;
    const uint64_t chunks = (uint64_t)l->pipeline * l->chunks_per_device;
    const uint32_t layers = r->job->model->layers;
    uint64_t sum = 0;
    LHI_TRY(lhi_node_check_list(r->doc, list, err));
    if (chunks == 0 || list->n_items != chunks)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "requires pipeline and chunks_per_device, and one "
                            "entry for each of their pipeline x "
                            "chunks_per_device chunks");
    uint32_t *out = LHI_NEW(r->mem, uint32_t, list->n_items);
    if (!out)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next) {
        /* The first and last chunk may have no layers, as they hold the
         * embedding or the head. Without a pipeline, the chunks between them
         * serve only overlap, so they need layers. */
        bool at_end = node->index == 0 || node->index + 1 == list->n_items;
        LHI_TRY(lhi_node_get_u32(r->doc, node,
                                 at_end || l->pipeline > 1 ? 0 : 1, layers,
                                 &out[node->index], err));
        sum += out[node->index];
    }
    if (sum != layers)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "add up to %llu, but %s has %u layers",
                            (unsigned long long)sum, r->job->model->name,
                            layers);
    l->chunk_layers = out;
    l->n_chunk_layers = list->n_items;
    return LH_OK;
}

/* Reads the number of the chunk that has the multi-token prediction modules.
 * LH_EINPUT: the model has none, or a later chunk has layers. */
static lh_status read_mtp_chunk(lhi_job_reader *r, const lhi_node *node,
                                lh_error *err)
{
    lh_layout *l = &r->job->layout;
    if (!r->job->model->mtp_layers)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires a model with mtp_layers, and %s has "
                            "none; remove it",
                            r->job->model->name);
    if (!l->chunk_layers || l->pipeline == 1)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "requires layout.layers and a pipeline above 1; "
                            "set both, or remove it");
    LHI_TRY(lhi_node_get_u32(r->doc, node, 1, l->n_chunk_layers - 1,
                             &l->mtp_chunk, err));
    for (uint32_t i = l->mtp_chunk + 1; i < l->n_chunk_layers; i++)
        if (l->chunk_layers[i])
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "is %u, but chunk %u has layers; multi-token "
                                "prediction must follow all layers",
                                l->mtp_chunk, i);
    if (l->mtp_chunk + 1 == l->n_chunk_layers)
        l->mtp_chunk = 0; /* with the head, the default */
    return LH_OK;
}

const char *lhi_job_find_slice_obstacle(const lh_job *job)
{
    const lh_model *m = job->model;
    if (m->kv_lora_rank || m->linear_value_heads || m->mamba_heads ||
        m->index_topk || m->experts || m->mtp_layers)
        return "is modelled only for dense models with attention in every "
               "layer; remove it";
    if (job->training.offload_share > 0 || job->framework.overlap_f_b > 0 ||
        job->layout.group_micro_batches || job->layout.site_tensors)
        return "cannot be combined with training.offload, "
               "framework.overlap.F+B, unequal microbatches or different "
               "tensor degrees";
    if (job->profile)
        return "has no times in the profile; remove profile or layout.slices";
    return NULL;
}

/* Reads the slice count per sequence, which pass the pipeline like
 * microbatches. LH_EINPUT: it does not divide the sequence, or the job does not
 * support slices. */
static lh_status read_slices(lhi_job_reader *r, const lhi_node *node,
                             lh_error *err)
{
    lh_job *job = r->job;
    const char *obstacle = lhi_job_find_slice_obstacle(job);
    const char *word;
    if (lhi_node_get_string(r->doc, node, &word, NULL) == LH_OK &&
        strcmp(word, "auto") == 0)
        job->layout.slices = LHI_SLICES_AUTO;
    else if (lhi_node_get_u32(r->doc, node, 2, LHI_MAX_DEGREE,
                              &job->layout.slices, err) != LH_OK)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must be a number of slices per sequence from 2 to "
                            "%d, or auto",
                            (int)LHI_MAX_DEGREE);
    if (job->training.sequence % job->layout.slices != 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "%u slices do not divide the sequence of %u tokens",
                            job->layout.slices, job->training.sequence);
    return obstacle ? lhi_doc_fail(r->doc, node, err, LH_EINPUT, "%s", obstacle)
                    : LH_OK;
}

/* Rejects layouts that no choice of the unspecified degrees could make valid.
 */
static lh_status check_layout(lhi_job_reader *r, const lhi_node *map,
                              lh_error *err)
{
    const lh_job *job = r->job;
    const lh_layout *l = &job->layout;
    const lhi_node *node;
    if (!lhi_layout_fits_gpus(l, job->n_gpus))
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "tensor x context x pipeline x data exceeds the "
                            "cluster's %u GPUs",
                            job->n_gpus);
    uint64_t chunks =
        get_degree(l->pipeline) * get_degree(l->chunks_per_device);
    if (chunks > (uint64_t)job->model->layers + 2) /* embedding, head */
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "pipeline x chunks_per_device is %llu chunks, but "
                            "%s has %u layers",
                            (unsigned long long)chunks, job->model->name,
                            job->model->layers);
    uint64_t share = l->group_micro_batches
                         ? lhi_layout_count_sequences(l)
                         : get_degree(l->data) * get_degree(l->micro_batch);
    if (job->training.global_batch % share != 0)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "the global batch of %u is not divisible by data x "
                            "micro_batch = %llu%s",
                            job->training.global_batch,
                            (unsigned long long)share,
                            l->group_micro_batches ? " over all groups" : "");
    node = lhi_node_find(map, "tensor");
    if (l->tensor && job->model->heads % l->tensor != 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "the %u heads of %s are not divisible by %u",
                            job->model->heads, job->model->name, l->tensor);
    return check_experts(r, map, err);
}

lh_status lhi_job_read_layout(lhi_job_reader *r, lh_error *err)
{
    lh_layout *l = &r->job->layout;
    const lhi_node *map = lhi_node_find(r->map, "layout"), *node;
    uint32_t outermost, order, packing, sharding, target;
    bool given;
    if (!map)
        return LH_OK;
    LHI_TRY(lhi_node_check_keys(r->doc, map, lhi_layout_keys, err));
    LHI_TRY(read_tensor(r, map, err));
    LHI_TRY(read_degree(r, map, "context", &l->context, err));
    LHI_TRY(read_degree(r, map, "expert", &l->expert, err));
    LHI_TRY(read_degree(r, map, "expert_tensor", &l->expert_tensor, err));
    LHI_TRY(read_degree(r, map, "pipeline", &l->pipeline, err));
    LHI_TRY(read_degree(r, map, "data", &l->data, err));
    LHI_TRY(read_degree(r, map, "micro_batch", &l->micro_batch, err));
    LHI_TRY(
        read_degree(r, map, "chunks_per_device", &l->chunks_per_device, err));
    LHI_TRY(lhi_job_read_choice(r, map, "outermost", lhi_outermost_names,
                                &outermost, &given, err));
    if (given)
        l->outermost = (lh_outermost)(outermost + 1);
    LHI_TRY(lhi_job_read_choice(r, map, "rank_order", lhi_rank_order_names,
                                &order, &given, err));
    if (given)
        l->rank_order = (lh_outermost)(order + 1);
    LHI_TRY(lhi_job_read_choice(r, map, "packing", lhi_packing_names, &packing,
                                &given, err));
    if (given)
        l->packing = (lh_packing)(packing + 1);
    LHI_TRY(lhi_job_read_choice(r, map, "sharding", lhi_sharding_names,
                                &sharding, &given, err));
    if (given)
        l->sharding = (lh_sharding)(sharding + 1);
    LHI_TRY(lhi_job_read_choice(r, map, "framework", lhi_target_choices,
                                &target, &r->target_given, err));
    if (r->target_given)
        r->job->target = (lh_target)target;
    if ((node = lhi_node_find(map, "schedule"))) {
        r->job->schedule_line = node->line;
        LHI_TRY(lhi_node_get_string(r->doc, node, &l->schedule, err));
        if (r->job->training.offload_share > 0 &&
            strcmp(l->schedule, "elastic") == 0)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "elastic plans use sharding and recomputation, "
                                "not offloading; remove training.offload, or "
                                "use another schedule");
        if (!(l->schedule = lhi_arena_strdup(r->mem, l->schedule)))
            return lhi_fail_nomem(err);
    }
    if ((node = lhi_node_find(map, "sites")))
        LHI_TRY(
            lhi_sites_from_node(r->doc, node, r->job, false, r->mem, l, err));
    if (l->group_micro_batches && l->schedule &&
        strcmp(l->schedule, "elastic") == 0)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "schedule"), err,
                            LH_EINPUT,
                            "elastic plans have equal microbatches; remove "
                            "micro_batch from the groups in sites, or use "
                            "another schedule");
    if (l->site_tensors && l->schedule && strcmp(l->schedule, "elastic") == 0)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "schedule"), err,
                            LH_EINPUT,
                            "elastic plans have one tensor degree; remove "
                            "tensor from the datacenters in sites, or use "
                            "another schedule");
    if ((node = lhi_node_find(map, "layers")))
        LHI_TRY(read_layers(r, node, err));
    if ((node = lhi_node_find(map, "mtp_chunk")))
        LHI_TRY(read_mtp_chunk(r, node, err));
    if ((node = lhi_node_find(map, "slices")))
        LHI_TRY(read_slices(r, node, err));
    return check_layout(r, map, err);
}
