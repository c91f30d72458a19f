/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of the arguments: Megatron-LM, megatron/training/
 * arguments.py and megatron/core/transformer/pipeline_parallel_layer_layout.py
 * (core 0.13). */
#define _POSIX_C_SOURCE 200809L
#include "megatron.h"
#include "inputs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
            strcmp(plan->methods[i].layout.schedule, method) == 0)
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
    put(out, "tensor-model-parallel-size", l->tensor);
    if (l->tensor > 1)
        fputs("--sequence-parallel\n", out);
    put(out, "context-parallel-size", l->context);
    if (job->model->experts)
        put(out, "expert-model-parallel-size", l->expert);
    put(out, "pipeline-model-parallel-size", l->pipeline);
    if (l->pipeline > 1)
        put_stages(out, plan);
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
