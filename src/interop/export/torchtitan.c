/* SPDX-License-Identifier: Apache-2.0 */
/* Exports torchtitan options. Names and meanings: torchtitan 0.3.0,
 * torchtitan/config/configs.py, distributed/pipeline_parallel.py and
 * activation_checkpoint.py. planner/layout/target_check.c rejects plans that
 * options cannot express. */
#include "interop/export/export_internal.h"

#include "format/job/parse.h"
#include "planner/layout/target.h"
#include "planner/layout/target_flags.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/export.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- stages --------------------------------------------------------------- */

/* Writes a stage's module by torchtitan's name. */
typedef void put_module(lhi_text *out, const char *comma, const char *name);

/* Passes torchtitan's names for the modules of a chunk (embedding, layers, norm
 * and head, as far as it has them) to the callback put(). */
static void put_modules(lhi_text *out, const lh_plan *plan, uint32_t chunk,
                        put_module *put)
{
    uint32_t n = lh_pipeline_n_chunks(plan->pipeline), first, count;
    const char *comma = "";
    char name[24];
    lh_plan_layers(plan, chunk, &first, &count);
    if (chunk == 0) {
        put(out, comma, "tok_embeddings");
        comma = ",";
    }
    for (uint32_t i = first; i < first + count; i++) {
        snprintf(name, sizeof name, "layers.%" PRIu32, i);
        put(out, comma, name);
        comma = ",";
    }
    if (chunk + 1 == n) {
        put(out, comma, "norm");
        put(out, ",", "lm_head");
    }
}

/* Adds `comma` and a module's name as an indented JSON string. */
static void put_json_module(lhi_text *out, const char *comma, const char *name)
{
    lhi_text_printf(out, "%s\n      \"%s\"", comma, name);
}

/* Adds `comma` and a module's name without quotes. */
static void put_plain_module(lhi_text *out, const char *comma, const char *name)
{
    lhi_text_printf(out, "%s%s", comma, name);
}

lh_status lh_export_stages(const lh_plan *plan, char **text, size_t *len,
                           lh_error *err)
{
    uint32_t n = lh_pipeline_n_chunks(plan->pipeline);
    lhi_text out = {0};
    lhi_text_puts(&out, "{\n  \"module_fqns_per_model_part\": [");
    for (uint32_t i = 0; i < n; i++) {
        lhi_text_printf(&out, "%s\n    [", i ? "," : "");
        put_modules(&out, plan, i, put_json_module);
        lhi_text_puts(&out, "\n    ]");
    }
    lhi_text_puts(&out, "\n  ],\n  \"stage_ranks\": [");
    for (uint32_t i = 0; i < n; i++)
        lhi_text_printf(&out, "%s\n    %" PRIu32, i ? "," : "",
                        lh_pipeline_chunk(plan->pipeline, i)->device);
    lhi_text_puts(&out, "\n  ]\n}");
    return lhi_text_take(&out, text, len, err);
}

/* --- plan ----------------------------------------------------------------- */

/* Returns torchtitan's schedule class for the plan's placement, NULL if there
 * is none. The class determines only stage placement, since the CSV file
 * determines the order of passes; DualPipeV has the plan's order, too. */
static const char *find_schedule_class(const lh_choice *best)
{
    switch (best->placement) {
    case LH_PLACEMENT_UD:
        return "1F1B";
    case LH_PLACEMENT_LOOP:
        return "Interleaved1F1B";
    case LH_PLACEMENT_WAVE:
        return strcmp(best->layout.schedule, "dualpipev") == 0
                   ? "DualPipeV"
                   : "ZBVZeroBubble";
    default:
        return NULL;
    }
}

/* Adds the data-parallel replicate and shard degrees and, for ZeRO 2 and 3,
 * whether to reshard after forward. */
static void put_data_parallel(lhi_text *out, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint32_t zero = plan->best.zero;
    /* Replicas without shared state, or groups of replicas that share it. */
    uint32_t groups = zero ? lhi_state_groups(plan->job, l, zero) : l->data;
    lhi_export_add_option(out, "parallelism.data_parallel_replicate_degree",
                          groups);
    lhi_export_add_option(out, "parallelism.data_parallel_shard_degree",
                          l->data / groups);
    if (zero >= 2)
        lhi_text_printf(out, "--parallelism.fsdp_reshard_after_forward %s\n",
                        zero == 3 ? "always" : "never");
}

/* Adds the pipeline degree and, with several stages, the schedule class, its
 * CSV file and each stage's modules. */
static void put_pipeline(lhi_text *out, const lh_plan *plan)
{
    const lh_choice *best = &plan->best;
    lhi_export_add_option(out, "parallelism.pipeline_parallel_degree",
                          best->layout.pipeline);
    if (best->layout.pipeline == 1)
        return;
    lhi_text_printf(
        out,
        "--parallelism.pipeline_parallel_schedule %s\n"
        "# longhaul export PLAN --to pytorch -o schedule.csv\n"
        "--parallelism.pipeline_parallel_schedule_csv schedule.csv\n",
        find_schedule_class(best));
    lhi_export_add_option(out, "parallelism.pipeline_parallel_microbatch_size",
                          best->layout.micro_batch);
    lhi_text_puts(out, "--parallelism.module_fqns_per_model_part");
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(plan->pipeline); i++) {
        lhi_text_puts(out, " ");
        put_modules(out, plan, i, put_plain_module);
    }
    lhi_text_puts(out, "\n");
}

/* Adds the sequence length and batch sizes. With a pipeline a local batch has
 * all microbatches of a step, else one. */
static void put_batch(lhi_text *out, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint32_t at_a_time = l->pipeline > 1 ? plan->best.microbatches : 1;
    lhi_export_add_option(out, "training.seq_len",
                          plan->job->training.sequence);
    lhi_export_add_option(out, "training.local_batch_size",
                          (uint64_t)l->micro_batch * at_a_time);
    lhi_export_add_option(out, "training.global_batch_size",
                          plan->job->training.global_batch);
}

/* Adds the function that builds the model, in the module of
 * torchtitan_model.c, and the model as a comment. */
static lh_status put_model(lhi_text *out, const lh_plan *plan, lh_error *err)
{
    json_t *json = lhi_model_to_json(plan->job->model);
    char *text =
        json ? json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(json);
    if (!text)
        return lhi_fail_nomem(err);
    lhi_text_printf(
        out,
        "# longhaul export PLAN --to torchtitan-model -o longhaul_model.py\n"
        "# writes the model, for PYTHONPATH: %s\n"
        "--module longhaul_model\n"
        "--config longhaul_model\n",
        text);
    free(text);
    return LH_OK;
}

/* Adds all torchtitan options of a plan, with comments on its origin, ranks and
 * model. */
static lh_status put_all_options(lhi_text *out, const lh_plan *plan,
                                 lh_error *err)
{
    const lh_training *t = &plan->job->training;
    const lh_layout *l = &plan->best.layout;
    lhi_export_add_origin(out, plan);
    lhi_text_printf(out, "# The plan: %s, %.3f s per iteration.\n", l->schedule,
                    (double)plan->best.iteration_ns / 1e9);
    lhi_export_add_ranks(out, plan);
    lhi_export_put_inexact(out, plan, LH_EXPORT_TORCHTITAN);
    LHI_TRY(put_model(out, plan, err));
    lhi_export_add_option(out, "parallelism.tensor_parallel_degree", l->tensor);
    if (plan->job->framework.no_sequence_parallel && l->tensor > 1)
        lhi_text_puts(out, "--parallelism.no-enable-sequence-parallel\n");
    lhi_export_add_option(out, "parallelism.context_parallel_degree",
                          l->context);
    if (plan->job->model->experts)
        lhi_export_add_option(out, "parallelism.expert_parallel_degree",
                              l->expert);
    put_data_parallel(out, plan);
    put_pipeline(out, plan);
    put_batch(out, plan);
    /* torchtitan's configuration rejects CUDA graphs there. */
    if (l->pipeline > 1 || l->expert > 1)
        lhi_text_puts(out, "--training.disable_cuda_graphs\n");
    lhi_text_printf(out, "--training.mixed_precision_param %s\n",
                    t->precision == LH_PRECISION_FP32 ? "float32" : "bfloat16");
    if (plan->job->framework.overlap_tensor > 0 && l->tensor > 1)
        lhi_text_puts(out, LHI_FLAG_COMPILE "\n" LHI_FLAG_ASYNC_TENSOR "\n");
    /* Selects the subcommand for the options after it, so it comes last. */
    lhi_text_printf(out, "activation-checkpoint:%s\n",
                    lh_recompute_name(plan->best.recompute));
    return LH_OK;
}

/* Checks that backward passes are not split with ZeRO 3 in a pipeline, where
 * torchtitan would lose gradients.
 * LH_EUNSUPPORTED: they are. */
static lh_status check_backward(const lh_plan *plan, lh_error *err)
{
    if (lhi_pipeline_is_joint(plan->pipeline) ||
        !lhi_target_joins_backward(LH_TARGET_TORCHTITAN,
                                   plan->best.layout.pipeline, plan->best.zero))
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "torchtitan loses gradients with ZeRO 3 in a pipeline if "
                    "backward passes are split; longhaul plan --for torchtitan "
                    "keeps them joint");
}

lh_status lhi_export_write_torchtitan(const lh_plan *plan, char **text,
                                      size_t *len, lh_error *err)
{
    lhi_text out = {0};
    LHI_TRY(lhi_export_check(plan, LH_TARGET_TORCHTITAN, err));
    LHI_TRY(check_backward(plan, err));
    lh_status status = put_all_options(&out, plan, err);
    if (status == LH_OK)
        return lhi_text_take(&out, text, len, err);
    lhi_text_fini(&out);
    return status;
}
