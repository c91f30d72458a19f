/* SPDX-License-Identifier: Apache-2.0 */
/* Training a plan: the executed parts of the plan, and the run compared with
 * it. */
#define _POSIX_C_SOURCE 200809L
#include "jobs.h"
#include "planner/layout/layout.h"
#include "plans.h"
#include "runtime/engine/plan/group_links.h"
#include "training_text.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Two datacenters and replicas of two: four GPUs, a pipeline with two stages.
 */
static const char small[] =
    "  gpus_per_node: 2\n"
    "training: {global_batch: 8, sequence: 16}\n"
    "model: {layers: 4, hidden: 32, ffn: 48, heads: 2, vocab: 256}\n"
    "layout: {tensor: %u, data: %u, pipeline: 2, micro_batch: 2, "
    "chunks_per_device: 1}\n";

static char text_path[] = "/tmp/longhaul-test-plan-XXXXXX";

static lh_plan *plan_of(uint32_t tensor)
{
    return plan_of_job(job_with(JOB_SMALL, small, tensor, 2 / tensor));
}

/* A schedule runs as with the engine alone; the result is consistent. */
static void timed(void)
{
    lh_plan *plan = plan_of(1);
    lh_exec *x = NULL;
    lh_train_result *r = NULL;
    lh_error err = {0};
    const lh_train_options run = {.size = sizeof run, .steps = 3};
    const lh_train_plan_options o = {.size = sizeof o, .run = &run};
    if (!plan)
        return;
    CHECK_OK(lh_exec_make(plan->pipeline, plan->schedule, NULL, &x, &err), err);
    CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
    if (r && x) {
        CHECK_INT(r->n_iterations, 3);
        CHECK_INT(lh_train_n_iterations(r), 3);
        CHECK_INT(lh_train_iteration(r, 2)->step, 2);
        CHECK_INT(lh_train_median_ns(r), r->median_ns);
        CHECK_INT(lh_train_predicted_ns(r), r->predicted_ns);
        CHECK_INT(r->predicted_ns, lh_exec_predicted_ns(x));
        CHECK(r->min_ns <= r->median_ns && r->median_ns <= r->max_ns);
        bool is_one = false;
        for (uint32_t i = 0; i < 3; i++)
            is_one = is_one || r->iterations[i].ns == r->median_ns;
        CHECK(is_one && r->min_ns >= r->predicted_ns);
        CHECK(r->error == (double)r->median_ns / (double)r->predicted_ns - 1);
        double peak = 2.0 * 2 * plan->job->datacenters[0].gpu.flops_per_s;
        double want = lh_cost_iteration_flops(plan->job) /
                      ((double)r->median_ns / 1e9 * peak);
        CHECK(fabs(r->utilisation / want - 1) < 1e-12);
        CHECK(r->trace && r->trace->n_runs > 0);
    }
    lh_train_result_free(r);
    lh_exec_free(x);
    lh_plan_free(plan);
}

/* Utilisation relative to the peak of the GPUs in use, for a plan and its run,
 * with different GPUs per datacenter: with one replica those in east are idle.
 */
static void unequal_sites(uint32_t replicas)
{
    lh_error err = {0};
    lh_plan *plan = plan_of_job(job_with(
        JOB_SMALL,
        "  gpus_per_node: 2\n"
        "  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1, "
        "gpu: a100-80g}]\n"
        "training: {global_batch: 8, sequence: 16}\n"
        "layout: {tensor: 1, data: %u, pipeline: 2, micro_batch: 2}\n",
        replicas));
    const lh_train_options run = {.size = sizeof run, .steps = 1};
    const lh_train_plan_options o = {.size = sizeof o, .run = &run};
    lh_train_result *r = NULL;
    if (plan)
        CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
    if (r) {
        double peak = 2 * plan->job->datacenters[0].gpu.flops_per_s;
        if (replicas == 2)
            peak += 2 * plan->job->datacenters[1].gpu.flops_per_s;
        double want = lh_cost_iteration_flops(plan->job) * 1e9 / peak;
        double planned = plan->best.mfu * (double)plan->best.iteration_ns;
        double ran = r->utilisation * (double)r->median_ns;
        CHECK(fabs(planned / want - 1) < 1e-12);
        CHECK(fabs(ran / want - 1) < 1e-12);
    }
    lh_train_result_free(r);
    lh_plan_free(plan);
}

static void peaks(void)
{
    unequal_sites(2);
    unequal_sites(1);
}

/* Two sequences with 16 tokens, hidden 32, in two bytes each; tensor
 * parallelism divides that. */
static void message_bytes(void)
{
    for (uint32_t tensor = 1; tensor <= 2; tensor++) {
        lh_plan *plan = plan_of(tensor);
        if (!plan)
            return;
        CHECK_INT(lh_train_message_bytes(plan), 2 * 16 * 32 * 2 / tensor);
        lh_plan_free(plan);
    }
}

/* On the cpu device a plan provides lh_train_cpu()'s options: the same losses
 * bit by bit, also with another schedule. The plan's precision is bf16, the
 * job's default; the losses of fp32 are close. */
static void cpu(void)
{
    lh_plan *plan = plan_of(1);
    lh_exec *x = NULL;
    lh_schedule *other = NULL;
    lh_train_result *r[4] = {NULL, NULL, NULL, NULL};
    lh_error err = {0};
    const lh_train_options run = {.size = sizeof run, .steps = 4};
    lh_train_model m = lh_train_model_defaults();
    m.seed = 5;
    m.data = text_path;
    m.rate = 1e-2;
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
    if (!plan)
        return;
    CHECK_OK(lh_train_plan(plan, &o, &r[0], &err), err);
    CHECK_OK(lh_method_run("gpipe", plan->pipeline, NULL, &other, NULL, &err),
             err);
    o.schedule = other;
    CHECK_OK(lh_train_plan(plan, &o, &r[1], &err), err);
    uint32_t first_layers[] = {0, 0, 0};
    for (uint32_t c = 0; c < 2; c++) {
        uint32_t count;
        lh_plan_layers(plan, c, &first_layers[c], &count);
        first_layers[c + 1] = first_layers[c] + count;
    }
    m.model = plan->job->model;
    m.first_layers = first_layers;
    m.micro_batch = 2;
    m.sequence = 16;
    m.replicas = 2;
    m.bf16 = true;
    CHECK_OK(lh_exec_make(plan->pipeline, plan->schedule, NULL, &x, &err), err);
    CHECK_OK(lh_train_cpu(plan->pipeline, x, &m, &run, &r[2], &err), err);
    m.bf16 = false;
    CHECK_OK(lh_train_cpu(plan->pipeline, x, &m, &run, &r[3], &err), err);
    for (uint32_t i = 0; r[0] && r[1] && r[2] && i < 4; i++) {
        CHECK(isfinite(r[0]->iterations[i].loss));
        CHECK(r[0]->iterations[i].loss == r[2]->iterations[i].loss);
        CHECK(r[1]->iterations[i].loss == r[2]->iterations[i].loss);
        double ratio =
            r[3] ? r[2]->iterations[i].loss / r[3]->iterations[i].loss : 0;
        CHECK_MSG(fabs(ratio - 1) < 1e-3 && fabs(ratio - 1) > 1e-8,
                  "loss in bf16 / in fp32: 1 + %g", ratio - 1);
    }
    if (r[0] && r[2]) {
        CHECK(r[0]->utilisation > 0);
        CHECK(r[2]->utilisation < 0); /* without a plan */
    }
    for (int i = 0; i < 4; i++)
        lh_train_result_free(r[i]);
    lh_exec_free(x);
    lh_schedule_free(other);
    lh_plan_free(plan);
}

/* Trains a plan with two stages, JOB_SMALL except for these, for three steps;
 * returns the last loss. *most gets the highest activation memory of any rank,
 * in bytes. */
static double train_small(const char *recompute, const char *model,
                          double *most)
{
    lh_plan *plan =
        plan_of_job(job_with(JOB_SMALL,
                             "  gpus_per_node: 1\n"
                             "training: {global_batch: 8, sequence: 16, "
                             "zero: 1, recompute: %s}\n"
                             "model: {layers: 4, hidden: 32, "
                             "heads: 2, vocab: 256, %s}\n"
                             "layout: {tensor: 1, data: 1, pipeline: 2, "
                             "micro_batch: 1, chunks_per_device: 1, "
                             "schedule: 1f1b}\n",
                             recompute, model));
    lh_train_options run = {.size = sizeof run, .steps = 3};
    lh_train_model m = lh_train_model_defaults();
    m.data = text_path;
    m.rate = 1e-2;
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
    lh_train_result *r = NULL;
    lh_error err = {0};
    double loss = 0;
    if (plan)
        CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
    *most = 0;
    if (r) {
        uint32_t n;
        const lh_train_memory *held = lh_train_peak_memory(r, &n);
        loss = r->iterations[2].loss;
        for (uint32_t i = 0; i < n; i++)
            *most =
                fmax(*most, (double)held[i].measured[LH_MEMORY_ACTIVATIONS]);
    }
    lh_train_result_free(r);
    lh_plan_free(plan);
    return loss;
}

/* Losses do not depend on recomputation, and stored activations get smaller. */
static void recomputes(void)
{
    static const struct {
        const char *model;
        const char *again[6];
    } rows[] = {
        {"ffn: 48", {"selective", "[core_attn]", "[mlp, layernorm]", "full"}},
        {"ffn: 48, kv_lora_rank: 12, q_lora_rank: 10, qk_nope_head_dim: 6, "
         "qk_rope_head_dim: 4, v_head_dim: 8",
         {"selective", "[mla_up_proj]", "full"}},
        {"experts: 4, experts_per_token: 2, expert_ffn: 24",
         {"[moe_act]", "[moe, core_attn]", "full"}},
        {"ffn: 48, experts: 4, experts_per_token: 2, expert_ffn: 24, "
         "shared_expert_ffn: 40, shared_expert_gate: true",
         {"[shared_experts]", "[shared_experts, moe_act]", "selective"}},
        {"ffn: 48, norm: layer, gated: false, kv_heads: 1, "
         "parallel_block: true",
         {"[layernorm]", "[mlp]", "full"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double whole, less;
        double loss = train_small("none", rows[i].model, &whole);
        CHECK(loss > 0);
        for (uint32_t k = 0; rows[i].again[k]; k++) {
            const char *again = rows[i].again[k];
            double got = train_small(again, rows[i].model, &less);
            CHECK_MSG(got == loss, "%s: loss %.9g, not %.9g", again, got, loss);
            CHECK_MSG(less < whole, "%s: %g bytes, without %g", again, less,
                      whole);
        }
    }
}

/* Trains a plan with one replica whose tensor ranks share layers. */
static lh_status train_shared(const char *degrees, const char *framework,
                              double *loss, lh_error *err)
{
    lh_plan *plan =
        plan_of_job(job_with(JOB_SMALL,
                             "  gpu: {preset: h100-sxm, tflops: 60}\n"
                             "  gpus_per_node: 2\n"
                             "framework: {%s}\n"
                             "training: {global_batch: 8, sequence: 16, "
                             "precision: fp32, zero: 1}\n"
                             "model: {layers: 4, hidden: 32, ffn: 48, "
                             "heads: 2, vocab: 256}\n"
                             "layout: {%s, data: 1, pipeline: 2, "
                             "micro_batch: 1, chunks_per_device: 1}\n",
                             framework, degrees));
    lh_train_options run = {.size = sizeof run, .steps = 3};
    lh_train_model m = lh_train_model_defaults();
    m.data = text_path;
    m.emulate_links = true;
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
    lh_train_result *r = NULL;
    lh_status status = plan ? lh_train_plan(plan, &o, &r, err) : LH_EINVAL;
    if (r)
        *loss = r->iterations[2].loss;
    lh_train_result_free(r);
    lh_plan_free(plan);
    return status;
}

static void shares_layers(void)
{
    double one = 0, two = 0;
    lh_error err = {0};
    CHECK_OK(train_shared("tensor: 1", "", &one, &err), err);
    CHECK_OK(train_shared("tensor: 2", "", &two, &err), err);
    CHECK(one > 0);
    CHECK_NEAR(two, one, 1e-6);
    CHECK_OK(train_shared("tensor: 2", "sequence_parallel: false", &two, &err),
             err);
    CHECK_NEAR(two, one, 1e-6);
}

/* The emulated link between expert ranks, and between ranks that share an
 * expert, is the actual one between them: between two datacenters, or a node's.
 */
static void experts_meet_where_they_are(void)
{
    static const struct {
        uint32_t per_node, expert;
        bool across;
    } rows[] = {{1, 1, true}, {2, 1, false}, {1, 2, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_plan *plan = plan_of_job(
            job_with(JOB_SMALL,
                     "  gpus_per_node: %u\n"
                     "training: {global_batch: 8, sequence: 16, zero: 1}\n"
                     "model: {layers: 4, hidden: 32, heads: 2, vocab: 256, "
                     "experts: 4, experts_per_token: 2, expert_ffn: 16}\n"
                     "layout: {tensor: 1, context: 1, expert: %u, "
                     "expert_tensor: %u, data: 2, pipeline: 1, micro_batch: 1, "
                     "chunks_per_device: 1}\n",
                     rows[i].per_node, rows[i].expert, 2 / rows[i].expert));
        lh_train_model m = lh_train_model_defaults();
        lh_error err = {0};
        if (!plan)
            continue;
        CHECK_OK(lhi_plan_set_group_links(plan, &m, &err), err);
        int64_t got = m.groups[LH_TRAIN_GROUP_EXPERT_TENSOR].latency_ns;
        const int64_t link_ns = 1000000;
        bool right = rows[i].across ? got >= link_ns : got > 0 && got < link_ns;
        if (rows[i].expert > 1)
            right = got == 0;
        CHECK_MSG(right, "row %zu: %lld ns", i, (long long)got);
        got = m.groups[LH_TRAIN_GROUP_EXPERT].latency_ns;
        CHECK_INT(got, rows[i].expert > 1 ? link_ns : 0);
        lh_plan_free(plan);
    }
}

/* Reported exchange times are at most the iterations' times: validation, which
 * has its own exchanges, is excluded. */
static void exchanges_are_of_iterations(void)
{
    lh_plan *plan = plan_of_job(job_with(
        JOB_SMALL, "  gpus_per_node: 1\n"
                   "training: {global_batch: 8, sequence: 16, zero: 1}\n"
                   "model: {layers: 4, hidden: 32, heads: 2, vocab: 256, "
                   "experts: 4, experts_per_token: 2, expert_ffn: 16}\n"
                   "layout: {tensor: 1, expert: 2, data: 2, pipeline: 1, "
                   "micro_batch: 1, chunks_per_device: 1}\n"));
    lh_train_options run = {.size = sizeof run, .steps = 2};
    lh_train_model m = lh_train_model_defaults();
    m.data = text_path;
    m.emulate_links = true;
    m.validation = 0.2;
    m.validate_every = 1;
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
    lh_train_result *r = NULL;
    lh_error err = {0};
    if (plan)
        CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
    if (r) {
        int64_t all = r->iterations[0].ns + r->iterations[1].ns;
        int64_t expert = r->exchange_ns[LH_TRAIN_GROUP_EXPERT];
        CHECK(isfinite(r->iterations[1].validation_loss));
        CHECK_MSG(expert > r->planned_exchange_ns && 2 * expert <= all,
                  "%lld ns of %lld", (long long)(2 * expert), (long long)all);
    }
    lh_train_result_free(r);
    lh_plan_free(plan);
}

/* Experts in two datacenters with two nodes of two GPUs each: tokens between
 * them take the link's time, whichever rank forwards them. */
static void experts_are_at_two_sites(void)
{
    static const char job[] =
        "  gpus_per_node: 2\n"
        "  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1}]\n"
        "training: {global_batch: 8, sequence: 16, dispatcher: %s}\n"
        "model: {layers: 4, hidden: 32, heads: 2, vocab: 256, experts: 4, "
        "experts_per_token: 2, expert_ffn: 16}\n"
        "layout: {tensor: 1, data: 4, expert: 4, pipeline: 1, micro_batch: 1, "
        "outermost: data}\n";
    static const char *const dispatchers[] = {"alltoall", "deepep"};
    uint32_t nodes[4] = {0};
    for (int i = 0; i < 2; i++) {
        lh_plan *plan = plan_of_job(job_with(JOB_SMALL, job, dispatchers[i]));
        lh_train_model m = lh_train_model_defaults();
        lh_error err = {0};
        if (!plan)
            continue;
        CHECK_OK(lhi_state_nodes(plan->job, &plan->best.layout, nodes, &err),
                 err);
        CHECK(nodes[0] == nodes[1] && nodes[1] != nodes[2] &&
              nodes[2] == nodes[3]);
        m.nodes = i ? nodes : NULL;
        CHECK_OK(lhi_plan_set_group_links(plan, &m, &err), err);
        /* 100 Gb/s for two at once; the engine's value has twice the bytes of
         * the plan's. Two out of three others are in the other datacenter. */
        const lh_train_group_link *far = &m.groups[LH_TRAIN_GROUP_EXPERT];
        CHECK_INT(far->latency_ns, 1000000);
        CHECK_NEAR(far->ns_per_byte, (i ? 1 : 2.0 / 3) * 2 * 8 / 100 / 2, 1e-9);
        CHECK_INT(m.intra_node_experts.latency_ns, i ? 3000 : 0);
        lh_plan_free(plan);
    }
}

/* The cpu device runs overlapped pairs of DualPipeV as two passes each: the
 * losses of 1F1B, bit by bit. */
static void pairs_train(void)
{
    static const char *const jobs[] = {
        "training: {global_batch: 8, sequence: 16}\n"
        "model: {layers: 4, hidden: 32, ffn: 48, heads: 2, vocab: 256}\n"
        "framework: {overlap: {F+B: 0.8}}\n"
        "layout: {tensor: 1, data: 1, pipeline: 2, micro_batch: 1, "
        "chunks_per_device: 2, schedule: dualpipev}\n",
        "training: {global_batch: 8, sequence: 16}\n"
        "model: {layers: 4, hidden: 32, ffn: 48, heads: 2, vocab: 256}\n"
        "layout: {tensor: 1, data: 1, pipeline: 2, micro_batch: 1, "
        "chunks_per_device: 1, schedule: 1f1b}\n"};
    lh_train_result *r[2] = {NULL, NULL};
    lh_plan *plans[2];
    lh_error err = {0};
    const lh_train_options run = {.size = sizeof run, .steps = 2};
    lh_train_model m = lh_train_model_defaults();
    m.data = text_path;
    for (uint32_t i = 0; i < 2; i++) {
        const lh_train_plan_options o = {
            .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
        plans[i] = plan_of_job(job_with(JOB_SMALL, "%s", jobs[i]));
        if (plans[i])
            CHECK_OK(lh_train_plan(plans[i], &o, &r[i], &err), err);
    }
    for (uint32_t i = 0; r[0] && r[1] && i < 2; i++)
        CHECK(r[0]->iterations[i].loss == r[1]->iterations[i].loss);
    if (r[0] && r[1])
        CHECK(r[0]->iterations[1].loss != r[0]->iterations[0].loss);
    for (uint32_t i = 0; i < 2; i++) {
        lh_train_result_free(r[i]);
        lh_plan_free(plans[i]);
    }
}

static void refuses(void)
{
    lh_plan *plan = plan_of(2);
    lh_train_result *r = NULL;
    lh_error err = {0};
    lh_train_model m = lh_train_model_defaults();
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .model = &m};
    if (!plan)
        return;
    m.data = "/dev/null";
    CHECK_INT(lh_train_plan(plan, &o, &r, &err), LH_EINPUT);
    CHECK_HAS(err.text, "/dev/null"); /* it would run, but for the data */
    o.device = (lh_train_device)7;
    CHECK_INT(lh_train_plan(plan, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "no device has the number 7");
    o.size = 0;
    CHECK_INT(lh_train_plan(plan, &o, &r, &err), LH_EINVAL);
    CHECK(!r);
    lh_plan_free(plan);
    plan = plan_of(1);
    o = (lh_train_plan_options){.size = sizeof o, .device = LH_TRAIN_CPU};
    CHECK_INT(lh_train_plan(plan, &o, &r, &err), LH_EINVAL);
    CHECK_HAS(err.text, "training needs a model");
    CHECK(!r);
    lh_plan_free(plan);
}

/* Plans with three levels and those chosen by the planner: the same losses, to
 * 1e-6, and less memory. With two replicas and eight chunks, parameters at
 * ZeRO-3 take no less than at 2, because the gathered ones take as much. */
static void elastic_plans_train(void)
{
    static const char *const levels[] = {
        "zero: 1, recompute: none", "zero: 2, recompute: none",
        "zero: 3, recompute: none", "zero: 3, recompute: full", "any"};
    double losses[5] = {0}, bytes[5] = {0};
    for (int k = 0; k < 5; k++) {
        lh_plan *plan = plan_of_job(job_with(
            JOB_SMALL,
            "  gpu: {preset: h100-sxm, tflops: 60}\n"
            "  gpus_per_node: 2\n"
            "training: {global_batch: 32, sequence: 16, precision: fp32%s%s}\n"
            "model: {layers: 16, hidden: 48, ffn: 96, heads: 2, vocab: 256}\n"
            "layout: {tensor: 1, data: 2, pipeline: 2, micro_batch: 1, "
            "chunks_per_device: 8, schedule: elastic}\n",
            k < 4 ? ", " : "", k < 4 ? levels[k] : ""));
        lh_train_options run = {
            .size = sizeof run, .steps = 3, .profiles = k == 2};
        lh_train_model m = lh_train_model_defaults();
        m.data = text_path;
        m.rate = 1e-3;
        lh_train_plan_options o = {
            .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
        lh_train_result *r = NULL;
        lh_error err = {0};
        if (plan)
            CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
        if (r) {
            uint32_t n;
            const lh_train_memory *held = lh_train_peak_memory(r, &n);
            losses[k] = r->iterations[2].loss;
            CHECK((r->profile != NULL) == (k == 2));
            CHECK(!r->profile || r->profile->n_entries == 16);
            for (uint32_t i = 0; i < n; i++) {
                double off = (double)held[i].measured_bytes /
                                 (double)held[i].predicted_bytes -
                             1;
                CHECK_MSG(fabs(off) < 0.03 || r->n_pool_growths > 0,
                          "rank %u: memory is off by %g", (unsigned)i, off);
                bytes[k] =
                    fmax(bytes[k],
                         (double)held[i].measured_bytes -
                             (double)held[i].measured[LH_MEMORY_ACTIVATIONS]);
            }
        }
        CHECK_MSG(fabs(losses[k] / losses[0] - 1) < 1e-6, "%s: loss %g, not %g",
                  levels[k], losses[k], losses[0]);
        lh_train_result_free(r);
        lh_plan_free(plan);
    }
    CHECK_MSG(bytes[1] < .8 * bytes[0] && bytes[2] < .8 * bytes[0],
              "state: %g, %g, %g bytes", bytes[0], bytes[1], bytes[2]);
}

/* Operations that an elastic plan recomputes for lack of memory: one product is
 * recomputed as one, in as many layers, so the device supports it. */
static lh_plan *plan_that_picks(void)
{
    return plan_of_job(job_with(
        JOB_SMALL,
        "  gpu: {tflops: 0.05, memory_gib: 0.004, memory_gbps: 10}\n"
        "  datacenters: [{name: a, nodes: 3}]\n"
        "  links: []\n"
        "training: {global_batch: 24, sequence: 64, precision: fp32, zero: 3}\n"
        "model: {layers: 16, hidden: 32, ffn: 64, heads: 2, kv_heads: 1, "
        "vocab: 256}\n"
        "layout: {tensor: 1, data: 3, pipeline: 1, micro_batch: 2, schedule: "
        "elastic}\n"));
}

/* Shared experts' operations are separate. */
static lh_plan *plan_that_picks_experts(void)
{
    return plan_of_job(job_with(
        JOB_SMALL,
        "  gpu: {tflops: 0.05, memory_gib: 0.0034, memory_gbps: 10}\n"
        "  datacenters: [{name: a, nodes: 2}]\n"
        "  links: []\n"
        "training: {global_batch: 16, sequence: 64, precision: fp32, zero: 3}\n"
        "model: {layers: 8, hidden: 32, ffn: 64, heads: 2, kv_heads: 1, "
        "vocab: 256, experts: 4, experts_per_token: 2, expert_ffn: 24, "
        "shared_expert_ffn: 48, dense_layers: 1, router: sigmoid}\n"
        "layout: {tensor: 1, data: 2, expert: 2, pipeline: 1, micro_batch: 2, "
        "schedule: elastic}\n"));
}

static bool makes_again(const lh_plan_elastic *e, const char *operation)
{
    bool found = false;
    for (uint32_t i = 0; e && i < e->n_recomputed; i++)
        found = found || strcmp(e->recomputed[i].operation, operation) == 0;
    return found;
}

static void picked_operations(lh_plan *plan, const char *has, const char * not )
{
    lh_error err = {0};
    lh_train_options run = {.size = sizeof run, .steps = 2};
    lh_train_model m = lh_train_model_defaults();
    m.data = text_path;
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
    lh_train_result *r = NULL;
    const lh_plan_elastic *e = plan ? plan->best.elastic : NULL;
    CHECK(e && plan->best.recompute == LH_RECOMPUTE_OPERATIONS);
    CHECK_MSG(makes_again(e, has), "%s is not made again", has);
    CHECK_MSG(!makes_again(e, not ), "%s ' is recomputed", not );
    for (uint32_t i = 0; e && i + 1 < e->n_recomputed; i++)
        for (uint32_t c = 0; c < e->recomputed[i].n_chunks; c++) {
            const char *a = e->recomputed[i].operation;
            const char *b = e->recomputed[i + 1].operation;
            bool one = (strcmp(a, "query") == 0 && strcmp(b, "key") == 0) ||
                       (strcmp(a, "key") == 0 && strcmp(b, "value") == 0);
            CHECK(!one ||
                  e->recomputed[i].layers[c] == e->recomputed[i + 1].layers[c]);
        }
    if (plan)
        CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
    lh_train_result_free(r);
    lh_plan_free(plan);
}

static void operations_are_picked(void)
{
    picked_operations(plan_that_picks(), "activation", "shared up");
    picked_operations(plan_that_picks_experts(), "shared up", "up");
}

/* Parts of a plan that the cpu device does not support: decay through
 * gradients. */
static void refuses_what_it_does_not_do(void)
{
    static const struct {
        const char *training, *after, *says;
    } rows[] = {
        {"zero: 1, optimizer: adam", "", "plan with optimizer: adamw"},
        {"precision: fp16", "", "training.precision: the cpu device does not"},
        {"zero: 1", "framework: {fp8: matmul}\n",
         "framework.fp8: the cpu device has no FP8 products"},
    };
    lh_train_model m = lh_train_model_defaults();
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .model = &m};
    m.data = "/dev/null";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_error err = {0};
        lh_train_result *r = NULL;
        lh_plan *plan = plan_of_job(
            job_with(JOB_SMALL,
                     "  gpus_per_node: 2\n"
                     "training: {global_batch: 8, sequence: 16, %s}\n"
                     "model: {layers: 4, hidden: 32, ffn: 48, "
                     "heads: 2, vocab: 256}\n"
                     "layout: {tensor: 1, data: 2, pipeline: 2, "
                     "micro_batch: 1}\n%s",
                     rows[i].training, rows[i].after));
        if (plan)
            CHECK_INT(lh_train_plan(plan, &o, &r, &err), LH_EUNSUPPORTED);
        CHECK_HAS(err.text, rows[i].says);
        CHECK(!r);
        lh_train_result_free(r);
        lh_plan_free(plan);
    }
}

/* ... with a pipeline that differs from the plan's. */
static void refuses_operations(void)
{
    static const char text[] =
        "longhaul: pipeline/1\nmicrobatches: 2\ndevices: 2\n"
        "uniform: {placement: ud, F: 1, D: 1, W: 1}\n"
        "data_parallel: {%s}\n";
    static const char *const rows[][2] = {
        {"operations: [{chunk: 0, reduce_scatter: 1, launch: 0B1}]",
         "it needs data_parallel.groups"},
        {"prefetch: 0, chunks: [{chunk: 0, all_gather: 1}, "
         "{chunk: 1, all_gather: 1}]",
         NULL}, /* one per device: that is all of them */
    };
    lh_plan *plan = plan_of(1);
    lh_train_model m = lh_train_model_defaults();
    m.data = "/dev/null";
    for (size_t i = 0; plan && i < 2; i++) {
        char all[512];
        lh_error err = {0};
        lh_train_result *r = NULL;
        lh_pipeline *p = NULL;
        lh_schedule *s = NULL;
        snprintf(all, sizeof all, text, rows[i][0]);
        CHECK_OK(lh_pipeline_parse(all, strlen(all), "p", &p, &err), err);
        CHECK_OK(lh_method_run("gpipe", p, NULL, &s, NULL, &err), err);
        lh_train_plan_options o = {.size = sizeof o,
                                   .device = LH_TRAIN_CPU,
                                   .model = &m,
                                   .pipeline = p,
                                   .schedule = s};
        CHECK_INT(lh_train_plan(plan, &o, &r, &err),
                  rows[i][1] ? LH_EUNSUPPORTED : LH_EINPUT);
        CHECK_HAS(err.text, rows[i][1] ? rows[i][1] : "is not a file");
        CHECK(!r);
        lh_schedule_free(s);
        lh_pipeline_free(p);
    }
    lh_plan_free(plan);
}

int main(void)
{
    int fd = mkstemp(text_path);
    CHECK(fd >= 0);
    close(fd);
    training_text(text_path, 2000);
    RUN(timed);
    RUN(peaks);
    RUN(message_bytes);
    RUN(cpu);
    RUN(recomputes);
    RUN(elastic_plans_train);
    RUN(operations_are_picked);
    RUN(shares_layers);
    RUN(experts_meet_where_they_are);
    RUN(exchanges_are_of_iterations);
    RUN(experts_are_at_two_sites);
    RUN(pairs_train);
    RUN(refuses);
    RUN(refuses_what_it_does_not_do);
    RUN(refuses_operations);
    unlink(text_path);
    return test_summary();
}
