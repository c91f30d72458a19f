/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of the options: torchtitan of August 2026,
 * torchtitan/config/configs.py and distributed/pipeline_parallel.py. */
#include "export/export_own.h"

#include <inttypes.h>

/* What stands before each item of a JSON list, and before its end. */
typedef struct list_form {
    const char *item, *end;
} list_form;

/* Modules of a stage by torchtitan's names. */
static void put_stage(lhi_text *out, const lh_plan *plan, uint32_t chunk,
                      const list_form *form)
{
    uint32_t n = lh_pipeline_n_chunks(plan->pipeline), first, count;
    const char *comma = "";
    lh_plan_layers(plan, chunk, &first, &count);
    lhi_text_puts(out, "[");
    if (chunk == 0) {
        lhi_text_printf(out, "%s\"tok_embeddings\"", form->item);
        comma = ",";
    }
    for (uint32_t i = first; i < first + count; i++) {
        lhi_text_printf(out, "%s%s\"layers.%" PRIu32 "\"", comma, form->item,
                        i);
        comma = ",";
    }
    if (chunk + 1 == n)
        lhi_text_printf(out, "%s%s\"norm\",%s\"lm_head\"", comma, form->item,
                        form->item);
    lhi_text_printf(out, "%s]", form->end);
}

static void put_stages(lhi_text *out, const lh_plan *plan,
                       const list_form *form, const list_form *inner)
{
    lhi_text_puts(out, "[");
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(plan->pipeline); i++) {
        lhi_text_printf(out, "%s%s", i ? "," : "", form->item);
        put_stage(out, plan, i, inner);
    }
    lhi_text_printf(out, "%s]", form->end);
}

lh_status lh_export_stages(const lh_plan *plan, char **text, size_t *len,
                           lh_error *err)
{
    static const list_form form = {"\n    ", "\n  "},
                           inner = {"\n      ", "\n    "};
    lhi_text out = {0};
    lhi_text_puts(&out, "{\n  \"module_fqns_per_model_part\": ");
    put_stages(&out, plan, &form, &inner);
    lhi_text_puts(&out, ",\n  \"stage_ranks\": [");
    for (uint32_t i = 0; i < lh_pipeline_n_chunks(plan->pipeline); i++)
        lhi_text_printf(&out, "%s%s%" PRIu32, i ? "," : "", form.item,
                        lh_pipeline_chunk(plan->pipeline, i)->device);
    lhi_text_printf(&out, "%s]\n}", form.end);
    return lhi_text_take(&out, text, len, err);
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

/* Replicas that do not share state, or groups of those that do. */
static uint32_t count_groups(const lh_plan *plan)
{
    return plan->best.zero ? lhi_export_state_groups(plan)
                           : plan->best.layout.data;
}

/* Experts are spread over replicas that share state, and cut as all else is, or
 * not at all. */
static lh_status refuse_experts(const lh_plan *plan, lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    uint32_t etp = lh_layout_expert_tensor(l);
    uint64_t sharers =
        (uint64_t)l->data / count_groups(plan) * l->context * l->tensor;
    if (!plan->job->model->experts || (l->expert == 1 && etp == l->tensor))
        return LH_OK;
    if (l->expert == 1 || (etp != 1 && etp != l->tensor))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan cuts experts as all else, or with expert "
                        "above 1 not at all; this plan has expert %" PRIu32
                        ", expert_tensor %" PRIu32 " and tensor %" PRIu32,
                        l->expert, etp, l->tensor);
    if (sharers % lh_layout_expert_block(l) != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan spreads experts over replicas that share "
                        "optimizer state, %" PRIu64 " GPUs of a stage in this "
                        "plan, which are not a multiple of expert %" PRIu32
                        " x expert_tensor %" PRIu32
                        "; plan with training.zero: 1 and layout.sharding: "
                        "full",
                        sharers, l->expert, etp);
    return LH_OK;
}

static lh_status refuse_torchtitan(const lh_plan *plan, lh_error *err)
{
    const lh_choice *best = &plan->best;
    if (best->layout.pipeline > 1 && !schedule_class(best))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan puts stages on ranks one by one, in a "
                        "loop or in a V; this plan has another placement");
    if (best->layout.outermost == LH_OUTERMOST_DATA &&
        best->layout.pipeline > 1 && best->layout.data > 1)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan numbers ranks with the pipeline "
                        "outermost, this plan has data parallelism there; "
                        "plan with layout.outermost: pipeline");
    uint32_t groups = lhi_export_state_groups(plan);
    if (!groups)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan shards over equal groups of replicas; "
                        "this plan's datacenters have different numbers of "
                        "them");
    if (groups > 1 && best->layout.sharding == LH_SHARDING_HYBRID_LEADERS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "torchtitan sums gradients of every GPU between "
                        "groups, this plan those of one in each datacenter; "
                        "plan with layout.sharding: hybrid");
    return refuse_experts(plan, err);
}

static void put_experts(lhi_text *out, const lh_job *job, const lh_layout *l)
{
    lhi_export_option(out, "parallelism.expert_parallel_degree", l->expert);
    if (l->expert == 1)
        return;
    if (lh_layout_expert_tensor(l) > 1)
        lhi_export_option(out, "parallelism.expert_tensor_parallel_degree",
                          lh_layout_expert_tensor(l));
    if (job->training.dispatcher == LH_DISPATCHER_DEEPEP)
        lhi_text_puts(out,
                      "--parallelism.expert_parallel_comm_backend deepep\n");
}

static void put_data_parallel(lhi_text *out, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint32_t zero = plan->best.zero;
    uint32_t degree = l->data, groups = count_groups(plan);
    lhi_export_option(out, "parallelism.data_parallel_replicate_degree",
                      groups);
    lhi_export_option(out, "parallelism.data_parallel_shard_degree",
                      degree / groups);
    const lh_plan_elastic *e = plan->best.elastic;
    if (e && e->parameters > 0 && e->parameters < 1)
        lhi_text_printf(
            out,
            "# Not expressed: the plan gathers %.0f %% of the parameters "
            "per block, torchtitan all or none.\n",
            100 * e->parameters);
    if (e && e->parameters >= 1)
        zero = 3;
    if (zero == 1)
        lhi_text_puts(
            out,
            "# ZeRO 1 becomes ZeRO 2: torchtitan shards gradients, too.\n");
    if (zero >= 1)
        lhi_text_printf(out, "--parallelism.fsdp_reshard_after_forward %s\n",
                        zero == 3 ? "always" : "never");
}

static void put_pipeline(lhi_text *out, const lh_plan *plan)
{
    const lh_choice *best = &plan->best;
    lhi_export_option(out, "parallelism.pipeline_parallel_degree",
                      best->layout.pipeline);
    if (best->layout.pipeline == 1)
        return;
    lhi_text_printf(
        out,
        "--parallelism.pipeline_parallel_schedule %s\n"
        "# longhaul export PLAN --to pytorch -o schedule.csv\n"
        "--parallelism.pipeline_parallel_schedule_csv schedule.csv\n",
        schedule_class(best));
    lhi_export_option(out, "parallelism.num_pp_microbatches",
                      best->microbatches);
    lhi_text_puts(out, "# In the configuration, which layers a stage has:\n"
                       "# parallelism.module_fqns_per_model_part = ");
    put_stages(out, plan, &(list_form){"", ""}, &(list_form){"", ""});
    lhi_text_puts(out, "\n");
}

/* Modules are Megatron Core's; torchtitan's modes know layers and operations.
 */
static void put_recompute(lhi_text *out, const lh_plan *plan)
{
    uint32_t modules = plan->job->training.recompute_modules;
    if (plan->best.recompute == LH_RECOMPUTE_NONE)
        return;
    if (plan->best.recompute != LH_RECOMPUTE_MODULES) {
        lhi_text_printf(
            out, "# In the configuration: activation checkpointing, %s.\n",
            lh_recompute_name(plan->best.recompute));
        return;
    }
    lhi_text_puts(out, "# Not expressed: recomputed");
    for (uint32_t i = 0; i < LH_N_MODULES; i++)
        if (modules >> i & 1)
            lhi_text_printf(out, " %s", lh_module_name((lh_module)i));
    lhi_text_puts(out, ".\n");
}

static void put_all(lhi_text *out, const lh_plan *plan)
{
    const lh_training *t = &plan->job->training;
    const lh_layout *l = &plan->best.layout;
    lhi_export_origin(out, plan);
    lhi_text_printf(out, "# The plan: %s, %.3f s per iteration.\n", l->schedule,
                    (double)plan->best.iteration_ns / 1e9);
    lhi_export_ranks(out, plan);
    lhi_export_option(out, "parallelism.tensor_parallel_degree", l->tensor);
    lhi_export_option(out, "parallelism.context_parallel_degree", l->context);
    if (plan->job->model->experts)
        put_experts(out, plan->job, l);
    put_data_parallel(out, plan);
    put_pipeline(out, plan);
    lhi_export_option(out, "training.max_context_length", t->sequence);
    lhi_export_option(out, "training.num_tokens_per_microbatch_per_dp_rank",
                      (uint64_t)l->micro_batch * t->sequence);
    lhi_export_option(out, "training.num_tokens_per_train_step",
                      (uint64_t)t->global_batch * t->sequence);
    if (t->precision != LH_PRECISION_FP32)
        lhi_text_puts(out, "--training.mixed_precision_param bfloat16\n");
    const lh_plan_elastic *e = plan->best.elastic;
    for (uint32_t i = 0; e && i < e->n_recomputed; i++)
        lhi_text_printf(
            out,
            "# Not expressed: recomputed %s, in %.0f to %.0f %% of the "
            "layers.\n",
            e->recomputed[i].operation, 100 * e->recomputed[i].first,
            100 * e->recomputed[i].last);
    put_recompute(out, plan);
}

lh_status lh_export_torchtitan(const lh_plan *plan, char **text, size_t *len,
                               lh_error *err)
{
    lhi_text out = {0};
    LHI_TRY(refuse_torchtitan(plan, err));
    put_all(&out, plan);
    return lhi_text_take(&out, text, len, err);
}
