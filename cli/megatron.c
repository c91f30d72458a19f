/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of the arguments: Megatron-LM, megatron/training/
 * arguments.py and megatron/core/transformer/pipeline_parallel_layer_layout.py
 * (core 0.13). */
#define _POSIX_C_SOURCE 200809L
#include "megatron.h"
#include "inputs.h"
#include "view.h"

#include <inttypes.h>
#include <longhaul/methods.h>
#include <longhaul/simulate.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS = 1024 };

static void put(FILE *out, const char *name, uint32_t value)
{
    fprintf(out, "--%s %" PRIu32 "\n", name, value);
}

/* "Et*9|t*10|...|t*9L": embedding, decoder layers, multi-token prediction
 * layers, loss; stage k goes to rank k mod PP. */
static void put_stages(FILE *out, const lh_plan *plan)
{
    uint32_t chunks = lh_pipeline_n_chunks(plan->pipeline);
    fputs("--pipeline-model-parallel-layout E", out);
    for (uint32_t i = 0; i < chunks; i++) {
        uint32_t first, count;
        lh_plan_layers(plan, i, &first, &count);
        fprintf(out, "%st*%" PRIu32, i ? "|" : "", count);
    }
    if (plan->job->model->mtp_layers)
        fprintf(out, "m*%" PRIu32, plan->job->model->mtp_layers);
    fputs("L\n", out);
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

static void put_modules(FILE *out, const lh_plan_elastic *e)
{
    bool any = false;
    for (size_t m = 0; m < sizeof modules / sizeof *modules; m++) {
        if (!is_module(e, m))
            continue;
        fputs(any ? ""
                  : "--recompute-granularity selective\n"
                    "--recompute-modules",
              out);
        fprintf(out, " %s", modules[m].module);
        any = true;
    }
    fputs(any ? "\n" : "", out);
}

/* What Megatron-LM has no argument for. */
static void put_missing(FILE *out, const lh_plan_elastic *e, uint32_t zero)
{
    bool any = false;
    if (zero <= 1 && e->gradients > 0)
        fprintf(out,
                "# Not expressed: gradients of %.0f %% and parameters of "
                "%.0f %% of the model are sharded beyond ZeRO-1.\n",
                100 * e->gradients, 100 * e->parameters);
    for (uint32_t i = 0; i < e->n_recomputed; i++) {
        if (is_expressed(e, e->recomputed[i].operation))
            continue;
        fprintf(out, "%s %s %.0f to %.0f %%",
                any ? "," : "# Not expressed: recomputed", /* of layers */
                e->recomputed[i].operation, 100 * e->recomputed[i].first,
                100 * e->recomputed[i].last);
        any = true;
    }
    fputs(any ? " of the layers.\n" : "", out);
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

static void put_groups(FILE *out, const lh_plan *plan, uint32_t size)
{
    const lh_choice *best = &plan->best;
    const lh_plan_elastic *e = best->elastic;
    uint32_t zero = plan->job->training.zero;
    int64_t ns;
    lh_error err = {0};
    fprintf(out,
            "# Megatron-LM takes %" PRIu32 " microbatches together, forward "
            "and backward",
            size);
    if (e->n_recomputed == 0 && zero <= 1 && !best->chunk_layers) {
        if (time_groups(plan, size, &ns, &err) == LH_OK)
            fprintf(out, ": %.3f s, %+.1f %%.\n", (double)ns / 1e9,
                    100 * ((double)ns / (double)best->iteration_ns - 1));
        else
            fprintf(out, ", which does not work: %s.\n", err.text);
    } else {
        fputs(", of which the plan has no prediction.\n", out);
    }
    put_missing(out, e, zero);
}

static void put_memory(FILE *out, const lh_plan *plan)
{
    switch (plan->job->training.zero) {
    case 0:
        break;
    case 1:
        fputs("--use-distributed-optimizer\n--overlap-grad-reduce\n"
              "--overlap-param-gather\n",
              out);
        break;
    default:
        fprintf(out,
                "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n",
                plan->job->training.zero == 2 ? "optim_grads"
                                              : "optim_grads_params");
        break;
    }
    if (cli_state_groups(plan) > 1)
        put(out, "num-distributed-optimizer-instances", cli_state_groups(plan));
    if (plan->best.elastic)
        put_modules(out, plan->best.elastic);
    if (plan->best.recompute == LH_RECOMPUTE_SELECTIVE)
        fputs("--recompute-granularity selective\n", out);
    if (plan->best.recompute == LH_RECOMPUTE_FULL)
        fputs("--recompute-granularity full\n--recompute-method uniform\n"
              "--recompute-num-layers 1\n",
              out);
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

static void put_remarks(FILE *out, const lh_plan *plan)
{
    const lh_choice *best = &plan->best;
    const char *method =
        best->layout.chunks_per_device > 1 ? "interleaved-1f1b" : "1f1b";
    fprintf(out, "# The plan: %s on %s, %.3f s per iteration.\n",
            best->layout.schedule, lh_placement_name(best->placement),
            (double)best->iteration_ns / 1e9);
    if (strcmp(best->layout.schedule, method) == 0)
        return;
    if (runs_groups(best)) {
        put_groups(out, plan, group_size(best));
        return;
    }
    if (best->elastic)
        put_missing(out, best->elastic, plan->job->training.zero);
    const lh_choice *other = nearest(plan, method);
    fprintf(out, "# Megatron-LM runs %s in its place", method);
    if (other)
        fprintf(
            out, ": %.3f s, %+.1f %%.\n", (double)other->iteration_ns / 1e9,
            100 *
                ((double)other->iteration_ns / (double)best->iteration_ns - 1));
    else
        fputs(", of which the plan has no prediction.\n", out);
}

static void put_all(FILE *out, const lh_plan *plan)
{
    const lh_job *job = plan->job;
    const lh_layout *l = &plan->best.layout;
    fprintf(out, "# Made by longhaul %s from %s\n", plan->version, plan->name);
    put_remarks(out, plan);
    cli_put_ranks(out, plan);
    put(out, "tensor-model-parallel-size", l->tensor);
    if (l->tensor > 1)
        fputs("--sequence-parallel\n", out);
    put(out, "context-parallel-size", l->context);
    if (job->model->experts)
        put(out, "expert-model-parallel-size", l->expert);
    put(out, "pipeline-model-parallel-size", l->pipeline);
    if (l->pipeline > 1)
        put_stages(out, plan);
    if (runs_groups(&plan->best))
        put(out, "microbatch-group-size-per-virtual-pipeline-stage",
            group_size(&plan->best));
    if (l->outermost == LH_OUTERMOST_DATA)
        fputs("--use-tp-pp-dp-mapping\n", out);
    /* GPUs that share experts have a microbatch together; here they are
     * replicas with one each. */
    put(out, "micro-batch-size", l->micro_batch / (l->expert ? l->expert : 1));
    put(out, "global-batch-size", job->training.global_batch);
    put(out, "seq-length", job->training.sequence);
    put(out, "num-layers", job->model->layers);
    if (job->model->mtp_layers)
        put(out, "mtp-num-layers", job->model->mtp_layers);
    if (job->training.precision != LH_PRECISION_FP32)
        fprintf(out, "--%s\n", lh_precision_name(job->training.precision));
    put_memory(out, plan);
}

lh_status cli_megatron(cli *c, const lh_plan *plan, char **text)
{
    size_t len;
    if (plan->best.layout.pipeline > 1 &&
        plan->best.placement != LH_PLACEMENT_UD &&
        plan->best.placement != LH_PLACEMENT_LOOP)
        return cli_error(c, LH_EUNSUPPORTED,
                         "Megatron-LM puts stage k on rank k mod pipeline, "
                         "this plan lays its chunks out as a %s; plan with "
                         "layout.schedule: 1f1b or interleaved-1f1b, which it "
                         "can run",
                         lh_placement_name(plan->best.placement));
    if (!cli_state_groups(plan))
        return cli_error(c, LH_EUNSUPPORTED,
                         "Megatron-LM divides replicas into equal instances of "
                         "its optimizer; this plan's datacenters have "
                         "different numbers of them");
    if (cli_state_groups(plan) > 1 &&
        plan->best.layout.sharding == LH_SHARDING_HYBRID_LEADERS)
        return cli_error(c, LH_EUNSUPPORTED,
                         "Megatron-LM sums gradients of every GPU between "
                         "instances of its optimizer, this plan those of one "
                         "in each datacenter; plan with layout.sharding: "
                         "hybrid");
    FILE *out = open_memstream(text, &len);
    if (!out)
        return cli_no_memory(c);
    put_all(out, plan);
    bool ok = !ferror(out);
    if (fclose(out) != 0 || !ok) {
        free(*text);
        *text = NULL;
        return cli_no_memory(c);
    }
    return LH_OK;
}
