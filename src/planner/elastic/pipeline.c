/* SPDX-License-Identifier: Apache-2.0 */
/* Builds an elastic plan's pipeline from its layout with ZeRO-1. Backward
 * passes get the recomputation and lose the memory it saves; sharded state is
 * stored once and sent in parts. */
#include "planner/elastic/pipeline.h"

#include "base/integer_math.h"
#include "model/ops.h"
#include "schedule/elastic/elastic.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <inttypes.h>
#include <longhaul/experimental/elastic.h>
#include <math.h>
#include <string.h>

/* --- inputs --------------------------------------------------------------- */

/* Returns the number (1 or more) of the fused matrix product (such as query,
 * key and value) that contains operation `name`; 0: none. */
static int find_matrix_product(const char *name)
{
    static const char *const parts[][4] = {
        {"query", "key", "value", "key and value"},
        {"up", "gate"},
        {"shared up", "shared gate"}};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < 4 && parts[p][i]; i++)
            if (strcmp(parts[p][i], name) == 0)
                return p + 1;
    return 0;
}

/* Adds operation `op` to the list of operations that can be recomputed.
 * Projections of one fused matrix product (query, key and value; up and gate)
 * share one entry with summed work and bytes. */
static void add_kind(lhi_elastic_kinds *kinds, const lh_cost_op *op)
{
    int product = find_matrix_product(op->name);
    uint32_t k = 0;
    while (k < kinds->n &&
           (!product || find_matrix_product(kinds->ops[k].name) != product))
        k++;
    if (k == kinds->n) {
        kinds->ops[kinds->n++] = *op;
        kinds->n_names[k] = 0;
    } else {
        kinds->ops[k].flops += op->flops;
        kinds->ops[k].bytes += op->bytes;
        kinds->ops[k].ns += op->ns;
    }
    kinds->names[k][kinds->n_names[k]++] = op->name;
}

lh_status lhi_elastic_kinds_find(const lh_job *job, const lhi_config *config,
                                 lhi_elastic_kinds *out, lh_error *err)
{
    lh_cost_op all[LH_COST_MAX_OPS];
    uint32_t n = 0;
    lh_cost_layer_range slice = {.n_layers = 1};
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    LHI_TRY(lhi_cost_layer_ops(job, &config->layout, &slice,
                               job->model->layers / 2, &options, all, &n, err));
    out->n = 0;
    for (uint32_t i = 0; i < n; i++)
        if (all[i].recomputable)
            add_kind(out, &all[i]);
    return LH_OK;
}

double lhi_elastic_expert_replicas(const lh_layout *layout)
{
    return (double)layout->data * layout->context * layout->tensor /
           (double)lh_layout_expert_block(layout);
}

/* Returns the share of a chunk's weights and gradients that a device keeps when
 * ZeRO shards all of them over its replicas; experts have fewer replicas. */
static double compute_kept_share(const lh_layout *l, const lh_cost *cost)
{
    double replicas = (double)l->data * l->context;
    double experts = cost->params > 0
                         ? (double)cost->expert_params / (double)cost->params
                         : 0;
    return (1 - experts) / replicas + experts / lhi_elastic_expert_replicas(l);
}

lh_status lhi_elastic_state_find(const lh_job *job, const lhi_config *config,
                                 lhi_arena *mem, lhi_elastic_state *out,
                                 lh_error *err)
{
    uint32_t P = config->layout.pipeline;
    uint32_t n_chunks = P * config->layout.chunks_per_device;
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    lhi_elastic_state state = {.weights = LHI_NEW(mem, int64_t, n_chunks),
                               .gradients = LHI_NEW(mem, int64_t, n_chunks),
                               .kept_shares = LHI_NEW(mem, double, n_chunks),
                               .optimizer = LHI_NEW(mem, int64_t, P),
                               .params = LHI_NEW(mem, int64_t, P),
                               .experts = LHI_NEW(mem, int64_t, P)};
    if (!state.weights || !state.gradients || !state.kept_shares ||
        !state.optimizer || !state.params || !state.experts)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < n_chunks; c++) {
        lh_cost_layer_range slice = {.embedding = c == 0,
                                     .head = c + 1 == n_chunks,
                                     .chunk = c,
                                     .n_chunks = n_chunks};
        lh_cost cost;
        lhi_config_layers(job->model->layers, config, c, &slice.first_layer,
                          &slice.n_layers);
        LHI_TRY(
            lh_cost_chunk(job, &config->layout, &slice, &options, &cost, err));
        lhi_state_parts parts = lhi_state_parts_of(&cost);
        state.weights[c] = parts.weights;
        state.gradients[c] = parts.gradients;
        state.optimizer[c % P] += parts.optimizer;
        state.params[c % P] += cost.params;
        state.experts[c % P] += cost.expert_params;
        state.kept_shares[c] = compute_kept_share(&config->layout, &cost);
    }
    *out = state;
    return LH_OK;
}

int64_t lhi_elastic_offloaded_bytes(const lhi_elastic_context *ground,
                                    int64_t bytes)
{
    return bytes / LHI_ELASTIC_PARTS * ground->offloaded_parts;
}

int64_t lhi_elastic_offload_copy_ns(const lhi_elastic_context *ground,
                                    int64_t bytes)
{
    return bytes > 0
               ? (int64_t)ceil((double)bytes / ground->host_bytes_per_s * 1e9)
               : 0;
}

double lhi_elastic_share(int64_t part, int64_t all)
{
    return round((double)part / (double)all * 1e12) / 1e12;
}

/* Computes the bytes saved by sharding the fraction `share` of
 * `bytes`; a device keeps the fraction `kept` of the sharded part. */
static int64_t compute_saved_bytes(int64_t bytes, double share, double kept)
{
    return (int64_t)floor((double)bytes * share * (1 - kept));
}

/* Computes the bytes of device `d`'s buffers for gathered parameters and
 * reduced gradients. */
static int64_t compute_buffer_bytes(const lhi_config *config,
                                    const lhi_elastic_state *state, uint32_t d,
                                    const lh_plan_elastic *plan)
{
    uint32_t P = config->layout.pipeline;
    uint32_t n_chunks = P * config->layout.chunks_per_device;
    int64_t most_g = 0, most_p = 0;
    for (uint32_t c = d; c < n_chunks; c += P) {
        most_g = lhi_max_int64(most_g, state->gradients[c]);
        most_p = lhi_max_int64(most_p, state->weights[c]);
    }
    return (int64_t)ceil(2 * plan->gradients * (double)most_g +
                         4 * plan->parameters * (double)most_p);
}

/* --- recomputation -------------------------------------------------------- */

/* Returns the plan's entry for recomputed operation `name`, which lists the
 * number of layers by chunk; NULL: not recomputed. */
static const lh_plan_recomputed *find_row(const lh_plan_elastic *plan,
                                          const char *name)
{
    for (uint32_t i = 0; i < plan->n_recomputed; i++)
        if (strcmp(plan->recomputed[i].operation, name) == 0)
            return &plan->recomputed[i];
    return NULL;
}

/* Finds the plan's entry for operation `kind`, which lists in how many layers
 * of each chunk it is recomputed; *out is NULL if it is not. Adds the names
 * found to *n_known. LH_EINPUT: parts of one fused matrix product have
 * different lists. */
static lh_status find_row_of_kind(const lhi_elastic_context *g,
                                  const lh_plan_elastic *plan, uint32_t kind,
                                  uint32_t *n_known,
                                  const lh_plan_recomputed **out, lh_error *err)
{
    const lhi_elastic_kinds *k = g->kinds;
    uint32_t n =
        g->config->layout.pipeline * g->config->layout.chunks_per_device;
    *out = find_row(plan, k->names[kind][0]);
    if (*out && (*out)->n_chunks != n)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the plan does not list the layers in which '%s' is "
                        "recomputed",
                        k->names[kind][0]);
    for (uint32_t i = 0; i < k->n_names[kind]; i++) {
        const lh_plan_recomputed *row = find_row(plan, k->names[kind][i]);
        if ((row == NULL) != (*out == NULL) ||
            (row && row->n_chunks != (*out)->n_chunks) ||
            (row &&
             memcmp(row->layers, (*out)->layers, n * sizeof *row->layers) != 0))
            return lhi_fail(err, LH_EINPUT,
                            "'%s' and '%s' belong to one matrix product and "
                            "must be recomputed in the same layers",
                            k->names[kind][0], k->names[kind][i]);
        *n_known += row != NULL;
    }
    return LH_OK;
}

/* Sets rows[kind] to the plan's entry for each operation that can be
 * recomputed: in how many layers of each chunk it is; NULL: in none. LH_EINPUT:
 * the plan names an unknown operation. */
static lh_status find_rows(const lhi_elastic_context *g,
                           const lh_plan_elastic *plan,
                           const lh_plan_recomputed **rows, lh_error *err)
{
    uint32_t n_known = 0;
    for (uint32_t k = 0; k < g->kinds->n; k++)
        LHI_TRY(find_row_of_kind(g, plan, k, &n_known, &rows[k], err));
    if (n_known != plan->n_recomputed)
        return lhi_fail(err, LH_EINPUT,
                        "%" PRIu32 " of %" PRIu32 " operations are "
                        "recomputable operations of "
                        "a layer; all must be, each "
                        "listed once",
                        n_known, plan->n_recomputed);
    return LH_OK;
}

/* --- pipeline ------------------------------------------------------------- */

/* Adds offloading of activations to chunk `c`: its passes last at least as long
 * as the copy to or from host memory. Device memory holds two copy buffers
 * rather than the offloaded bytes. */
static void add_offloading(const lhi_elastic_context *g, uint32_t c,
                           lh_chunk *chunk)
{
    uint32_t P = g->plain->n_devices, n_chunks = g->plain->n_chunks;
    int64_t ns = lhi_elastic_offload_copy_ns(
        g, lhi_elastic_offloaded_bytes(g, chunk->mem_f));
    int64_t most = 0;
    for (uint32_t k = c; k < n_chunks && c < P; k += P)
        most = lhi_max_int64(
            most, lhi_elastic_offloaded_bytes(g, g->plain->chunks[k].mem_f));
    chunk->f_ns = lhi_max_int64(chunk->f_ns, ns);
    chunk->d_ns = lhi_max_int64(chunk->d_ns, ns - chunk->w_ns);
    chunk->mem_f -= lhi_elastic_offloaded_bytes(g, chunk->mem_f);
    chunk->mem_static += 2 * most;
}

/* Computes the activation bytes per microbatch that chunk `c` does not store
 * because it recomputes them. `rows`: per operation, in how many layers of each
 * chunk it is recomputed. */
static int64_t compute_dropped_bytes(const lhi_elastic_context *g,
                                     const lh_plan_recomputed *const *rows,
                                     uint32_t c)
{
    int64_t dropped = 0;
    for (uint32_t k = 0; k < g->kinds->n; k++)
        dropped += (rows[k] ? rows[k]->layers[c] : 0) * g->kinds->ops[k].bytes;
    /* Some layers may store less than others. */
    return lhi_min_int64(dropped, g->plain->chunks[c].mem_f);
}

/* Returns the activation bytes of one layer, which are all resident on device
 * `d` while the layer is recomputed; 0 if the device recomputes nothing.
 * `rows`: per operation, in how many layers of each chunk it is recomputed. */
static int64_t compute_full_layer_bytes(const lhi_elastic_context *g,
                                        const lh_plan_recomputed *const *rows,
                                        uint32_t d)
{
    int64_t dropped = 0, whole = 0;
    for (uint32_t c = d; c < g->plain->n_chunks; c += g->plain->n_devices)
        dropped += compute_dropped_bytes(g, rows, c);
    for (uint32_t k = 0; k < g->kinds->n; k++)
        whole += g->kinds->ops[k].bytes;
    return dropped > 0 ? whole : 0;
}

/* Fills chunk `c` of an elastic plan's pipeline: the ZeRO-1 chunk with
 * recomputation time, fewer stored activations, offloading and sharded
 * state. */
static void fill_chunk(const lhi_elastic_context *g,
                       const lh_plan_elastic *plan,
                       const lh_plan_recomputed *const *rows, uint32_t c,
                       lh_chunk *chunk)
{
    const int64_t dropped = compute_dropped_bytes(g, rows, c);
    *chunk = g->plain->chunks[c];
    for (uint32_t k = 0; k < g->kinds->n; k++)
        chunk->d_ns += (rows[k] ? rows[k]->layers[c] : 0) * g->kinds->ops[k].ns;
    if (c < g->plain->n_devices)
        chunk->mem_static += compute_full_layer_bytes(g, rows, c);
    add_offloading(g, c, chunk);
    chunk->mem_f -= dropped;
    chunk->mem_d = -chunk->mem_f;
    chunk->mem_w = 0;
    chunk->mem_static -=
        compute_saved_bytes(g->state->gradients[c], plan->gradients,
                            g->state->kept_shares[c]) +
        compute_saved_bytes(g->state->weights[c], plan->parameters,
                            g->state->kept_shares[c]);
}

lh_status lhi_elastic_build_plan_pipeline(const lhi_elastic_context *g,
                                          const lh_plan_elastic *plan,
                                          lhi_arena *mem, lh_pipeline **out,
                                          lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    const lh_plan_recomputed *rows[LH_COST_MAX_OPS] = {0};
    lh_chunk *chunks = LHI_NEW(mem, lh_chunk, g->plain->n_chunks);
    lh_dp_op *ops;
    uint32_t n_ops;
    if (!chunks)
        return lhi_fail_nomem(err);
    LHI_TRY(find_rows(g, plan, rows, err));
    LHI_TRY(lh_pipeline_describe(g->plain, &desc, err));
    for (uint32_t c = 0; c < desc.n_chunks; c++)
        fill_chunk(g, plan, rows, c, &chunks[c]);
    for (uint32_t d = 0; d < desc.n_devices; d++)
        chunks[d].mem_static +=
            compute_buffer_bytes(g->config, g->state, d, plan);
    LHI_TRY(lhi_elastic_compute_communication(g->plain, g->sharded, plan, mem,
                                              chunks, &ops, &n_ops, err));
    desc.joint = true;
    desc.overlap_f_b = 0; /* pairs would separate operations from passes */
    desc.chunks = chunks;
    desc.n_dp_ops = n_ops;
    desc.dp_ops = ops;
    desc.n_enqueue = plan->n_enqueue;
    desc.n_dequeue = plan->n_dequeue;
    desc.enqueue = plan->enqueue;
    desc.dequeue = plan->dequeue;
    lh_status status = lh_pipeline_make(&desc, out, err);
    lhi_elastic_ops_free(ops);
    return status;
}

/* Returns `config` with ZeRO-1 rather than its elastic plan, whose pipeline the
 * elastic plan's pipeline modifies. *plain: the job with that configuration. */
static lhi_config make_zero1_config(const lh_job *job, const lhi_config *config,
                                    lh_job *plain)
{
    lhi_config own = *config;
    own.elastic = NULL;
    own.zero_given = true;
    own.zero = 1;
    *plain = lhi_config_job(job, &own);
    return own;
}

/* Replaces the ZeRO-1 pipeline in *built by the elastic plan's: with its
 * microbatch groups, sharded shares and recomputed operations. */
static lh_status rebuild_pipeline(const lh_job *plain, const lhi_config *own,
                                  const lh_plan_elastic *plan, lhi_arena *mem,
                                  lhi_built_layout *built, lh_error *err)
{
    lhi_elastic_kinds kinds;
    lhi_elastic_state state;
    lhi_chunk_sharded *sharded =
        LHI_NEW(mem, lhi_chunk_sharded, built->pipeline->n_chunks);
    lh_pipeline *made = NULL;
    if (!sharded)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_layout_compute_sharded_times(plain, own, sharded, err));
    LHI_TRY(lhi_elastic_kinds_find(plain, own, &kinds, err));
    LHI_TRY(lhi_elastic_state_find(plain, own, mem, &state, err));
    const lhi_elastic_context ground = {.job = plain,
                                        .config = own,
                                        .plain = built->pipeline,
                                        .kinds = &kinds,
                                        .state = &state,
                                        .sharded = sharded};
    LHI_TRY(lhi_elastic_build_plan_pipeline(&ground, plan, mem, &made, err));
    lh_pipeline_free(built->pipeline);
    built->pipeline = made;
    return LH_OK;
}

lh_status lhi_elastic_rebuild(const lh_job *job, const lhi_config *config,
                              lhi_built_layout *out, lh_error *err)
{
    lh_job plain;
    lhi_config own = make_zero1_config(job, config, &plain);
    LHI_TRY(lhi_layout_build(&plain, &own, out, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_status status =
        mem ? rebuild_pipeline(&plain, &own, config->elastic, mem, out, err)
            : lhi_fail_nomem(err);
    lhi_arena_free(mem);
    if (status != LH_OK) {
        lh_pipeline_free(out->pipeline);
        out->pipeline = NULL;
    }
    return status;
}

/* --- memory breakdown ----------------------------------------------------- */

/* Reduces a device's memory part *part, and the bytes *missing by which the
 * parts exceed the total, by the smaller of the two. */
static void take_missing(int64_t *missing, int64_t *part)
{
    int64_t taken = *missing < *part ? *missing : *part;
    *missing -= taken;
    *part -= taken;
}

/* Makes a device's memory parts add up to its static memory: surplus bytes
 * count as transient memory. If the parts exceed the total, because a profile
 * measured less state, they shrink. */
static void balance_parts(const lh_pipeline *p, lh_plan_memory *part)
{
    int64_t left = 0, missing;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        if (p->chunks[c].device == part->rank)
            left += p->chunks[c].mem_static;
    left -= part->parameters_bytes + part->gradients_bytes +
            part->optimizer_bytes + part->buffers_bytes;
    missing = left < 0 ? -left : 0;
    part->temporary_bytes = left > 0 ? left : 0;
    take_missing(&missing, &part->optimizer_bytes);
    take_missing(&missing, &part->gradients_bytes);
    take_missing(&missing, &part->parameters_bytes);
    take_missing(&missing, &part->buffers_bytes);
}

/* Subtracts the sharded gradients and parameters from each device's memory
 * parts, adds the communication buffers, and makes the parts add up. */
static void distribute_memory(const lhi_config *config,
                              const lhi_elastic_state *state,
                              const lh_plan_elastic *plan,
                              const lh_pipeline *pipeline,
                              lh_plan_memory *parts)
{
    uint32_t P = pipeline->n_devices;
    for (uint32_t c = 0; c < pipeline->n_chunks; c++) {
        lh_plan_memory *part = &parts[c % P];
        part->gradients_bytes -= compute_saved_bytes(
            state->gradients[c], plan->gradients, state->kept_shares[c]);
        part->parameters_bytes -= compute_saved_bytes(
            state->weights[c], plan->parameters, state->kept_shares[c]);
    }
    for (uint32_t d = 0; d < P; d++) {
        parts[d].gradients_bytes = lhi_max_int64(parts[d].gradients_bytes, 0);
        parts[d].parameters_bytes = lhi_max_int64(parts[d].parameters_bytes, 0);
        parts[d].buffers_bytes += compute_buffer_bytes(config, state, d, plan);
        balance_parts(pipeline, &parts[d]);
    }
}

lh_status lhi_elastic_memory(const lh_job *job, const lhi_config *config,
                             const lh_plan_elastic *plan,
                             const lh_pipeline *pipeline, lh_plan_memory *parts,
                             lh_error *err)
{
    lh_job plain;
    lhi_config own = make_zero1_config(job, config, &plain);
    lhi_elastic_state state;
    LHI_TRY(lhi_layout_memory(&plain, &own, parts, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_status status =
        mem ? lhi_elastic_state_find(&plain, &own, mem, &state, err)
            : lhi_fail_nomem(err);
    if (status == LH_OK)
        distribute_memory(&own, &state, plan, pipeline, parts);
    lhi_arena_free(mem);
    return status;
}
