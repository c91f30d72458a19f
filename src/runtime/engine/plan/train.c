/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a plan: derives the run from the plan, and compares its result with
 * the plan's prediction. */
#include "base/fail.h"
#include "base/options.h"
#include "format/job/family.h"
#include "format/job/parse.h"
#include "model/paths.h"
#include "planner/layout/layout.h"
#include "runtime/engine/plan/group_links.h"
#include "runtime/engine/plan/run_profile.h"
#include "runtime/engine/plan/sharding.h"
#include "schedule/pipeline/accessors.h"

#include <inttypes.h>
#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/plan.h>
#include <stdlib.h>
#include <string.h>

uint64_t lh_train_message_bytes(const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint64_t gpus = (uint64_t)l->tensor * l->context;
    int64_t all = lhi_cost_message_bytes(plan->job, l);
    return all > 0 && gpus ? ((uint64_t)all + gpus - 1) / gpus
                           : LH_TRAIN_MESSAGE_BYTES;
}

/* Checks whether the job's profile has measured chunks of a run with the same
 * number of chunks: their times already include the sharing of processors
 * between ranks. */
static bool was_measured_shared(const lh_plan *plan,
                                const lh_pipeline *pipeline)
{
    const lh_profile *p = plan->job->profile;
    for (uint32_t i = 0; p && i < p->n_entries; i++)
        if (p->entries[i].kind == LH_PROFILE_CHUNK &&
            p->entries[i].n_chunks == lh_pipeline_n_chunks(pipeline))
            return true;
    return false;
}

/* Adds the planned communication within layers, and the profile of the measured
 * passes, to the result for the cpu device. */
static lh_status add_planned_values(const lhi_plan_run *run, lh_train_result *r,
                                    lh_error *err)
{
    const lh_plan *plan = run->plan;
    if (plan->breakdown)
        r->planned_exchange_ns = plan->breakdown->intra_layer_ns;
    const lhi_observed_means *observed = lhi_result_observed_means(r);
    lh_profile *profile;
    if (!observed)
        return LH_OK;
    LHI_TRY(lhi_run_profile_make(run, observed, &profile, err));
    lhi_result_take_profile(r, profile);
    return LH_OK;
}

/* Returns the model-FLOP utilisation (model FLOP per second over peak) of the
 * plan's machines for the iteration time `ns`; negative: no time was measured.
 * */
static double compute_utilisation(const lh_plan *plan, int64_t ns)
{
    const lh_choice *best = &plan->best;
    if (ns <= 0 || best->mfu <= 0)
        return -1;
    return best->mfu * (double)best->iteration_ns / (double)ns;
}

/* Fails if the run writes a profile that cannot represent it: unequal
 * microbatch sizes, sliced sequences, or experts sliced over another number of
 * ranks than the layers. */
static lh_status check_profile(const lh_plan *plan, const lh_train_options *run,
                               lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    lh_layout usual = *l;
    usual.expert_tensor = 0;
    if (run && run->profiles && l->group_micro_batches)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a profile cannot record unequal microbatches: train "
                        "without writing one, or plan with one micro_batch");
    if (run && run->profiles && plan->job->layout.slices)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a profile cannot record slices of sequences: train "
                        "without writing one, or remove layout.slices");
    if (!run || !run->profiles || !plan->job->model->experts ||
        lh_layout_expert_tensor(l) == lh_layout_expert_tensor(&usual))
        return LH_OK;
    return lhi_fail(
        err, LH_EUNSUPPORTED,
        "a profile cannot record that experts are sliced over %" PRIu32
        " ranks and layers over %" PRIu32
        ": train without writing one, or remove expert_tensor from the job's "
        "layout",
        lh_layout_expert_tensor(l), l->tensor);
}

/* Lists each replica's microbatch size in sequences in *out if the sizes are
 * unequal; else *out is NULL. Release with free(). */
static lh_status list_micro_batches(const lh_layout *l, uint32_t **out,
                                    lh_error *err)
{
    uint32_t replica = 0;
    *out = NULL;
    if (!l->group_micro_batches)
        return LH_OK;
    *out = calloc(l->data, sizeof **out);
    if (!*out)
        return lhi_fail_nomem(err);
    for (uint32_t g = 0; g < l->sites->n_groups; g++)
        for (uint32_t i = 0; i < l->sites->groups[g].replicas; i++)
            (*out)[replica++] = l->group_micro_batches[g];
    return LH_OK;
}

/* Lists each stage's tensor degree in *out if datacenters have different ones;
 * else *out is NULL. Release with free(). */
static lh_status list_stage_tensors(const lh_layout *l, uint32_t **out,
                                    lh_error *err)
{
    uint32_t stage = 0;
    *out = NULL;
    if (!l->site_tensors)
        return LH_OK;
    *out = calloc(l->pipeline, sizeof **out);
    if (!*out)
        return lhi_fail_nomem(err);
    const lh_site_group *group = &l->sites->groups[0];
    for (uint32_t i = 0; i < group->n_parts; i++)
        for (uint32_t k = 0; k < group->parts[i].stages; k++)
            (*out)[stage++] = l->site_tensors[group->parts[i].datacenter];
    return LH_OK;
}

/* Fails if the job trains with Adam and weight decay: the cpu device has AdamW,
 * which equals Adam only without decay. */
static lh_status check_optimizer(const lh_plan *plan, const lh_train_model *m,
                                 lh_error *err)
{
    if (plan->job->training.optimizer != LH_OPTIMIZER_ADAM ||
        m->weight_decay <= 0) /* NAN: the default, above 0 */
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the job's optimizer is adam, the cpu device's AdamW: "
                    "train without weight decay, where both are equal "
                    "(--weight-decay 0), or plan with optimizer: adamw");
}

/* Fails with LH_EUNSUPPORTED if the job computes in fp16 or FP8, which the cpu
 * device lacks. */
static lh_status check_precision(const lh_job *job, lh_error *err)
{
    if (job->training.precision == LH_PRECISION_FP16)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "training.precision: the cpu device does not train in "
                        "fp16, which needs loss scaling: plan with precision: "
                        "bf16 or fp32");
    if (job->framework.fp8 != LH_FP8_NONE)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "framework.fp8: the cpu device has no FP8 products: "
                        "plan without this key");
    return LH_OK;
}

/* Lists each rank's node in *out if the plan dispatches tokens node by node,
 * sending each token once per node; else *out is NULL. Release with free(). */
static lh_status list_nodes(const lh_plan *plan, uint32_t **out, lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    const size_t n = (size_t)l->pipeline * l->data * l->context * l->tensor;
    *out = NULL;
    if (l->expert == 1 ||
        !lhi_dispatches_once_per_node(plan->job->training.dispatcher))
        return LH_OK;
    *out = calloc(n, sizeof **out);
    return *out ? lhi_state_nodes(plan->job, l, *out, err)
                : lhi_fail_nomem(err);
}

/* Returns the index of each chunk's first layer, and as the last entry the
 * layer count; release with free(). NULL: out of memory. */
static uint32_t *list_first_layers(const lh_plan *plan, uint32_t n_chunks)
{
    uint32_t *first = calloc((size_t)n_chunks + 1, sizeof *first);
    for (uint32_t c = 0; first && c < n_chunks; c++) {
        uint32_t count;
        lh_plan_layers(plan, c, &first[c], &count);
        first[c + 1] = first[c] + count;
    }
    return first;
}

/* The planner's operations and their outputs. Queries, keys and values are one
 * product here; gate and up are another. With latent attention both compressed
 * tensors form one part, and both of their expansions another. Dropout masks
 * are never stored. */
static const struct {
    const char *name;
    lh_layer_part part;
} operations[] = {
    {"attention norm", LH_PART_ATTENTION_NORM},
    {"latent", LH_PART_LATENT},
    {"query", LH_PART_QKV},
    {"key and value", LH_PART_QKV},
    {"key", LH_PART_QKV},
    {"value", LH_PART_QKV},
    {"attention", LH_PART_ATTENTION},
    {"attention output", LH_PART_ATTENTION_OUTPUT},
    {"mlp norm", LH_PART_MLP_NORM},
    {"up", LH_PART_GATE_UP},
    {"gate", LH_PART_GATE_UP},
    {"activation", LH_PART_ACTIVATION},
    {"shared up", LH_PART_SHARED_GATE_UP},
    {"shared gate", LH_PART_SHARED_GATE_UP},
    {"shared activation", LH_PART_SHARED_ACTIVATION},
    {"attention dropout", LH_N_LAYER_PARTS},
    {"mlp dropout", LH_N_LAYER_PARTS},
};
/* Number of recomputable operations. */
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

/* Returns in how many of the chunk's layers the elastic plan recomputes the
 * named operation (such as "gate" or "key"); 0 if it is not recomputed. */
static uint32_t count_recomputed_layers(const lh_plan_elastic *e,
                                        const char *operation, uint32_t chunk)
{
    for (uint32_t i = 0; i < e->n_recomputed; i++)
        if (strcmp(e->recomputed[i].operation, operation) == 0)
            return e->recomputed[i].layers[chunk];
    return 0;
}

/* Fails with LH_EUNSUPPORTED if the elastic plan recomputes an operation that
 * the cpu device cannot recompute on its own, or does not say in how many
 * layers of each chunk. */
static lh_status check_operations(const lh_plan_elastic *e, uint32_t n_chunks,
                                  lh_error *err)
{
    for (uint32_t i = 0; i < e->n_recomputed; i++) {
        uint32_t k = 0;
        while (k < N_OPERATIONS &&
               strcmp(operations[k].name, e->recomputed[i].operation) != 0)
            k++;
        if (k < N_OPERATIONS && e->recomputed[i].n_chunks == n_chunks)
            continue;
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the plan recomputes '%s'%s; plan with recompute: "
                        "none, selective or full in the job's training",
                        e->recomputed[i].operation,
                        k < N_OPERATIONS
                            ? ", but does not list the layers"
                            : ", which the cpu device does not support");
    }
    return LH_OK;
}

/* Checks whether the model's layers contain entry `k` of the table
 * `operations`, which lists the operations that elastic plans may recompute
 * ("gate", "latent", "shared up" and others). */
static bool has_operation(const lh_model *m, uint32_t k)
{
    const char *name = operations[k].name;
    bool latent =
        strcmp(name, "latent") == 0 || strcmp(name, "key and value") == 0;
    bool plain = strcmp(name, "key") == 0 || strcmp(name, "value") == 0;
    if (operations[k].part == LH_N_LAYER_PARTS ||
        (!m->gated && strcmp(name, "gate") == 0) ||
        (!m->shared_expert_ffn && strncmp(name, "shared ", 7) == 0))
        return false;
    return m->kv_lora_rank ? !plain : !latent;
}

/* Sets again[i] to the bit set of activation parts that layer i recomputes
 * under an elastic plan, which selects single operations. LH_EUNSUPPORTED: one
 * part's operations are recomputed in different numbers of layers. */
static lh_status list_operations(const lh_plan *plan, uint32_t n_chunks,
                                 uint32_t *again, lh_error *err)
{
    const lh_plan_elastic *e = plan->best.elastic;
    LHI_TRY(check_operations(e, n_chunks, err));
    for (uint32_t c = 0; c < n_chunks; c++) {
        uint32_t first, n, of_part[LH_N_LAYER_PARTS + 1];
        lh_plan_layers(plan, c, &first, &n);
        for (uint32_t i = 0; i < LH_N_LAYER_PARTS; i++)
            of_part[i] = UINT32_MAX;
        for (uint32_t k = 0; k < N_OPERATIONS; k++) {
            uint32_t *made = &of_part[operations[k].part];
            uint32_t here = count_recomputed_layers(e, operations[k].name, c);
            if (!has_operation(plan->job->model, k))
                continue;
            if (*made != UINT32_MAX && *made != here)
                return lhi_fail(
                    err, LH_EUNSUPPORTED,
                    "the plan recomputes '%s' in %" PRIu32 " of chunk %" PRIu32
                    "'s layers, but the operations fused with it in %" PRIu32
                    "; the cpu device recomputes all of them or none: plan "
                    "with recompute: none, selective or full in the job's "
                    "training",
                    operations[k].name, here, c, *made);
            *made = here;
        }
        for (uint32_t part = 0; part < LH_N_LAYER_PARTS; part++)
            for (uint32_t i = 0;
                 of_part[part] < UINT32_MAX && i < of_part[part]; i++)
                again[first + i] |= 1u << part;
    }
    return LH_OK;
}

/* Returns the bit set of activation parts in layer `layer` that Megatron's
 * recompute modules in the bit set `modules` produce. */
static uint32_t find_recomputed_parts(const lh_model *m, uint32_t modules,
                                      uint32_t layer)
{
    const uint32_t norms =
        1u << LH_PART_ATTENTION_NORM | 1u << LH_PART_MLP_NORM;
    const uint32_t act = 1u << LH_PART_ACTIVATION;
    const uint32_t mlp = act | 1u << LH_PART_GATE_UP;
    const uint32_t shared =
        1u << LH_PART_SHARED_GATE_UP | 1u << LH_PART_SHARED_ACTIVATION;
    const bool moe = lhi_layer_is_moe(m, layer);
    const struct {
        lh_module module;
        uint32_t parts;
    } rows[] = {
        {LH_MODULE_CORE_ATTN, 1u << LH_PART_ATTENTION},
        {LH_MODULE_LAYERNORM, norms},
        {LH_MODULE_MLA_UP_PROJ, 1u << LH_PART_QKV},
        {LH_MODULE_MLP, moe ? 0 : mlp},
        {LH_MODULE_MOE, moe ? mlp | shared : 0},
        {LH_MODULE_MOE_ACT, moe ? act : 0},
        {LH_MODULE_SHARED_EXPERTS, moe ? shared : 0},
    };
    uint32_t parts = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        parts |= modules >> rows[i].module & 1 ? rows[i].parts : 0;
    return parts;
}

/* Sets again[i] to the bit set of activation parts (such as qkv) that layer i
 * recomputes under the plan; entries after the layers are the multi-token
 * prediction modules. */
static lh_status list_recomputed(const lh_plan *plan, uint32_t n_chunks,
                                 uint32_t *again, lh_error *err)
{
    uint32_t cheap = 1u << LH_PART_ATTENTION_NORM | 1u << LH_PART_MLP_NORM |
                     1u << LH_PART_ACTIVATION | 1u << LH_PART_SHARED_ACTIVATION;
    lh_recompute kind = plan->best.recompute;
    if (kind == LH_RECOMPUTE_OPERATIONS)
        return list_operations(plan, n_chunks, again, err);
    const lh_model *model = plan->job->model;
    uint32_t modules = plan->job->training.recompute_modules;
    for (uint32_t i = 0; i < model->layers + model->mtp_layers; i++)
        again[i] = kind == LH_RECOMPUTE_FULL        ? LH_PART_ALL
                   : kind == LH_RECOMPUTE_SELECTIVE ? cheap
                   : kind == LH_RECOMPUTE_MODULES
                       ? find_recomputed_parts(model, modules, i)
                       : 0;
    return LH_OK;
}

/* Returns a flag per layer: its activations are offloaded to storage. With host
 * memory all layers may be, otherwise each chunk's first layers, as many as the
 * plan offloads. Release with free(); NULL: out of memory. */
static bool *list_offload(const lh_plan *plan, const lh_pipeline *pipeline)
{
    const uint32_t n_chunks = lhi_pipeline_count_model_chunks(pipeline);
    const bool hosts = lh_pipeline_has_host(pipeline);
    bool *offload = calloc(plan->job->model->layers + 1u, sizeof *offload);
    for (uint32_t c = 0; offload && c < n_chunks; c++) {
        uint32_t first, n;
        lh_plan_layers(plan, c, &first, &n);
        const uint32_t leave =
            hosts ? n : lhi_count_offloaded_layers(plan->job, n);
        for (uint32_t i = 0; i < leave; i++)
            offload[first + i] = true;
    }
    return offload;
}

/* Copies the plan's parallel degrees (data, context, tensor, expert) to the
 * training options. */
static void set_degrees(const lh_plan *plan, lh_train_model *m)
{
    const lh_layout *l = &plan->best.layout;
    m->replicas = l->data;
    m->tensor = l->tensor;
    m->context = l->context;
    m->expert = l->expert;
    m->expert_tensor = l->expert_tensor;
    m->no_sequence_parallel = plan->job->framework.no_sequence_parallel;
}

/* Fails with LH_EUNSUPPORTED if the plan places multi-token prediction modules
 * on another rank than the head. */
static lh_status check_modules(const lh_plan *plan, lh_error *err)
{
    if (!plan->job->layout.mtp_chunk)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the plan has modules of mtp_layers in chunk %" PRIu32
                    ", separate from the head; the cpu device requires them "
                    "with the head: plan without mtp_chunk in the job's layout",
                    plan->job->layout.mtp_chunk);
}

/* Trains the plan's model on cpu devices, with the plan's layers,
 * recomputation, offloading and sharding; `given`: the caller's options for
 * data, checkpoints and optimizer. */
static lh_status train_cpu(const lh_plan *plan, const lh_pipeline *pipeline,
                           const lh_exec *exec, const lh_train_model *given,
                           const lh_train_options *run, lh_train_result **out,
                           lh_error *err)
{
    lh_train_model m;
    LHI_TRY(LHI_OPTIONS_COPY(lh_train_model, &m, given, err));
    LHI_TRY(check_optimizer(plan, &m, err));
    LHI_TRY(check_precision(plan->job, err));
    LHI_TRY(check_modules(plan, err));
    LHI_TRY(check_profile(plan, run, err));
    uint32_t n_chunks = lhi_pipeline_count_model_chunks(pipeline);
    uint32_t *first = list_first_layers(plan, n_chunks);
    const lh_model *model = plan->job->model;
    uint32_t *again =
        calloc((size_t)model->layers + model->mtp_layers + 1, sizeof *again);
    bool *offload = list_offload(plan, pipeline);
    uint32_t *sites = NULL, *nodes = NULL, *micro_batches = NULL,
             *tensors = NULL;
    lh_status status = first && again && offload
                           ? list_recomputed(plan, n_chunks, again, err)
                           : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_plan_set_sharding(plan, &m, &sites, err);
    if (status == LH_OK)
        status = list_nodes(plan, &nodes, err);
    m.nodes = nodes;
    if (status == LH_OK)
        status = list_micro_batches(&plan->best.layout, &micro_batches, err);
    m.micro_batches = micro_batches;
    if (status == LH_OK)
        status = list_stage_tensors(&plan->best.layout, &tensors, err);
    m.stage_tensors = tensors;
    if (status == LH_OK)
        status = lhi_plan_set_group_links(plan, &m, err);
    if (status == LH_OK) {
        m.model = model;
        m.first_layers = first;
        m.recompute = again;
        m.offload = offload;
        m.micro_batch = plan->best.layout.micro_batch;
        m.sequence = plan->job->training.sequence;
        set_degrees(plan, &m);
        m.dropout = lhi_job_dropout(plan->job);
        m.balance_loss = lhi_job_balance_loss(plan->job);
        m.balance_bias = lhi_job_balance_bias(plan->job);
        m.expert_capacity = plan->job->training.expert_capacity;
        m.end_ns = plan->best.optimizer_ns + plan->best.overhead_ns;
        m.includes_sharing = was_measured_shared(plan, pipeline);
        m.bf16 = plan->job->training.precision == LH_PRECISION_BF16;
        status = lh_train_cpu(pipeline, exec, &m, run, out, err);
    }
    free(first);
    free(again);
    free(offload);
    free(sites);
    free(nodes);
    free(micro_batches);
    free(tensors);
    return status;
}

lh_status lh_train_plan(const lh_plan *plan,
                        const lh_train_plan_options *options,
                        lh_train_result **out, lh_error *err)
{
    lh_train_plan_options o;
    lh_train_options run;
    LHI_TRY(LHI_OPTIONS_COPY(lh_train_plan_options, &o, options, err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_train_options, &run, o.run, err));
    if (o.device != LH_TRAIN_CPU && o.device != LH_TRAIN_TIMED)
        return lhi_fail(err, LH_EINVAL, "no device has the number %d",
                        (int)o.device);
    const lh_pipeline *pipeline = o.pipeline ? o.pipeline : plan->pipeline;
    lh_pipeline *plain = NULL;
    lh_exec_options lowers;
    LHI_TRY(LHI_OPTIONS_COPY(lh_exec_options, &lowers, o.exec, err));
    if (o.device == LH_TRAIN_CPU) {
        LHI_TRY(lhi_pipeline_remove_overlap(pipeline, &plain, err));
        pipeline = plain ? plain : pipeline;
    }
    const lh_schedule *schedule = o.schedule ? o.schedule : plan->schedule;
    if (run.message_bytes == 0)
        run.message_bytes = lh_train_message_bytes(plan);
    lh_exec *exec;
    lh_train_result *made = NULL;
    lowers.lists_host_copies =
        o.device == LH_TRAIN_CPU && lh_pipeline_has_host(pipeline);
    lh_status status = lh_exec_make(pipeline, schedule, &lowers, &exec, err);
    if (status == LH_OK) {
        status =
            o.device == LH_TRAIN_CPU
                ? train_cpu(plan, pipeline, exec, o.model, &run, &made, err)
                : lh_train_timed(pipeline, exec, &run, &made, err);
        lh_exec_free(exec);
    }
    if (status == LH_OK) {
        made->utilisation = compute_utilisation(plan, made->median_ns);
        if (o.device == LH_TRAIN_CPU)
            status = add_planned_values(
                &(lhi_plan_run){plan, pipeline, schedule, o.exec}, made, err);
    }
    lh_pipeline_free(plain);
    if (status != LH_OK) {
        lh_train_result_free(made);
        return status;
    }
    *out = made;
    return LH_OK;
}
