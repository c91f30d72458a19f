/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of the options: torchtitan of August 2026,
 * torchtitan/config/configs.py and distributed/pipeline_parallel.py. */
#define _POSIX_C_SOURCE 200809L
#include "torchtitan.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, "--%s %" PRIu64 "\n", name, value);
}

/* Modules of a stage by torchtitan's names. */
static json_t *stage_modules(const lh_plan *plan, uint32_t chunk)
{
    uint32_t n = lh_pipeline_n_chunks(plan->pipeline), first, count;
    char name[32];
    json_t *list = json_array();
    lh_plan_layers(plan, chunk, &first, &count);
    if (chunk == 0)
        json_array_append_new(list, json_string("tok_embeddings"));
    for (uint32_t i = first; i < first + count; i++) {
        snprintf(name, sizeof name, "layers.%" PRIu32, i);
        json_array_append_new(list, json_string(name));
    }
    if (chunk + 1 == n) {
        json_array_append_new(list, json_string("norm"));
        json_array_append_new(list, json_string("lm_head"));
    }
    return list;
}

static json_t *all_modules(const lh_plan *plan)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(plan->pipeline); i++)
        json_array_append_new(list, stage_modules(plan, i));
    return list;
}

lh_status cli_write_stages(cli *c, const lh_plan *plan, const char *path)
{
    json_t *ranks = json_array();
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(plan->pipeline); i++)
        json_array_append_new(
            ranks, json_integer(lh_pipeline_chunk(plan->pipeline, i)->device));
    json_t *all = json_pack("{s:o, s:o}", "module_fqns_per_model_part",
                            all_modules(plan), "stage_ranks", ranks);
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (!text)
        return cli_no_memory(c);
    lh_status status = cli_write(c, path, text, strlen(text));
    free(text);
    return status;
}

/* What decides where torchtitan puts stages: one, a loop or a V. The order of
 * passes is the CSV's. */
static const char *schedule_class(const lh_choice *best)
{
    switch (best->placement) {
    case LH_PLACEMENT_UD:
        return "1F1B";
    case LH_PLACEMENT_LOOP:
        return "Interleaved1F1B";
    case LH_PLACEMENT_WAVE:
        return "ZBVZeroBubble";
    default:
        return NULL;
    }
}

static lh_status refuse(cli *c, const lh_plan *plan)
{
    const lh_choice *best = &plan->best;
    if (best->layout.pipeline > 1 && !schedule_class(best))
        return cli_error(c, LH_EUNSUPPORTED,
                         "torchtitan puts stages on ranks one by one, in a "
                         "loop or in a V; this plan has another placement");
    if (best->layout.outermost == LH_OUTERMOST_DATA &&
        best->layout.pipeline > 1 && best->layout.data > 1)
        return cli_error(c, LH_EUNSUPPORTED,
                         "torchtitan numbers ranks with the pipeline "
                         "outermost, this plan has data parallelism there; "
                         "plan with layout.outermost: pipeline");
    uint32_t groups = cli_state_groups(plan);
    if (!groups)
        return cli_error(c, LH_EUNSUPPORTED,
                         "torchtitan shards over equal groups of replicas; "
                         "this plan's datacenters have different numbers of "
                         "them");
    if (groups > 1 && best->layout.sharding == LH_SHARDING_HYBRID_LEADERS)
        return cli_error(c, LH_EUNSUPPORTED,
                         "torchtitan sums gradients of every GPU between "
                         "groups, this plan those of one in each datacenter; "
                         "plan with layout.sharding: hybrid");
    return LH_OK;
}

/* GPUs that a group's microbatch is spread over besides, in torchtitan's
 * words part of data parallelism. */
static uint32_t sharers(const lh_layout *l)
{
    return l->expert ? l->expert : 1;
}

static void put_data_parallel(FILE *out, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint32_t zero = plan->job->training.zero;
    uint64_t degree = (uint64_t)l->data * sharers(l);
    uint64_t groups = zero == 0 ? degree : cli_state_groups(plan);
    put(out, "parallelism.data_parallel_replicate_degree", groups);
    put(out, "parallelism.data_parallel_shard_degree", degree / groups);
    const lh_plan_elastic *e = plan->best.elastic;
    if (e && e->parameters > 0 && e->parameters < 1)
        fprintf(out,
                "# Not expressed: the plan gathers %.0f %% of the parameters "
                "per block, torchtitan all or none.\n",
                100 * e->parameters);
    if (e && e->parameters >= 1)
        zero = 3;
    if (zero == 1)
        fputs("# ZeRO 1 becomes ZeRO 2: torchtitan shards gradients, too.\n",
              out);
    if (zero >= 1)
        fprintf(out, "--parallelism.fsdp_reshard_after_forward %s\n",
                zero == 3 ? "always" : "never");
}

static void put_pipeline(FILE *out, const lh_plan *plan)
{
    const lh_choice *best = &plan->best;
    put(out, "parallelism.pipeline_parallel_degree", best->layout.pipeline);
    if (best->layout.pipeline == 1)
        return;
    fprintf(out,
            "--parallelism.pipeline_parallel_schedule %s\n"
            "# longhaul export PLAN --to pytorch -o schedule.csv\n"
            "--parallelism.pipeline_parallel_schedule_csv schedule.csv\n",
            schedule_class(best));
    put(out, "parallelism.num_pp_microbatches", best->microbatches);
    char *modules = NULL;
    json_t *list = all_modules(plan);
    if (list)
        modules = json_dumps(list, JSON_COMPACT);
    if (modules)
        fprintf(out,
                "# In the configuration, which layers a stage has:\n"
                "# parallelism.module_fqns_per_model_part = %s\n",
                modules);
    json_decref(list);
    free(modules);
}

static void put_all(FILE *out, const lh_plan *plan)
{
    const lh_training *t = &plan->job->training;
    const lh_layout *l = &plan->best.layout;
    fprintf(out,
            "# Made by longhaul %s from %s\n"
            "# The plan: %s, %.3f s per iteration.\n",
            plan->version, plan->name, l->schedule,
            (double)plan->best.iteration_ns / 1e9);
    cli_put_ranks(out, plan);
    put(out, "parallelism.tensor_parallel_degree", l->tensor);
    put(out, "parallelism.context_parallel_degree", l->context);
    if (plan->job->model->experts)
        put(out, "parallelism.expert_parallel_degree", sharers(l));
    put_data_parallel(out, plan);
    put_pipeline(out, plan);
    put(out, "training.max_context_length", t->sequence);
    put(out, "training.num_tokens_per_microbatch_per_dp_rank",
        (uint64_t)l->micro_batch / sharers(l) * t->sequence);
    put(out, "training.num_tokens_per_train_step",
        (uint64_t)t->global_batch * t->sequence);
    if (t->precision != LH_PRECISION_FP32)
        fputs("--training.mixed_precision_param bfloat16\n", out);
    const lh_plan_elastic *e = plan->best.elastic;
    for (uint32_t i = 0; e && i < e->n_recomputed; i++)
        fprintf(out,
                "# Not expressed: recomputed %s, in %.0f to %.0f %% of the "
                "layers.\n",
                e->recomputed[i].operation, 100 * e->recomputed[i].first,
                100 * e->recomputed[i].last);
    if (plan->best.recompute != LH_RECOMPUTE_NONE)
        fprintf(out, "# In the configuration: activation checkpointing, %s.\n",
                lh_recompute_name(plan->best.recompute));
}

lh_status cli_torchtitan(cli *c, const lh_plan *plan, char **text)
{
    size_t len;
    CLI_TRY(refuse(c, plan));
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
