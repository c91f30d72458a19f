/* SPDX-License-Identifier: Apache-2.0 */
/* Training a plan: what of it says what is run, and how the run compares with
 * what it promises. */
#include "base/fail.h"
#include "base/take_options.h"
#include "engine/plan/run_profile.h"

#include <inttypes.h>
#include <longhaul/cost.h>
#include <longhaul/engine.h>
#include <longhaul/plan.h>
#include <stdlib.h>

uint64_t lh_train_message_bytes(const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    uint64_t gpus = (uint64_t)l->tensor * l->context;
    int64_t all = lh_cost_message_bytes(plan->job, l);
    return all > 0 && gpus ? ((uint64_t)all + gpus - 1) / gpus
                           : LH_TRAIN_MESSAGE_BYTES;
}

/* Chunks that were measured in a run of their own took what they did while
 * others had their share of the processors. */
static bool has_shared(const lh_plan *plan, const lh_pipeline *pipeline)
{
    const lh_profile *p = plan->job->profile;
    for (uint32_t i = 0; p && i < p->n_entries; i++)
        if (p->entries[i].kind == LH_PROFILE_CHUNK &&
            p->entries[i].of == lh_pipeline_n_chunks(pipeline))
            return true;
    return false;
}

/* On the cpu device an iteration has what the plan expects after the pipeline:
 * the optimizer, and what else comes once. */
static lh_status add_end(const lhi_plan_run *run, lh_train_result *r,
                         lh_error *err)
{
    const lh_plan *plan = run->plan;
    int64_t end_ns = plan->best.optimizer_ns + plan->best.overhead_ns;
    if (has_shared(plan, run->pipeline))
        r->predicted_ns = r->unshared_ns;
    r->predicted_ns += end_ns;
    r->unshared_ns += end_ns;
    if (r->median_ns > 0 && r->predicted_ns > 0)
        r->error = (double)r->median_ns / (double)r->predicted_ns - 1;
    const lhi_observed *observed = lhi_result_observed(r);
    lh_profile *profile;
    if (!observed)
        return LH_OK;
    LHI_TRY(lhi_run_profile(run, observed, &profile, err));
    lhi_result_take_profile(r, profile);
    return LH_OK;
}

/* Of the machines that the plan counts on; negative: there is no time. */
static double utilisation(const lh_plan *plan, int64_t ns)
{
    const lh_job *job = plan->job;
    const lh_layout *l = &plan->best.layout;
    double ranks = (double)l->pipeline * l->data;
    if (ns <= 0)
        return -1;
    return lh_cost_iteration_flops(job) /
           ((double)ns / 1e9 * ranks * job->datacenters[0].gpu.flops_per_s);
}

static lh_status check_degrees(const lh_plan *plan, lh_error *err)
{
    const lh_layout *l = &plan->best.layout;
    if (l->tensor * l->context * l->expert == 1)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the plan has tensor %" PRIu32 ", context %" PRIu32
                    ", expert %" PRIu32
                    "; the cpu device runs whole layers: set these to 1 "
                    "in the job's layout",
                    l->tensor, l->context, l->expert);
}

/* The cpu device keeps all that F makes. */
static lh_status check_recompute(const lh_choice *best, lh_error *err)
{
    const lh_plan_elastic *e = best->elastic;
    if (best->recompute == LH_RECOMPUTE_NONE && !(e && e->n_recomputed))
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the plan makes activations again in the backward passes "
                    "(%s); the cpu device keeps them: plan with recompute: "
                    "none in the job's training",
                    e && e->n_recomputed ? e->recomputed[0].operation
                                         : lh_recompute_name(best->recompute));
}

/* The cpu device shards the optimizer alone, over all replicas. */
static lh_status check_sharding(const lh_choice *best, lh_error *err)
{
    const lh_plan_elastic *e = best->elastic;
    if (best->layout.data == 1)
        return LH_OK;
    if (best->zero != 1)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the plan has zero %" PRIu32 "; the cpu device shards "
                        "the optimizer, and neither gradients nor parameters: "
                        "plan with zero: 1 in the job's training",
                        best->zero);
    if (e && (e->gradients > 0 || e->parameters > 0))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the plan shards %.3g of the gradients and %.3g of the "
                        "parameters, the cpu device the optimizer alone: plan "
                        "with zero: 1 in the job's training",
                        e->gradients, e->parameters);
    if (best->layout.sharding <= LH_SHARDING_FULL)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the plan shards over the replicas of a datacenter, the "
                    "cpu device over all of them: plan with sharding: full in "
                    "the job's layout");
}

static lh_status check_cpu(const lh_plan *plan, lh_error *err)
{
    LHI_TRY(check_degrees(plan, err));
    LHI_TRY(check_recompute(&plan->best, err));
    return check_sharding(&plan->best, err);
}

/* Where the layers of each chunk begin, and where the last one's end. */
static uint32_t *layers_of(const lh_plan *plan, uint32_t n_chunks)
{
    uint32_t *first = calloc((size_t)n_chunks + 1, sizeof *first);
    for (uint32_t c = 0; first && c < n_chunks; c++) {
        uint32_t count;
        lh_plan_layers(plan, c, &first[c], &count);
        first[c + 1] = first[c] + count;
    }
    return first;
}

static lh_status train_cpu(const lh_plan *plan, const lh_pipeline *pipeline,
                           const lh_exec *exec, const lh_train_model *given,
                           const lh_train_options *run, lh_train_result **out,
                           lh_error *err)
{
    lh_train_model m;
    LHI_TRY(LHI_OPTIONS_TAKE(lh_train_model, &m, given, err));
    uint32_t *first = layers_of(plan, lh_pipeline_n_chunks(pipeline));
    if (!first)
        return lhi_fail_nomem(err);
    m.model = plan->job->model;
    m.first_layers = first;
    m.micro_batch = plan->best.layout.micro_batch;
    m.sequence = plan->job->training.sequence;
    m.replicas = plan->best.layout.data;
    lh_status status = lh_train_cpu(pipeline, exec, &m, run, out, err);
    free(first);
    return status;
}

lh_status lh_train_plan(const lh_plan *plan,
                        const lh_train_plan_options *options,
                        lh_train_result **out, lh_error *err)
{
    lh_train_plan_options o;
    lh_train_options run;
    LHI_TRY(LHI_OPTIONS_TAKE(lh_train_plan_options, &o, options, err));
    LHI_TRY(LHI_OPTIONS_TAKE(lh_train_options, &run, o.run, err));
    if (o.device == LH_TRAIN_CPU)
        LHI_TRY(check_cpu(plan, err));
    else if (o.device != LH_TRAIN_TIMED)
        return lhi_fail(err, LH_EINVAL, "there is no device %d to train on",
                        (int)o.device);
    const lh_pipeline *pipeline = o.pipeline ? o.pipeline : plan->pipeline;
    const lh_schedule *schedule = o.schedule ? o.schedule : plan->schedule;
    if (run.message_bytes == 0)
        run.message_bytes = lh_train_message_bytes(plan);
    lh_exec *exec;
    lh_train_result *made = NULL;
    LHI_TRY(lh_exec_make(pipeline, schedule, o.exec, &exec, err));
    lh_status status =
        o.device == LH_TRAIN_CPU
            ? train_cpu(plan, pipeline, exec, o.model, &run, &made, err)
            : lh_train_timed(pipeline, exec, &run, &made, err);
    lh_exec_free(exec);
    if (status != LH_OK)
        return status;
    made->utilisation = utilisation(plan, made->median_ns);
    if (o.device == LH_TRAIN_CPU)
        status = add_end(&(lhi_plan_run){plan, pipeline, schedule, o.exec},
                         made, err);
    if (status != LH_OK) {
        lh_train_result_free(made);
        return status;
    }
    *out = made;
    return LH_OK;
}
