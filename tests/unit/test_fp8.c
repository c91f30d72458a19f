/* SPDX-License-Identifier: Apache-2.0 */
/* 8-bit products, overlap with communication, and expert products, computed by
 * hand; also that a job can configure each one. */
#include "jobs.h"
#include "test_cost.h"

#include <string.h>

/* TFLOP/s of large products on an H100: docs/theory/cost-model.md. */
static double rate16(void)
{
    return 989.5 * 0.87 * lh_cost_defaults()->matmul_efficiency;
}

static double rate8(void)
{
    return 1979 * 0.67 * lh_cost_defaults()->matmul_efficiency;
}

static double memory_ns(double bytes)
{
    return bytes / (3350 * lh_cost_defaults()->memory_efficiency);
}

/* Linear maps in a Llama 3 70B layer split into 8: k x n. */
static const double maps[][2] = {
    {8192, (8 + 2) * 128}, {8 * 128, 8192}, {8192, 2 * 3584}, {3584, 8192}};
enum { N_MAPS = 4 };
static const double T = 8192; /* tokens */

static void price_with(fixture *f, lh_fp8 fp8, lh_cost *out)
{
    f->job.framework.fp8 = fp8;
    COST(f);
    *out = f->cost;
}

/* F multiplies its input and quantises it twice, along rows and columns,
 * reading 2 bytes and writing 1 + 1; D does so with the output gradient; W
 * reads the columns of both. Weights are read as 1 byte everywhere. */
static void a_layer_by_hand(void)
{
    fixture f;
    lh_cost wide, slim;
    double in = 0, out = 0, weights = 0;
    const double kernel = lh_cost_defaults()->kernel_ns;

    for (int i = 0; i < N_MAPS; i++) {
        in += T * maps[i][0];
        out += T * maps[i][1];
        weights += maps[i][0] * maps[i][1];
    }
    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    price_with(&f, LH_FP8_NONE, &wide);
    price_with(&f, LH_FP8_MATMUL, &slim);
    double linear = 2 * T * weights;
    double core = wide.f.flops - linear;
    CHECK_NEAR(slim.f.flops, wide.f.flops, 1);
    CHECK_NEAR((double)wide.f.matmul_ns, wide.f.flops / rate16() / 1e3, 2);
    CHECK_NEAR((double)slim.f.matmul_ns,
               linear / rate8() / 1e3 + core / rate16() / 1e3, 2);
    CHECK_NEAR((double)slim.w.matmul_ns, linear / rate8() / 1e3, 2);
    CHECK_NEAR((double)(slim.f.memory_ns - wide.f.memory_ns),
               memory_ns((4 + 1 - 2) * in - weights), 2);
    CHECK_NEAR((double)(slim.d.memory_ns - wide.d.memory_ns),
               memory_ns((4 + 1 - 2) * out - weights), 2);
    CHECK_NEAR((double)(slim.w.memory_ns - wide.w.memory_ns),
               memory_ns(-in - out), 2);
    CHECK_NEAR((double)(slim.f.kernel_ns - wide.f.kernel_ns), N_MAPS * kernel,
               2);
    CHECK_NEAR((double)(slim.d.kernel_ns - wide.d.kernel_ns), N_MAPS * kernel,
               2);
    CHECK_INT(slim.w.kernel_ns, wide.w.kernel_ns);
    CHECK_INT(slim.f.communication_ns, wide.f.communication_ns);
}

/* Outputs of both norms (1/8 on each GPU) and of the activation function are
 * stored in 8 bits; attention's result in 8 and in 16. Weights are two one-byte
 * copies instead of 2 bytes. */
static void a_layer_holds(void)
{
    fixture f;
    lh_cost wide, slim;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    price_with(&f, LH_FP8_NONE, &wide);
    price_with(&f, LH_FP8_MATMUL, &slim);
    CHECK_NEAR((double)(wide.activation_bytes - slim.activation_bytes),
               T * (2 * 1024 + 3584 - 8 * 128), 1);
    CHECK_INT(slim.weight_bytes, wide.weight_bytes);
    CHECK_INT(slim.optimizer_bytes, wide.optimizer_bytes);
}

/* Two gathers and two scatters with T h elements in F: the overlapped part is a
 * fraction, limited by the products' duration. */
static void tensor_goes_on_behind_products(void)
{
    fixture f;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    for (int i = 0; i < 2; i++)
        f.sites[i].node_link.latency_ns = 0;
    COST(&f);
    double sent =
        4 * T * 8192 * 2 * 7 / 8 / (450 * lh_cost_defaults()->node_efficiency);
    double alone = (double)f.cost.f.total_ns;
    CHECK_NEAR((double)f.cost.f.communication_ns, sent, 2);
    f.job.framework.overlap_tensor = 0.25;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns, 0.75 * sent, 2);
    CHECK_NEAR((double)f.cost.f.total_ns, alone - 0.25 * sent, 2);
    f.job.framework.overlap_tensor = 1;
    COST(&f);
    CHECK(sent < (double)f.cost.f.matmul_ns);
    CHECK_INT(f.cost.f.communication_ns, 0);
    /* With a tenth of the link rate, products end first. */
    f.sites[0].node_link.bytes_per_s /= 10;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns,
               10 * sent - (double)f.cost.f.matmul_ns, 20);
}

/* Keys and values from four GPUs overlap with attention, and no gather or
 * scatter overlaps with the same products. */
static void nothing_hides_behind_what_hides_else(void)
{
    fixture f;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 2;
    f.layout.context = 4;
    f.job.framework.overlap_tensor = 1;
    for (int i = 0; i < 2; i++) {
        f.sites[i].node_link.latency_ns = 0;
        f.sites[i].node_link.bytes_per_s /= 100;
    }
    COST(&f);
    double rate = 4.5 * lh_cost_defaults()->node_efficiency;
    double tensor = 4 * T / 4 * 8192 * 2 / 2 / rate;
    double ring = 3 * 4 * 256 * T / 4 * 2 / rate;
    CHECK_NEAR((double)f.cost.f.communication_ns,
               tensor + ring - (double)f.cost.f.matmul_ns, 4);
}

static void init_experts(fixture *f)
{
    fixture_init(f, "qwen3-30b-a3b");
    f->layout.expert = f->layout.data = 8;
    for (int i = 0; i < 2; i++)
        f->sites[i].node_link.latency_ns = 0;
}

/* 8 copies of each of 8192 tokens with 2048 elements, 7/8 to other GPUs, go out
 * and return. */
static void all_to_alls_by_hand(void)
{
    fixture f;
    double sent = 8 * T * 2048 * 7 / 8 * (2 + 2) /
                  (450 * lh_cost_defaults()->node_efficiency);

    init_experts(&f);
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns, sent, 2);
    CHECK_NEAR((double)f.cost.d.communication_ns, sent, 2);
    f.job.framework.fp8 = LH_FP8_MATMUL; /* tokens stay in 16 bits */
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns, sent, 2);
    f.job.framework.fp8 = LH_FP8_DISPATCH; /* 8 bits out, 16 bits back */
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns, 0.75 * sent, 2);
}

/* gpt-oss has expert biases, which Megatron Core adds to each token's 4 results
 * with 2880 values, for 16 experts one after the other. In F: 4 bytes written,
 * 2 + 4 read and 4 written, 4 copied, 4 converted to 2. In D: 2 to 4, 4 to 2,
 * twice 4 multiplied and read again, 2 copied. It also clamps both halves of
 * the activation function's input, of 2880 values each: in F each is read and
 * written, and copied; in D one more is read for each. Both stay in memory. */
static void biases_and_clamps_of_experts(void)
{
    fixture f;
    lh_cost without, with;
    const double kernel = lh_cost_defaults()->kernel_ns;
    const double values = T * 4 * 2880;

    fixture_init(&f, "gpt-oss-120b");
    f.layout.expert = f.layout.data = 8;
    price_with(&f, LH_FP8_NONE, &without);
    f.job.framework.preset = LH_FRAMEWORK_MEGATRON;
    price_with(&f, LH_FP8_NONE, &with);
    CHECK_NEAR((double)(with.f.memory_ns - without.f.memory_ns),
               memory_ns(values * (4 + 6 + 4 + 8 + 4 + 2 + 8 * 2)), 2);
    CHECK_NEAR((double)(with.d.memory_ns - without.d.memory_ns),
               memory_ns(values * (2 + 4 + 4 + 2 + 2 * 12 + 4 + 10 * 2)), 2);
    CHECK_NEAR((double)(with.activation_bytes - without.activation_bytes),
               values * 2 * 2, 1);
    CHECK_INT(with.w.memory_ns, without.w.memory_ns);
    CHECK_NEAR((double)(with.f.kernel_ns - without.f.kernel_ns),
               (2 * 16 + 2 + 3) * kernel, 2);
    CHECK_NEAR((double)(with.d.kernel_ns - without.d.kernel_ns),
               (5 * 16 + 2 + 3) * kernel, 2);
    /* D makes the clamped values again if it recomputes the function, which it
     * then does with 3 kernels and 2 values of each half. */
    lh_cost again;
    f.job.training.recompute = LH_RECOMPUTE_MODULES;
    f.job.training.recompute_modules = 1u << LH_MODULE_MOE_ACT;
    price_with(&f, LH_FP8_NONE, &again);
    CHECK_NEAR((double)(again.d.memory_ns - with.d.memory_ns),
               memory_ns(values * (8 * 2 + 3 * 2)), 2);
    CHECK_NEAR((double)(with.activation_bytes - again.activation_bytes),
               values * (2 * 2 + 2), 1);
    f.job.training.recompute = LH_RECOMPUTE_NONE;
    /* With fused experts, biases and clamping add no memory traffic. */
    f.job.framework.fused_experts = true;
    price_with(&f, LH_FP8_NONE, &with);
    CHECK_INT(with.f.memory_ns, without.f.memory_ns);
    CHECK_NEAR((double)(without.d.kernel_ns - with.d.kernel_ns),
               lh_cost_defaults()->dispatch_ns +
                   16 * lh_cost_defaults()->expert_ns,
               2);
}

/* Expert products, 8 of three 2048 x 768 per token, reach a lower rate than
 * others, and another one when fused with the steps in between. */
static void experts_are_slower(void)
{
    fixture f;
    double experts = 2 * T * 8 * 3 * 2048 * 768;
    lh_cost_constants c = *lh_cost_defaults();

    init_experts(&f);
    c.experts_efficiency = 0.5;
    c.fused_experts_efficiency = 0.8;
    f.options.constants = &c;
    COST(&f);
    double rest = f.cost.f.flops - experts;
    CHECK_NEAR((double)f.cost.f.matmul_ns,
               (rest + experts / 0.5) / rate16() / 1e3, 2);
    f.job.framework.fused_experts = true;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.matmul_ns,
               (rest + experts / 0.8) / rate16() / 1e3, 2);
    /* There is no measurement on these GPUs. */
    for (int i = 0; i < 2; i++)
        f.sites[i].gpu = *lh_gpu_preset("a100-80g");
    COST(&f);
    CHECK_NEAR((double)f.cost.f.matmul_ns,
               f.cost.f.flops / (312 * lh_cost_defaults()->matmul_efficiency) /
                   1e3,
               2);
}

/* A GPU's efficiency applies to its kernels, each at the rate for its
 * precision. */
static void an_efficiency_is_of_both_rates(void)
{
    fixture f;
    lh_cost wide, slim;
    double linear = 0;

    for (int i = 0; i < N_MAPS; i++)
        linear += 2 * T * maps[i][0] * maps[i][1];
    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    f.sites[0].gpu.efficiency = 0.5;
    price_with(&f, LH_FP8_NONE, &wide);
    price_with(&f, LH_FP8_MATMUL, &slim);
    CHECK_NEAR(
        (double)slim.f.matmul_ns,
        linear / (1979e3 * 0.5) + (wide.f.flops - linear) / (989.5e3 * 0.5), 2);
    CHECK_INT(slim.f.memory_ns, 0);
}

/* Prices a fixture's layer on GB200 with attention in 16 and in 8 bits. */
static void price_attention(fixture *f, lh_cost *wide, lh_cost *slim)
{
    for (int i = 0; i < 2; i++)
        f->sites[i].gpu = *lh_gpu_preset("gb200");
    f->job.framework.attention = LH_ATTENTION_CUDNN;
    price_with(f, LH_FP8_MATMUL, wide);
    f->job.framework.attention = LH_ATTENTION_CUDNN_FP8;
    price_with(f, LH_FP8_MATMUL, slim);
}

/* Attention with 8 + 1 + 1 heads of 128 values on a GPU: the rates of
 * docs/theory/cost-model.md. F quantises queries, keys and values, D the
 * output's gradient: a kernel that reads 2 bytes and writes 1 + 1. */
static void attention_in_8_bits_has_its_own_rates(void)
{
    const double flops = 2 * T * 4096 * 8 * 128, slower = (8192 + 900) / 8192.0;
    const double bytes = T * 128 * 4, peak = 2500e3;
    const double bandwidth = 8000 * lh_cost_defaults()->memory_efficiency;
    lh_cost wide, slim;
    fixture f;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    price_attention(&f, &wide, &slim);
    CHECK_NEAR((double)(slim.f.matmul_ns - wide.f.matmul_ns),
               2 * flops * slower / (0.70 * peak) * (1 / 1.39 - 1), 5);
    CHECK_NEAR((double)(slim.d.matmul_ns - wide.d.matmul_ns),
               5 * flops * slower / (0.58 * peak) * (1 / 0.98 - 1), 5);
    CHECK_NEAR((double)(slim.f.memory_ns - wide.f.memory_ns),
               10 * bytes / bandwidth, 5);
    CHECK_NEAR((double)(slim.d.memory_ns - wide.d.memory_ns),
               8 * bytes / bandwidth, 5);
    CHECK_NEAR((double)(slim.f.kernel_ns - wide.f.kernel_ns),
               lh_cost_defaults()->kernel_ns, 2);
}

/* NVIDIA's measurements (cudnn-frontend 3929da2) of D with a window of 128, two
 * sequences of 8,192 tokens and 128 heads of 64 values: in 16 bits 0.911 ms on
 * GB200 and 0.862 ms on GB300, in 8 bits 7.427 and 6.648 ms, as all tokens are
 * computed. Here are half the tokens and half the heads. */
static void a_window_saves_no_time_backward_in_8_bits(void)
{
    const double longer = ((7.427 - 0.911) + (6.648 - 0.862)) / 2 * 1e6 / 4;
    lh_cost wide, slim;
    fixture f;

    fixture_init(&f, "gpt-oss-120b");
    price_attention(&f, &wide, &slim);
    CHECK_NEAR((double)(slim.d.matmul_ns - wide.d.matmul_ns), longer,
               0.1 * longer);
    CHECK_NEAR((double)slim.f.matmul_ns, (double)wide.f.matmul_ns,
               0.1 * (double)wide.f.matmul_ns);
}

/* The head's product is counted in 8 bits only with fp8: head. An eighth of
 * 128,256 words takes 251 tiles of 64. */
static void the_head_can_be_in_8_bits(void)
{
    const double flops = 2 * T * 8192 * 251 * 64;
    lh_cost wide, slim;
    fixture f;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    f.slice.head = true;
    price_with(&f, LH_FP8_MATMUL, &wide);
    price_with(&f, LH_FP8_HEAD, &slim);
    CHECK_NEAR((double)(wide.f.matmul_ns - slim.f.matmul_ns),
               flops / 1e3 * (1 / rate16() - 1 / rate8()), 5);
    f.slice.head = false;
    price_with(&f, LH_FP8_MATMUL, &wide);
    price_with(&f, LH_FP8_HEAD, &slim);
    CHECK_INT(wide.f.total_ns, slim.f.total_ns);
}

#define MOE                                                                    \
    "longhaul: job/1\nmodel: qwen3-30b-a3b\n"                                  \
    "training: {global_batch: 16, sequence: 4096}\n"                           \
    "cluster:\n"                                                               \
    "  gpu: %s\n"                                                              \
    "  gpus_per_node: 8\n"                                                     \
    "  node_link: {gbps: 3600, latency_us: 3}\n"                               \
    "  datacenters: [{name: a, nodes: 1}]\n"                                   \
    "framework: {%s}\n"

static lh_job *parse_moe(const char *gpu, const char *framework, lh_error *err)
{
    char text[1024];
    lh_job *job = NULL;

    snprintf(text, sizeof text, MOE, gpu, framework);
    if (lh_job_parse(text, strlen(text), "j.yaml", NULL, &job, err) != LH_OK)
        return NULL;
    return job;
}

static void expect_refusal(const char *gpu, const char *framework,
                           const char *why)
{
    lh_error err = {0};
    lh_job *job = parse_moe(gpu, framework, &err);

    CHECK_MSG(!job && strstr(err.text, why), "%s", err.text);
    lh_job_free(job);
}

static void a_rate_has_to_be_known(void)
{
    expect_refusal("a100", "fp8: matmul",
                   "framework.fp8: the FP8 rate of a100-80g is unknown; "
                   "set its fp8_tflops");
    expect_refusal("{tflops: 100, memory_gib: 80, memory_gbps: 2000}",
                   "fp8: dispatch", "the FP8 rate of custom is unknown");
    expect_refusal("{preset: h100, fp8_tflops: 0}", "fp8: matmul",
                   "fp8_tflops");
    expect_refusal("gb200", "attention: cudnn-fp8",
                   "framework.attention: requires framework.fp8; use cudnn");
    expect_refusal("h100", "attention: cudnn-fp8, fp8: matmul",
                   "framework.attention: its rates are known from B200 on, not "
                   "on h100-sxm; use cudnn");
}

/* NVIDIA measured FP8 attention with a causal mask and with a window. */
static void sparse_and_chunked_attention_have_no_fp8_rates(void)
{
    static const char *const models[] = {
        "{layers: 4, hidden: 1024, ffn: 4096, heads: 8, vocab: 32000, "
        "sliding_window: 1024, chunked_attention: true}",
        "{layers: 4, hidden: 1024, ffn: 4096, heads: 8, vocab: 32000, "
        "q_lora_rank: 64, kv_lora_rank: 64, qk_nope_head_dim: 64, "
        "qk_rope_head_dim: 64, v_head_dim: 64, index_heads: 8, "
        "index_head_dim: 128, index_topk: 512}"};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int fp8 = 0; fp8 < 2; fp8++) {
            char text[1024];
            lh_error err = {0};
            lh_job *job = NULL;

            snprintf(text, sizeof text,
                     "longhaul: job/1\nmodel: %s\n"
                     "training: {global_batch: 8, sequence: 4096}\n"
                     "cluster:\n  gpu: gb200\n  gpus_per_node: 4\n"
                     "  node_link: {gbps: 3600, latency_us: 3}\n"
                     "  datacenters: [{name: a, nodes: 1}]\n"
                     "framework: {fp8: matmul, attention: cudnn%s}\n",
                     models[i], fp8 ? "-fp8" : "");
            lh_job_parse(text, strlen(text), "j.yaml", NULL, &job, &err);
            CHECK_MSG((job == NULL) == fp8, "%s", err.text);
            CHECK_MSG(!fp8 || strstr(err.text, "sparse or chunked attention"),
                      "%s", err.text);
            lh_job_free(job);
        }
}

static void a_rate_reads_back(void)
{
    static const char *const gpus[] = {
        "h100", "{preset: h100, fp8_tflops: 1500}",
        "{tflops: 100, fp8_tflops: 190, memory_gib: 80, memory_gbps: 2000}"};

    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        lh_error err = {0};
        lh_job *job = parse_moe(gpus[i], "fp8: dispatch, experts: fused", &err);
        lh_job *again = NULL;
        char *text = NULL;
        size_t len = 0;

        CHECK_MSG(job, "%s", err.text);
        if (!job)
            continue;
        CHECK_OK(lh_job_format(job, &text, &len, &err), err);
        CHECK((strstr(text, "fp8_tflops") != NULL) == (i > 0));
        CHECK_OK(lh_job_parse(text, len, "again", NULL, &again, &err), err);
        if (again) {
            CHECK_NEAR(again->datacenters[0].gpu.fp8_tflops,
                       job->datacenters[0].gpu.fp8_tflops, 0);
            CHECK_INT(again->framework.fp8, LH_FP8_DISPATCH);
            CHECK(again->framework.fused_experts);
        }
        lh_text_free(text);
        lh_job_free(again);
        lh_job_free(job);
    }
    lh_error err = {0};
    lh_job *dense = NULL;
    const char *text = "longhaul: job/1\nmodel: llama3-8b\n"
                       "training: {global_batch: 1, sequence: 512}\n"
                       "cluster: {gpu: h100, gpus_per_node: 1, datacenters: "
                       "[{name: a, nodes: 1}]}\n"
                       "framework: {experts: fused}\n";
    CHECK(lh_job_parse(text, strlen(text), "j", NULL, &dense, &err) ==
          LH_EINPUT);
    CHECK_MSG(strstr(err.text, "framework.experts: llama3-8b has none"), "%s",
              err.text);
}

/* Every key changes a layer's duration. */
static void each_key_counts(void)
{
    static const char *const keys[] = {
        "",
        "fp8: matmul",
        "fp8: dispatch",
        "experts: fused",
        "overlap: {expert: 0.5}",
        "overlap: {tensor: 0.5}",
    };
    enum { N_KEYS = sizeof keys / sizeof *keys };
    int64_t ns[N_KEYS] = {0};
    lh_layout layout = {.tensor = 2,
                        .context = 1,
                        .expert = 4,
                        .pipeline = 1,
                        .data = 4,
                        .micro_batch = 1};
    lh_cost_layer_range slice = {.n_layers = 1};

    for (int i = 0; i < N_KEYS; i++) {
        lh_error err = {0};
        lh_job *job = parse_moe("h100", keys[i], &err);
        lh_cost cost = {0};

        CHECK_MSG(job, "%s: %s", keys[i], err.text);
        if (!job)
            continue;
        CHECK_OK(lh_cost_chunk(job, &layout, &slice, NULL, &cost, &err), err);
        ns[i] = cost.f.total_ns + cost.d.total_ns + cost.w.total_ns;
        for (int k = 0; k < i; k++)
            CHECK_MSG(ns[i] != ns[k], "%s: as %s", keys[i], keys[k]);
        lh_job_free(job);
    }
}

int main(void)
{
    RUN(a_layer_by_hand);
    RUN(a_layer_holds);
    RUN(tensor_goes_on_behind_products);
    RUN(nothing_hides_behind_what_hides_else);
    RUN(all_to_alls_by_hand);
    RUN(biases_and_clamps_of_experts);
    RUN(experts_are_slower);
    RUN(an_efficiency_is_of_both_rates);
    RUN(attention_in_8_bits_has_its_own_rates);
    RUN(a_window_saves_no_time_backward_in_8_bits);
    RUN(the_head_can_be_in_8_bits);
    RUN(a_rate_has_to_be_known);
    RUN(sparse_and_chunked_attention_have_no_fp8_rates);
    RUN(a_rate_reads_back);
    RUN(each_key_counts);
    return test_summary();
}
