/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's operations: their memory and operations equal the cost model's for
 * a layer, and published totals. */
#include "model/ops.h"
#include "test_cost.h"

/* Compares a layer of the preset, or of `other` if that is given. */
static void sum_like_a_layer(const char *preset, const lh_model *other,
                             uint32_t layer, uint32_t tensor, bool unfused,
                             lh_fp8 fp8)
{
    fixture f;
    lh_cost_op ops[LH_COST_MAX_OPS];
    uint32_t n = 0;
    lh_error err = {0};
    double bytes = 0, flops = 0, ns = 0;

    fixture_init(&f, preset);
    if (other)
        f.job.model = other;
    f.layout.tensor = tensor;
    f.options.unfused_attention = unfused;
    f.job.framework.fp8 = fp8;
    f.slice = (lh_cost_layer_range){.first_layer = layer, .n_layers = 1};
    COST(&f);
    CHECK_OK(lhi_cost_layer_ops(&f.job, &f.layout, &f.slice, layer, &f.options,
                                ops, &n, &err),
             err);
    for (uint32_t i = 0; i < n; i++) {
        bytes += (double)ops[i].bytes;
        flops += ops[i].flops;
        ns += (double)ops[i].ns;
        CHECK(!ops[i].recomputable || ops[i].ns > 0);
    }
    CHECK_NEAR(bytes, (double)f.cost.activation_bytes, LH_COST_MAX_OPS);
    CHECK_NEAR(flops, f.cost.f.flops, 1e-12 * f.cost.f.flops);
    /* Without residuals, dispatch etc. it is at most a forward. */
    CHECK(ns > 0);
    if (bytes < (double)f.cost.activation_bytes - LH_COST_MAX_OPS ||
        bytes > (double)f.cost.activation_bytes + LH_COST_MAX_OPS)
        fprintf(stderr, "%s layer %u tensor %u\n", preset, layer, tensor);
}

/* A parallel block has one norm, stores no sum between attention and MLP, and
 * is reduced half as often. */
static void parallel_blocks(void)
{
    fixture plain, beside;
    lh_model m = *lh_model_preset("gpt3-175b");
    lh_cost_op ops[LH_COST_MAX_OPS];
    for (uint32_t tensor = 1; tensor <= 8; tensor *= 8) {
        uint32_t n = 0;
        double bytes = 0, hidden = 2048.0 * m.hidden / tensor;
        fixture_init(&plain, "gpt3-175b");
        fixture_init(&beside, "gpt3-175b");
        plain.job.training.sequence = beside.job.training.sequence = 2048;
        plain.layout.tensor = beside.layout.tensor = tensor;
        plain.slice = beside.slice = (lh_cost_layer_range){.n_layers = 1};
        plain.job.training.dropout_given = beside.job.training.dropout_given =
            true;
        m.parallel_block = true;
        beside.job.model = &m;
        COST(&plain);
        COST(&beside);
        /* In two bytes: the second norm's input and output. */
        CHECK_NEAR((double)(plain.cost.activation_bytes -
                            beside.cost.activation_bytes),
                   2 * 2 * hidden, 2);
        CHECK_NEAR(beside.cost.f.flops, plain.cost.f.flops, 0);
        CHECK(beside.cost.f.total_ns < plain.cost.f.total_ns);
        lh_error err = {0};
        CHECK_OK(lhi_cost_layer_ops(&beside.job, &beside.layout, &beside.slice,
                                    0, &beside.options, ops, &n, &err),
                 err);
        for (uint32_t i = 0; i < n; i++)
            bytes += (double)ops[i].bytes;
        CHECK_NEAR(bytes, (double)beside.cost.activation_bytes,
                   LH_COST_MAX_OPS);
    }
}

/* Returns the time to recompute all operations of a Mixtral layer with two of
 * the eight experts on a GPU. */
static double recompute_ns(const lh_cost_constants *constants, bool fused)
{
    fixture f;
    lh_cost_op ops[LH_COST_MAX_OPS];
    uint32_t n = 0;
    double ns = 0;
    fixture_init(&f, "mixtral-8x7b");
    f.layout.expert = f.layout.data = 4;
    f.options.constants = constants;
    f.job.framework.fused_experts = fused;
    f.slice = (lh_cost_layer_range){.n_layers = 1};
    CHECK_OK(lhi_cost_layer_ops(&f.job, &f.layout, &f.slice, 0, &f.options, ops,
                                &n, &f.err),
             f.err);
    for (uint32_t i = 0; i < n; i++)
        ns += (double)ops[i].ns;
    return ns;
}

/* Recomputed experts have the fixed time and the lower rate of a forward pass.
 */
static void recomputed_experts_are_as_slow_as_in_a_forward(void)
{
    lh_cost_constants c = *lh_cost_defaults();
    const double rate = 989.5e3 * 0.87 * c.matmul_efficiency;
    const double flops = 2.0 * 8192 * 2 * 3 * 4096 * 14336;
    const double all = recompute_ns(NULL, false);
    CHECK(c.expert_ns > 0 && c.experts_efficiency < 1);
    c.expert_ns = 0;
    CHECK_NEAR(all - recompute_ns(&c, false), 2 * lh_cost_defaults()->expert_ns,
               4);
    const double even = recompute_ns(&c, false);
    c.experts_efficiency = 1;
    CHECK_NEAR((even - recompute_ns(&c, false)) * rate / flops,
               1 / lh_cost_defaults()->experts_efficiency - 1, 1e-3);
    c = *lh_cost_defaults();
    c.expert_ns = 0;
    CHECK_NEAR(recompute_ns(NULL, true), recompute_ns(&c, true), 0);
}

/* Returns the bytes that an m x k by k x n product moves: three matrices of two
 * bytes per element. */
static double moved_bytes(double m, double k, double n)
{
    return 2 * (m * k + k * n + m * n);
}

/* DeepSeek-V3's latent attention for 8192 tokens: hidden 7168, latent vectors
 * of 512 + 64 and 1536, 128 heads of 128 + 64 (queries), 128 (keys) and 128
 * (values). With half of the memory's bandwidth, an operation's own bytes take
 * twice as long. */
static void latent_attention_reads_each_matrix_once(void)
{
    const double t = 8192;
    const struct {
        const char *name;
        double bytes;
    } rows[] = {
        {"latent", moved_bytes(t, 7168, 576) + moved_bytes(t, 7168, 1536)},
        {"query", moved_bytes(t, 1536, 128 * 192)},
        {"key and value", moved_bytes(t, 512, 128 * 256)}};
    lh_cost_constants c = *lh_cost_defaults();
    lh_cost_op whole[LH_COST_MAX_OPS], half[LH_COST_MAX_OPS];
    uint32_t n = 0, n_found = 0;
    fixture f;
    fixture_init(&f, "deepseek-v3");
    f.options.constants = &c;
    CHECK_OK(lhi_cost_layer_ops(&f.job, &f.layout, &f.slice, 0, &f.options,
                                whole, &n, &f.err),
             f.err);
    const double rate = f.sites[0].gpu.memory_bytes_per_s * c.memory_efficiency;
    c.memory_efficiency /= 2;
    CHECK_OK(lhi_cost_layer_ops(&f.job, &f.layout, &f.slice, 0, &f.options,
                                half, &n, &f.err),
             f.err);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < 3; k++)
            if (strcmp(whole[i].name, rows[k].name) == 0) {
                CHECK_NEAR((double)(half[i].ns - whole[i].ns),
                           rows[k].bytes / rate * 1e9, 1);
                n_found++;
            }
    CHECK_INT(n_found, 3);
}

static void presets(void)
{
    static const struct {
        const char *preset;
        uint32_t layer;
    } rows[] = {{"llama3-8b", 3},    {"llama3-70b", 79},   {"gpt3-175b", 0},
                {"qwen2.5-32b", 10}, {"mixtral-8x7b", 2},  {"deepseek-v3", 0},
                {"deepseek-v3", 30}, {"crosspipe-m70", 1}, {"gpt-oss-120b", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t tensor = 1; tensor <= 8; tensor *= 8)
            for (int kind = 0; kind < 4; kind++)
                sum_like_a_layer(rows[i].preset, NULL, rows[i].layer, tensor,
                                 kind & 1,
                                 kind & 2 ? LH_FP8_MATMUL : LH_FP8_NONE);
}

/* Gated delta networks beside gated attention, and an indexer. */
static void other_attention(void)
{
    lh_model linear = *lh_model_preset("llama3-8b");
    lh_model sparse = *lh_model_preset("deepseek-v3");
    linear.linear_key_heads = 16;
    linear.linear_value_heads = 32;
    linear.linear_key_head_dim = 64;
    linear.linear_value_head_dim = 128;
    linear.linear_conv_kernel = 4;
    linear.full_interval = 2;
    linear.attention_gate = true;
    sparse.index_topk = 1024;
    sparse.index_heads = 64;
    sparse.index_head_dim = 128;
    for (uint32_t tensor = 1; tensor <= 8; tensor *= 8) {
        sum_like_a_layer("llama3-8b", &linear, 2, tensor, false, LH_FP8_NONE);
        sum_like_a_layer("llama3-8b", &linear, 3, tensor, false, LH_FP8_NONE);
        sum_like_a_layer("deepseek-v3", &sparse, 0, tensor, false, LH_FP8_NONE);
    }
}

/* Mamba-2, attention, MLPs and experts in layers of their own. */
static void hybrid_layers(void)
{
    lh_model m = *lh_model_preset("mixtral-8x7b");
    m.layer_pattern = "ME*-G";
    m.layers = 5;
    m.mamba_heads = 64;
    m.mamba_head_dim = 64;
    m.mamba_groups = 8;
    m.mamba_state_dim = 128;
    m.mamba_conv_kernel = 4;
    m.linear_key_heads = m.linear_value_heads = 32;
    m.linear_key_head_dim = m.linear_value_head_dim = 64;
    m.linear_conv_kernel = 4;
    m.ffn = 14336;
    for (uint32_t tensor = 1; tensor <= 8; tensor *= 8)
        for (uint32_t layer = 0; layer < m.layers; layer++) {
            m.expert_latent = layer == 1 ? 1024 : 0;
            sum_like_a_layer("mixtral-8x7b", &m, layer, tensor, false,
                             LH_FP8_NONE);
        }
}

static double total(lh_family family, double s, double h, double *flops)
{
    lh_published_op ops[LH_COST_MAX_OPS];
    uint32_t n = lh_cost_published_ops(family, s, 1, h, 1, ops);
    double bytes = 0;
    *flops = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += ops[i].bytes;
        *flops += ops[i].flops;
    }
    return bytes;
}

static void published_totals(void)
{
    double flops, sbh = 3072.0 * 8192;
    CHECK_NEAR(total(LH_FAMILY_GPT3, 3072, 8192, &flops), 34 * sbh, 1e-3);
    CHECK_NEAR(flops, 5258449256448.0, 0.5);
    CHECK_NEAR(total(LH_FAMILY_LLAMA2, 3072, 8192, &flops), 203 * sbh / 6,
               1e-3);
    CHECK_NEAR(total(LH_FAMILY_FALCON, 3072, 8192, &flops), 53 * sbh / 2, 1e-3);
    CHECK_NEAR(lh_cost_published_params(LH_FAMILY_GPT3, 8192),
               12.0 * 8192 * 8192, 0);
    CHECK_NEAR(lh_cost_published_params(LH_FAMILY_FALCON, 8192),
               10.25 * 8192 * 8192, 0);
}

/* GPT-3 with recomputation of GeLU, norms, dropouts and one query in three:
 * 58/3 sbh, 58 MiB per layer with tensor 8; 67 passes with 3 layers. */
static void recomputed_in_part(void)
{
    lh_published_op ops[LH_COST_MAX_OPS];
    uint32_t n = lh_cost_published_ops(LH_FAMILY_GPT3, 3072, 1, 8192, 8, ops);
    double bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        double kept = 1;
        if (strcmp(ops[i].name, "gelu") == 0 || strstr(ops[i].name, "norm") ||
            strstr(ops[i].name, "dropout"))
            kept = 0;
        if (strcmp(ops[i].name, "query") == 0)
            kept = 2.0 / 3;
        bytes += kept * ops[i].bytes;
    }
    CHECK_NEAR(bytes, 58.0 * (1 << 20), 1e-3);
    CHECK_NEAR(67 * 3 * bytes, 11658.0 * (1 << 20), 1);
}

int main(void)
{
    RUN(presets);
    RUN(recomputed_experts_are_as_slow_as_in_a_forward);
    RUN(latent_attention_reads_each_matrix_once);
    RUN(other_attention);
    RUN(hybrid_layers);
    RUN(parallel_blocks);
    RUN(published_totals);
    RUN(recomputed_in_part);
    return test_summary();
}
