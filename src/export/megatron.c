/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of the arguments: Megatron-LM, megatron/training/
 * arguments.py and megatron/core/transformer/pipeline_parallel_layer_layout.py
 * (core 0.13). */
#include "export/export_own.h"

#include <inttypes.h>
#include <longhaul/methods.h>
#include <longhaul/simulate.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS = 1024 };

/* "Et*9|t*10|...|t*9L": embedding, decoder layers, multi-token prediction
 * layers, loss; stage k goes to rank k mod PP. */
static void put_stages(lhi_text *out, const lh_plan *plan)
{
    uint32_t chunks = lh_pipeline_n_chunks(plan->pipeline);
    lhi_text_puts(out, "--pipeline-model-parallel-layout E");
    for (uint32_t i = 0; i < chunks; i++) {
        uint32_t first, count;
        lh_plan_layers(plan, i, &first, &count);
        lhi_text_puts(out, i ? "|" : "");
        if (count)
            lhi_text_printf(out, "t*%" PRIu32, count);
    }
    if (plan->job->model->mtp_layers)
        lhi_text_printf(out, "m*%" PRIu32, plan->job->model->mtp_layers);
    lhi_text_puts(out, "L\n");
}

/* --- elastic plans -----------------------------------------------------------
 */

/* Megatron-LM's groups are of one size, the same forward and backward; what
 * remains must be a group of at least as many as there are stages. No larger
 * ones than the plan's, which hold more, and of these those with the longest
 * last group, behind which the last scatters hide. 0: there is no such size. */
static uint32_t group_size(const lh_choice *best)
{
    uint32_t P = best->layout.pipeline, n = best->microbatches;
    uint32_t found = 0, longest = 0;
    for (uint32_t size = best->elastic->enqueue[0]; size >= P && size; size--) {
        uint32_t last = n % size ? n % size : size;
        if (last < P || last <= longest)
            continue;
        found = size;
        longest = last;
    }
    return found;
}

static bool is_whole(const lh_plan_elastic *e, const char *operation)
{
    for (uint32_t i = 0; i < e->n_recomputed; i++)
        if (strcmp(e->recomputed[i].operation, operation) == 0)
            return e->recomputed[i].first >= 1 && e->recomputed[i].last >= 1;
    return false;
}

/* What the modules hold whose activations Megatron-LM can make again, in all
 * layers of all stages. */
static const struct {
    const char *module, *operations[4];
} modules[] = {{"core_attn", {"attention"}},
               {"layernorm", {"attention norm", "mlp norm"}},
               {"mlp", {"up", "gate", "activation"}}};

static bool is_module(const lh_plan_elastic *e, size_t m)
{
    for (size_t i = 0; i < 4 && modules[m].operations[i]; i++)
        if (!is_whole(e, modules[m].operations[i]))
            return false;
    return true;
}

static bool is_expressed(const lh_plan_elastic *e, const char *operation)
{
    for (size_t m = 0; m < sizeof modules / sizeof *modules; m++)
        for (size_t i = 0; i < 4 && modules[m].operations[i]; i++)
            if (strcmp(modules[m].operations[i], operation) == 0)
                return is_module(e, m);
    return false;
}

static void put_modules(lhi_text *out, const lh_plan_elastic *e)
{
    bool any = false;
    for (size_t m = 0; m < sizeof modules / sizeof *modules; m++) {
        if (!is_module(e, m))
            continue;
        lhi_text_puts(out, any ? ""
                               : "--recompute-granularity selective\n"
                                 "--recompute-modules");
        lhi_text_printf(out, " %s", modules[m].module);
        any = true;
    }
    lhi_text_puts(out, any ? "\n" : "");
}

/* What Megatron-LM has no argument for. */
static void put_missing(lhi_text *out, const lh_plan_elastic *e, uint32_t zero)
{
    bool any = false;
    if (zero <= 1 && e->gradients > 0)
        lhi_text_printf(
            out,
            "# Not expressed: gradients of %.0f %% and parameters of "
            "%.0f %% of the model are sharded beyond ZeRO-1.\n",
            100 * e->gradients, 100 * e->parameters);
    for (uint32_t i = 0; i < e->n_recomputed; i++) {
        if (is_expressed(e, e->recomputed[i].operation))
            continue;
        lhi_text_printf(
            out, "%s %s %.0f to %.0f %%",
            any ? "," : "# Not expressed: recomputed", /* of layers */
            e->recomputed[i].operation, 100 * e->recomputed[i].first,
            100 * e->recomputed[i].last);
        any = true;
    }
    lhi_text_puts(out, any ? " of the layers.\n" : "");
}

/* The time of these groups with ZeRO-1 and nothing recomputed. */
static lh_status time_groups(const lh_plan *plan, uint32_t size, int64_t *out,
                             lh_error *err)
{
    const lh_choice *best = &plan->best;
    uint32_t n = 0, groups[MOST_GROUPS];
    for (uint32_t left = best->microbatches; left && n < MOST_GROUPS; n++) {
        groups[n] = left < size ? left : size;
        left -= groups[n];
    }
    lh_method_options o = {.size = sizeof o,
                           .n_enqueue = n,
                           .n_dequeue = n,
                           .enqueue = groups,
                           .dequeue = groups};
    lh_pipeline *p = NULL;
    lh_schedule *schedule = NULL;
    lh_timeline *t = NULL;
    lh_status status =
        lh_plan_pipeline(plan->job, &best->layout, best->placement,
                         best->recompute, &p, NULL, err);
    if (status == LH_OK)
        status = lh_method_run("elastic", p, &o, &schedule, NULL, err);
    if (status == LH_OK)
        status = lh_simulate(p, schedule, NULL, &t, err);
    if (status == LH_OK)
        *out = lh_timeline_makespan(t) + best->optimizer_ns + best->overhead_ns;
    lh_timeline_free(t);
    lh_schedule_free(schedule);
    lh_pipeline_free(p);
    return status;
}

/* One chunk is 1F1B whatever the groups. */
static bool runs_groups(const lh_choice *best)
{
    return best->elastic && best->layout.chunks_per_device > 1 &&
           best->layout.pipeline > 1 && group_size(best) > 0;
}

static void put_groups(lhi_text *out, const lh_plan *plan, uint32_t size)
{
    const lh_choice *best = &plan->best;
    const lh_plan_elastic *e = best->elastic;
    uint32_t zero = plan->best.zero;
    int64_t ns;
    lh_error err = {0};
    lhi_text_printf(out,
                    "# Megatron-LM takes %" PRIu32
                    " microbatches together, forward "
                    "and backward",
                    size);
    if (e->n_recomputed == 0 && zero <= 1 && !best->chunk_layers) {
        lh_status status = time_groups(plan, size, &ns, &err);
        out->failed = out->failed || status == LH_ENOMEM;
        if (status == LH_OK) {
            lhi_text_printf(out, ": %.3f s, %+.1f %%.\n", (double)ns / 1e9,
                            100 *
                                ((double)ns / (double)best->iteration_ns - 1));
        } else {
            lhi_text_puts(out, ", which does not work: ");
            lhi_text_add_shown(out, err.text, SIZE_MAX);
            lhi_text_puts(out, ".\n");
        }
    } else {
        lhi_text_puts(out, ", of which the plan has no prediction.\n");
    }
    put_missing(out, e, zero);
}

static void put_module_names(lhi_text *out, uint32_t named)
{
    lhi_text_puts(out,
                  "--recompute-granularity selective\n--recompute-modules");
    for (uint32_t i = 0; i < LH_N_MODULES; i++)
        if (named >> i & 1)
            lhi_text_printf(out, " %s", lh_module_name((lh_module)i));
    lhi_text_puts(out, "\n");
}

/* What the cost model takes for cheap. Megatron-LM's default is core_attn,
 * which fused attention makes again by itself. */
static void put_cheap(lhi_text *out, const lh_job *job)
{
    const lh_model *m = job->model;
    if (job->framework.unfused_attention) {
        put_module_names(out, 1u << LH_MODULE_CORE_ATTN);
        return;
    }
    put_module_names(out, 1u << LH_MODULE_LAYERNORM |
                              (m->experts ? 1u << LH_MODULE_MOE_ACT : 0));
    if (m->ffn || m->shared_expert_ffn)
        lhi_text_puts(out,
                      "# Not expressed: recomputed activation functions of "
                      "MLPs that all tokens go through.\n");
}

static void put_recompute(lhi_text *out, const lh_plan *plan)
{
    switch (plan->best.recompute) {
    case LH_RECOMPUTE_NONE:
        break;
    case LH_RECOMPUTE_SELECTIVE:
        put_cheap(out, plan->job);
        break;
    case LH_RECOMPUTE_FULL:
        lhi_text_puts(
            out, "--recompute-granularity full\n--recompute-method uniform\n"
                 "--recompute-num-layers 1\n");
        break;
    case LH_RECOMPUTE_MODULES:
        put_module_names(out, plan->job->training.recompute_modules);
        break;
    }
}

static void put_memory(lhi_text *out, const lh_plan *plan)
{
    switch (plan->best.zero) {
    case 0:
        if (plan->best.layout.chunks_per_device > 1)
            lhi_text_puts(out, "--overlap-grad-reduce\n");
        break;
    case 1:
        lhi_text_puts(out,
                      "--use-distributed-optimizer\n--overlap-grad-reduce\n"
                      "--overlap-param-gather\n");
        break;
    default:
        lhi_text_printf(
            out, "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n",
            plan->best.zero == 2 ? "optim_grads" : "optim_grads_params");
        break;
    }
    if (lhi_export_state_groups(plan) > 1)
        lhi_export_option(out, "num-distributed-optimizer-instances",
                          lhi_export_state_groups(plan));
    if (plan->best.elastic)
        put_modules(out, plan->best.elastic);
    put_recompute(out, plan);
}

/* The plan's choice that is nearest to what Megatron-LM will do. */
static const lh_choice *nearest(const lh_plan *plan, const char *method)
{
    for (uint32_t i = 0; i < plan->n_methods; i++)
        if (plan->methods[i].status == LH_CHOICE_OK &&
            strcmp(plan->methods[i].layout.schedule, method) == 0 &&
            plan->methods[i].layout.chunks_per_device ==
                plan->best.layout.chunks_per_device)
            return &plan->methods[i];
    return NULL;
}

static void put_remarks(lhi_text *out, const lh_plan *plan)
{
    const lh_choice *best = &plan->best;
    const char *method =
        best->layout.chunks_per_device > 1 ? "interleaved-1f1b" : "1f1b";
    lhi_text_printf(out, "# The plan: %s on %s, %.3f s per iteration.\n",
                    best->layout.schedule, lh_placement_name(best->placement),
                    (double)best->iteration_ns / 1e9);
    if (strcmp(best->layout.schedule, method) == 0)
        return;
    if (runs_groups(best)) {
        put_groups(out, plan, group_size(best));
        return;
    }
    if (best->elastic)
        put_missing(out, best->elastic, plan->best.zero);
    const lh_choice *other = nearest(plan, method);
    lhi_text_printf(
        out, "# Megatron-LM runs %s in its place",
        best->layout.pipeline > 1 ? method : "one microbatch after the other");
    if (other)
        lhi_text_printf(
            out, ": %.3f s, %+.1f %%.\n", (double)other->iteration_ns / 1e9,
            100 *
                ((double)other->iteration_ns / (double)best->iteration_ns - 1));
    else
        lhi_text_puts(out, ", of which the plan has no prediction.\n");
}

static void put_experts(lhi_text *out, const lh_job *job, const lh_layout *l)
{
    lhi_export_option(out, "expert-model-parallel-size", l->expert);
    lhi_export_option(out, "expert-tensor-parallel-size",
                      lh_layout_expert_tensor(l));
    if (l->expert == 1)
        return;
    if (job->training.dispatcher == LH_DISPATCHER_DEEPEP)
        lhi_text_puts(out, "--moe-token-dispatcher-type flex\n"
                           "--moe-flex-dispatcher-backend deepep\n");
    else
        lhi_text_puts(out, "--moe-token-dispatcher-type alltoall\n");
}

/* What its distributed optimizer gathers in 8 bits nothing else keeps so. */
static void put_fp8(lhi_text *out, const lh_plan *plan)
{
    const lh_framework *f = &plan->job->framework;
    if (f->fp8 == LH_FP8_NONE)
        return;
    lhi_text_puts(out, "--fp8-format hybrid\n");
    if (plan->best.zero > 0)
        lhi_text_puts(out, "--fp8-param-gather\n");
    else
        lhi_text_puts(out, "# Not expressed: weights in 8 bits, for which "
                           "Megatron-LM wants its distributed optimizer.\n");
    if (f->fp8 == LH_FP8_DISPATCH && plan->best.layout.expert > 1)
        lhi_text_puts(out, "# Not expressed: tokens go to experts in 8 "
                           "bits.\n");
}

/* What the plan was costed with, where it is not Megatron-LM's default. */
static void put_framework(lhi_text *out, const lh_plan *plan)
{
    const lh_framework *f = &plan->job->framework;
    if (plan->job->training.precision == LH_PRECISION_BF16 &&
        f->gradients == LH_GRADIENT_BF16 && f->reduce == LH_GRADIENT_BF16)
        lhi_text_puts(out, "--grad-reduce-in-bf16\n");
    put_fp8(out, plan);
    if (f->overlap_tensor > 0 && plan->best.layout.tensor > 1)
        lhi_text_puts(out, "--tp-comm-overlap\n");
    if (f->overlap_expert > 0 && plan->best.layout.expert > 1)
        lhi_text_puts(out, "--overlap-moe-expert-parallel-comm\n");
    if (f->fused_experts)
        lhi_text_puts(out, "# In the environment: "
                           "NVTE_CUTEDSL_FUSED_GROUPED_MLP=1\n"
                           "--use-transformer-engine-op-fuser\n");
}

static void put_all(lhi_text *out, const lh_plan *plan)
{
    const lh_job *job = plan->job;
    const lh_layout *l = &plan->best.layout;
    lhi_export_origin(out, plan);
    put_remarks(out, plan);
    lhi_export_ranks(out, plan);
    lhi_export_option(out, "tensor-model-parallel-size", l->tensor);
    if (l->tensor > 1)
        lhi_text_puts(out, "--sequence-parallel\n");
    lhi_export_option(out, "context-parallel-size", l->context);
    if (job->model->experts)
        put_experts(out, job, l);
    lhi_export_option(out, "pipeline-model-parallel-size", l->pipeline);
    if (l->pipeline > 1)
        put_stages(out, plan);
    if (runs_groups(&plan->best))
        lhi_export_option(out,
                          "microbatch-group-size-per-virtual-pipeline-stage",
                          group_size(&plan->best));
    if (l->outermost == LH_OUTERMOST_DATA)
        lhi_text_puts(out, "--use-tp-pp-dp-mapping\n");
    lhi_export_option(out, "micro-batch-size", l->micro_batch);
    lhi_export_option(out, "global-batch-size", job->training.global_batch);
    lhi_export_option(out, "seq-length", job->training.sequence);
    lhi_export_option(out, "num-layers", job->model->layers);
    if (job->model->mtp_layers)
        lhi_export_option(out, "mtp-num-layers", job->model->mtp_layers);
    if (job->training.precision != LH_PRECISION_FP32)
        lhi_text_printf(out, "--%s\n",
                        lh_precision_name(job->training.precision));
    put_framework(out, plan);
    put_memory(out, plan);
}

/* With replicas outermost a stage's ranks do not follow each other, and
 * parallel_state.py wants as many copies of the experts as there are replicas.
 */
static lh_status refuse_experts(const lh_plan *plan, lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    uint64_t block = lh_layout_expert_block(l);
    uint64_t replica = (uint64_t)l->tensor * l->context;
    if (!plan->job->model->experts || l->outermost != LH_OUTERMOST_DATA ||
        l->pipeline == 1 || block == replica)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "Megatron-LM with --use-tp-pp-dp-mapping spreads experts "
                    "over the ranks of one replica's stage, tensor x context "
                    "%" PRIu64 ", and this plan over expert x expert_tensor "
                    "%" PRIu64 "; plan with layout.outermost: pipeline",
                    replica, block);
}

static lh_status refuse_megatron(const lh_plan *plan, lh_error *err)
{
    LHI_TRY(refuse_experts(plan, err));
    if (plan->best.layout.pipeline > 1 &&
        plan->best.placement != LH_PLACEMENT_UD &&
        plan->best.placement != LH_PLACEMENT_LOOP)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "Megatron-LM puts stage k on rank k mod pipeline, "
                        "this plan lays its chunks out as a %s; plan with "
                        "layout.schedule: 1f1b or interleaved-1f1b, which it "
                        "can run",
                        lh_placement_name(plan->best.placement));
    if (!lhi_export_state_groups(plan))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "Megatron-LM divides replicas into equal instances of "
                        "its optimizer; this plan's datacenters have "
                        "different numbers of them");
    if (lhi_export_state_groups(plan) > 1 &&
        plan->best.layout.sharding == LH_SHARDING_HYBRID_LEADERS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "Megatron-LM sums gradients of every GPU between "
                        "instances of its optimizer, this plan those of one "
                        "in each datacenter; plan with layout.sharding: "
                        "hybrid");
    return LH_OK;
}

lh_status lh_export_megatron(const lh_plan *plan, char **text, size_t *len,
                             lh_error *err)
{
    lhi_text out = {0};
    LHI_TRY(refuse_megatron(plan, err));
    put_all(&out, plan);
    return lhi_text_take(&out, text, len, err);
}
