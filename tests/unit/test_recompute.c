/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputed modules of a layer: their saved memory and recomputation time, by
 * hand. */
#include "model/flop_count.h"
#include "test_cost.h"

#include <longhaul/experimental/plan.h>
#include <longhaul/export.h>
#include <string.h>

static void recompute(fixture *f, uint32_t modules)
{
    f->job.training.recompute =
        modules ? LH_RECOMPUTE_MODULES : LH_RECOMPUTE_NONE;
    f->job.training.recompute_modules = modules;
}

/* Returns the bytes that recomputing `modules` saves; *d gets the additional
 * cost of D. */
static int64_t dropped(fixture *f, uint32_t modules, lh_pass_cost *d)
{
    lh_cost plain;

    recompute(f, 0);
    COST(f);
    plain = f->cost;
    recompute(f, modules);
    COST(f);
    d->flops = f->cost.d.flops - plain.d.flops;
    d->matmul_ns = f->cost.d.matmul_ns - plain.d.matmul_ns;
    d->memory_ns = f->cost.d.memory_ns - plain.d.memory_ns;
    d->kernel_ns = f->cost.d.kernel_ns - plain.d.kernel_ns;
    d->communication_ns = f->cost.d.communication_ns - plain.d.communication_ns;
    /* F and W are unchanged, and so is W's input. */
    CHECK_INT(f->cost.f.total_ns, plain.f.total_ns);
    CHECK_INT(f->cost.w.total_ns, plain.w.total_ns);
    CHECK_INT(f->cost.weight_input_bytes, plain.weight_input_bytes);
    /* D needs the recomputed activations in its workspace. */
    CHECK_NEAR((double)(f->cost.workspace_bytes - plain.workspace_bytes),
               (double)(plain.activation_bytes - f->cost.activation_bytes), 1);
    return plain.activation_bytes - f->cost.activation_bytes;
}

static double memory_ns(double bytes)
{
    return bytes / (3350 * lh_cost_defaults()->memory_efficiency);
}

/* Llama 3 70B, tensor 8: hidden 8192, 64 heads and 8 for keys and values with
 * dimension 128, ffn 28672; 8192 tokens. */
static void dense_layer(void)
{
    fixture f;
    lh_pass_cost d = {0};
    const double kernel = lh_cost_defaults()->kernel_ns;
    const double t = 8192, h = 8192, ffn = 28672.0 / 8;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    /* Two norms with 2 bytes x h / 8; each is read and written again. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_LAYERNORM, &d), 8192 * 2 * 2 * 1024);
    CHECK_NEAR((double)d.memory_ns, memory_ns(2 * 2 * t * 1024 * 2), 2);
    CHECK_NEAR((double)d.kernel_ns, 2 * kernel, 2);
    CHECK_NEAR(d.flops, 0, 0);
    CHECK_INT(d.communication_ns, 0);
    /* Flash attention stores a log-sum-exp with 4 bytes for each of 8 heads.
     * Two products with 8 heads x 128 over half the sequence. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_CORE_ATTN, &d), 8192 * 4 * 8);
    CHECK_NEAR(d.flops, 2 * 2 * t * (t / 2) * 8 * 128, 1);
    CHECK_NEAR((double)d.kernel_ns, kernel, 2);
    CHECK_INT(d.communication_ns, 0);
    /* Gate and up, and their product, 2 bytes each; three matrices again, with
     * the tokens gathered before and scattered after. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MLP, &d), 8192 * 2 * 3 * 3584);
    CHECK_NEAR(d.flops, 3 * 2 * t * h * ffn, 1);
    CHECK_NEAR((double)d.kernel_ns, 3 * kernel, 2);
    CHECK_NEAR((double)d.communication_ns,
               2 * (7.0 / 8 * t * h * 2 / fixture_node_rate() +
                    7 * FIXTURE_NODE_LATENCY),
               4);
    /* Their savings add up. */
    lh_pass_cost all = {0};
    CHECK_INT(dropped(&f,
                      1u << LH_MODULE_LAYERNORM | 1u << LH_MODULE_MLP |
                          1u << LH_MODULE_CORE_ATTN,
                      &all),
              8192 * (4 * 1024 + 4 * 8 + 6 * 3584));
    CHECK_NEAR(all.flops, 3 * 2 * t * h * ffn + 2 * t * t * 8 * 128, 1);
    /* The layer has no experts. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MOE | 1u << LH_MODULE_MOE_ACT, &d),
              0);
    CHECK_INT(d.kernel_ns, 0);
}

/* A gated delta network: its core is one kernel sequence, which stores chunks
 * of 64 tokens x 64 for each of 32 heads, 2 bytes each. */
static void linear_layer(void)
{
    fixture f;
    lh_pass_cost d = {0};
    lh_model m = *lh_model_preset("llama3-8b");
    double linear, core;

    m.linear_key_heads = 16;
    m.linear_value_heads = 32;
    m.linear_key_head_dim = m.linear_value_head_dim = 128;
    m.linear_conv_kernel = 4;
    m.full_interval = 2;
    fixture_init(&f, "llama3-8b");
    f.job.model = &m;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &core);
    CHECK_INT(dropped(&f, 1u << LH_MODULE_CORE_ATTN, &d), 8192 * 2 * 32 * 64);
    /* All of F but its projections is computed again. */
    CHECK_NEAR(d.flops / (f.cost.f.flops - linear), 1, 1e-9);
    CHECK(core > 0 && d.flops > core);
    CHECK(d.kernel_ns > 0 && d.communication_ns == 0);
}

/* DeepSeek-V3: 128 heads with 128 + 64 for queries and keys, 128 for values,
 * from latents of 1536 and 512. Experts 2048 wide, 8 of 256 per token, and a
 * shared one. Tensor 1, expert 8 over 8 replicas, 4096 tokens. */
static void experts_layer(void)
{
    fixture f;
    lh_pass_cost d = {0};
    const double kernel = lh_cost_defaults()->kernel_ns;
    const double t = 4096, h = 7168;

    fixture_init(&f, "deepseek-v3");
    f.job.training.sequence = 4096;
    f.layout.data = f.layout.expert = 8;
    f.slice.first_layer = 30;
    /* Queries, keys and values of all heads; their projection matrices and the
     * rotation. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MLA_UP_PROJ, &d),
              4096LL * 2 * 128 * (192 + 192 + 128));
    CHECK_NEAR(d.flops,
               2 * t * 1536 * 128 * 192 + 2 * t * 512 * 128 * (128 + 128), 1);
    CHECK_NEAR((double)d.kernel_ns, 3 * kernel, 2);
    CHECK_INT(d.communication_ns, 0);
    /* The product of gate and up in 8 experts; both are read. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MOE_ACT, &d), 4096LL * 2 * 8 * 2048);
    CHECK_NEAR(d.flops, 0, 0);
    CHECK_NEAR((double)d.memory_ns, memory_ns(3 * t * 2 * 8 * 2048), 2);
    CHECK_NEAR((double)d.kernel_ns, kernel, 2);
    /* Gate, up and product of the shared expert, three matrices. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_SHARED_EXPERTS, &d),
              4096LL * 2 * 3 * 2048);
    CHECK_NEAR(d.flops, 3 * 2 * t * h * 2048, 1);
    CHECK_INT(d.communication_ns, 0);
    /* The whole MoE layer: dispatched tokens, 256 weights in fp32, nine
     * experts; the router's matrix again, and two out of four all-to-alls. */
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MOE, &d),
              4096LL * (2 * 8 * 7168 + 4 * 256 + 2 * 3 * 9 * 2048));
    CHECK_NEAR(d.flops, 2 * t * h * 256 + 9 * 3 * 2 * t * h * 2048, 2);
    recompute(&f, 0);
    COST(&f);
    CHECK_NEAR((double)d.communication_ns, (double)f.cost.f.communication_ns,
               2);
    CHECK(d.communication_ns > 0);
    /* It includes the others. */
    lh_pass_cost same = {0};
    CHECK_INT(dropped(&f,
                      1u << LH_MODULE_MOE | 1u << LH_MODULE_MOE_ACT |
                          1u << LH_MODULE_SHARED_EXPERTS,
                      &same),
              4096LL * (2 * 8 * 7168 + 4 * 256 + 2 * 3 * 9 * 2048));
    CHECK_INT(same.communication_ns, d.communication_ns);
    CHECK_INT(same.kernel_ns, d.kernel_ns);
    /* If expert outputs are weighted, they are stored, too. */
    int64_t kept = dropped(&f, 1u << LH_MODULE_MOE, &d);
    f.job.framework.preset = LH_FRAMEWORK_DEEPSPEED;
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MOE, &d) - kept,
              4096LL * 2 * 8 * 7168);
    /* A dense layer of the model. */
    f.slice.first_layer = 0;
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MOE, &d), 0);
    CHECK_INT(dropped(&f, 1u << LH_MODULE_MLP, &d), 4096LL * 2 * 3 * 18432);
}

/* Recomputed attention scores as in Korthikanti et al.: equation 6. */
static void unfused_attention(void)
{
    fixture f;
    lh_pass_cost d = {0}, cheap;
    int64_t kept;

    fixture_init(&f, "gpt3-175b");
    f.job.training.sequence = 2048;
    f.layout.tensor = 8;
    f.options.unfused_attention = true;
    CHECK_INT(dropped(&f, 1u << LH_MODULE_CORE_ATTN, &d),
              5LL * 96 * 2048 * 2048 / 8);
    kept = f.cost.activation_bytes;
    cheap = f.cost.d;
    f.job.training.recompute = LH_RECOMPUTE_SELECTIVE;
    COST(&f);
    CHECK_INT(f.cost.activation_bytes, kept);
    CHECK_INT(f.cost.d.total_ns, cheap.total_ns);
}

/* All modules store at least as much as full recomputation, and no set of
 * modules needs less memory than a superset. */
static void more_keeps_less(void)
{
    static const char *const models[] = {"llama3-8b", "deepseek-v3",
                                         "qwen3-30b-a3b", "gpt-oss-120b"};
    for (int i = 0; i < 4; i++) {
        fixture f;
        lh_cost full;
        fixture_init(&f, models[i]);
        f.slice.first_layer = f.job.model->layers - 1;
        f.job.training.sequence = 4096;
        f.job.training.recompute = LH_RECOMPUTE_FULL;
        COST(&f);
        full = f.cost;
        for (uint32_t set = 1; set < 1u << LH_N_MODULES; set++) {
            recompute(&f, set);
            COST(&f);
            lh_cost here = f.cost;
            CHECK(here.activation_bytes >= full.activation_bytes);
            for (uint32_t m = 0; m < LH_N_MODULES; m++) {
                recompute(&f, set & ~(1u << m));
                COST(&f);
                CHECK(f.cost.activation_bytes >= here.activation_bytes);
                CHECK(f.cost.d.total_ns <= here.d.total_ns);
            }
        }
    }
}

/* --- job ------------------------------------------------------------------ */

static const char job_text[] =
    "longhaul: job/1\n"
    "model: %s\n"
    "training: {global_batch: 16, sequence: 4096, recompute: %s}\n"
    "cluster:\n"
    "  gpu: h200\n"
    "  gpus_per_node: 8\n"
    "  node_link: {gbps: 3600, latency_us: 3}\n"
    "  datacenters: [{name: west, nodes: 1}]\n";

static lh_status parse(const char *model, const char *what, lh_job **out,
                       lh_error *err)
{
    char text[1024];
    int len = snprintf(text, sizeof text, job_text, model, what);
    return lh_job_parse(text, (size_t)len, "job.yaml", NULL, out, err);
}

static void refused(const char *model, const char *what, const char *why)
{
    lh_job *job = NULL;
    lh_error err;
    CHECK_INT(parse(model, what, &job, &err), LH_EINPUT);
    if (!strstr(err.text, why))
        CHECK_STR(err.text, why);
}

static void in_a_job(void)
{
    lh_job *job, *again;
    lh_error err;
    char *text;
    size_t len;
    CHECK_OK(parse("llama3-8b", "[mlp, layernorm]", &job, &err), err);
    CHECK_INT(job->training.recompute, LH_RECOMPUTE_MODULES);
    CHECK_INT(job->training.recompute_modules,
              1u << LH_MODULE_MLP | 1u << LH_MODULE_LAYERNORM);
    CHECK(job->training.recompute_given);
    CHECK_OK(lh_job_format(job, &text, &len, &err), err);
    CHECK(strstr(text, "\"layernorm\"") != NULL);
    CHECK_OK(lh_job_parse(text, len, "again", NULL, &again, &err), err);
    CHECK_INT(again->training.recompute_modules,
              job->training.recompute_modules);
    lh_text_free(text);
    lh_job_free(again);
    lh_job_free(job);
    refused("llama3-8b", "[]",
            "training.recompute: must list at least one module");
    refused("llama3-8b", "[mlp, mlp]", "'mlp' appears twice");
    refused("llama3-8b", "[attn]", "must be core_attn");
    refused("llama3-8b", "modules", "must be none");
    refused("llama3-8b", "[moe_act]", "llama3-8b has no experts");
    refused("llama3-8b", "[mla_up_proj]", "no multi-head latent attention");
    refused("qwen3-30b-a3b", "[shared_experts]", "no shared experts");
    refused("{layers: 4, hidden: 1024, heads: 8, vocab: 1000, ffn: 4096, "
            "experts: 8, experts_per_token: 2, expert_ffn: 512}",
            "[mlp]", "has no layers without experts");
}

/* The plan has exactly the job's modules, round-trips, and is exported with
 * Megatron-LM's names. */
static void in_a_plan(void)
{
    lh_job *job;
    lh_plan *plan, *again;
    lh_error err;
    lh_pipeline *p;
    lh_plan_options o = {
        .size = sizeof o, .no_optimal = true, .target = LH_TARGET_MEGATRON};
    char *text;
    size_t len;
    CHECK_OK(parse("llama3-8b", "[core_attn, mlp]", &job, &err), err);
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    CHECK_INT(plan->best.recompute, LH_RECOMPUTE_MODULES);
    CHECK_OK(lh_plan_format(plan, &text, &len, &err), err);
    CHECK_OK(lh_plan_parse(text, len, "plan.json", &again, &err), err);
    CHECK_INT(again->best.recompute, LH_RECOMPUTE_MODULES);
    lh_text_free(text);
    lh_plan_free(again);
    CHECK_OK(lh_export_megatron(plan, NULL, &text, &len, &err), err);
    CHECK(strstr(text, "--recompute-granularity selective\n"
                       "--recompute-modules core_attn mlp\n") != NULL);
    lh_text_free(text);
    lh_layout layout = plan->best.layout;
    lh_plan_free(plan);
    lh_job_free(job);
    CHECK_OK(parse("llama3-8b", "none", &job, &err), err);
    CHECK_INT(lh_plan_pipeline(job, &layout, LH_PLACEMENT_UD,
                               LH_RECOMPUTE_MODULES, &p, NULL, &err),
              LH_EINVAL);
    lh_job_free(job);
}

int main(void)
{
    RUN(dense_layer);
    RUN(linear_layer);
    RUN(experts_layer);
    RUN(unfused_attention);
    RUN(more_keeps_less);
    RUN(in_a_job);
    RUN(in_a_plan);
    return test_summary();
}
