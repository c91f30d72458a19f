/* SPDX-License-Identifier: Apache-2.0 */
/* Operations and durations of passes. */
#include "test_cost.h"
#include "model/flop_count.h"
#include "model/paths.h"

/* Matrix parameters of a Llama 3 layer: queries and outputs, keys and values,
 * and the three MLP matrices. */
static double llama3_layer(double hidden, double kv, double ffn)
{
    return 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * ffn;
}

/* Both attention products, scores and values, forward: each takes 2 per token,
 * head dimension and visible token, of which there are s / 2. */
static double attention_flops(double s, double hidden)
{
    return 2 * 2 * s * (s / 2) * hidden;
}

/* Duration of a ring of n GPUs in a node to all-gather or reduce-scatter these
 * bytes: each GPU sends and receives all but its own share. */
static double ring_ns(double n, double bytes)
{
    return (n - 1) / n * bytes / fixture_node_rate() +
           (n - 1) * FIXTURE_NODE_LATENCY;
}

/* 6 N per token for the matrices, and attention: Narayanan et al. 2021, the
 * appendix's 72 B s l h^2 (1 + s/6h + V/12lh) without recomputation, with half
 * the attention because it is causal. */
static void gpt3_iteration(void)
{
    fixture f;
    double s = 2048, l = 96, h = 12288, v, want;

    fixture_init(&f, "gpt3-175b");
    f.job.training.global_batch = 1536;
    f.job.training.sequence = 2048;
    v = f.job.model->vocab;
    want = 72 * 1536 * s * l * h * h * (1 + s / (12 * h) + v / (12 * l * h));
    CHECK_NEAR(lh_cost_iteration_flops(&f.job) / want, 1, 1e-12);
}

static void llama_layer(void)
{
    const lh_model *m = lh_model_preset("llama3-70b");
    double linear, attention;

    lhi_cost_layer_flops(m, 0, 8192, &linear, &attention);
    CHECK_NEAR(linear, 2 * 8192 * llama3_layer(8192, 8 * 128, 28672), 0);
    CHECK_NEAR(attention, attention_flops(8192, 8192), 0);
    CHECK_NEAR(lhi_cost_head_flops(m, 8192), 2.0 * 8192 * 8192 * 128256, 0);
}

static void experts_count_as_used(void)
{
    const lh_model *m = lh_model_preset("mixtral-8x7b");
    double linear, attention;

    /* Two out of eight experts, and the router. */
    lhi_cost_layer_flops(m, 0, 4096, &linear, &attention);
    CHECK_NEAR(
        linear,
        2.0 * 4096 *
            (2.0 * 4096 * 128 * (32 + 8) + 4096 * 8 + 2.0 * 3 * 4096 * 14336),
        0);
}

static void window_bounds_attention(void)
{
    lh_model m = *lh_model_preset("llama3-8b");
    double linear, all, some, same;

    lhi_cost_layer_flops(&m, 0, 8192, &linear, &all);
    m.sliding_window = 1024;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &some);
    CHECK_NEAR(some / all, (1024 - 1024.0 * 1024 / 16384) / 4096, 1e-12);
    m.sliding_window = 1; /* each token itself */
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &same);
    CHECK_NEAR(same / all, (1 - 1.0 / 16384) / 4096, 1e-12);
    m.sliding_window = 8192;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &same);
    CHECK_NEAR(same, all, 0);
    m.sliding_window = 1024;
    m.full_interval = 2;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &same);
    CHECK_NEAR(same, some, 0);
    lhi_cost_layer_flops(&m, 1, 8192, &linear, &same);
    CHECK_NEAR(same, all, 0);
}

/* Tokens of a chunk attend to half of it on average; the last one is shorter.
 */
static void chunks_bound_attention(void)
{
    lh_model m = *lh_model_preset("llama3-8b");
    double linear, all, some;

    m.chunked_attention = true;
    m.sliding_window = 8192;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &all);
    m.sliding_window = 2048;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &some);
    CHECK_NEAR(some / all, 0.25, 1e-12);
    m.sliding_window = 6144;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &some);
    CHECK_NEAR(some / all, (6144.0 * 6144 + 2048 * 2048) / (8192.0 * 8192),
               1e-12);
}

/* A Mamba-2 layer has its two projections and the four products of SSD; it
 * retains the projections' inputs and outputs, and a layer of an MLP alone has
 * no attention. */
static void mamba_layers_cost_their_products(void)
{
    fixture f;
    lh_model m = *lh_model_preset("llama3-8b");
    const double t = 8192, h = 4096, heads = 128, p = 64, n = 128, g = 8;
    const double values = heads * p, projected = 2 * values + 2 * g * n + heads;
    double linear, core, scores = 2 * t * g * 128 * n;

    m.layer_pattern = "M-M*";
    m.layers = 4;
    m.mamba_heads = (uint32_t)heads;
    m.mamba_head_dim = (uint32_t)p;
    m.mamba_groups = (uint32_t)g;
    m.mamba_state_dim = (uint32_t)n;
    m.mamba_conv_kernel = 4;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &core);
    CHECK_NEAR(linear, 2 * t * h * (projected + values), 0);
    CHECK_NEAR(core, 4 * t * heads * p * n, 0);
    lhi_cost_layer_flops(&m, 1, 8192, &linear, &core);
    CHECK_NEAR(linear, 6 * t * h * m.ffn, 0);
    CHECK_NEAR(core, 0, 0);
    fixture_init(&f, "llama3-8b");
    f.job.model = &m;
    f.slice = (lh_cost_layer_range){.first_layer = 2, .n_layers = 1};
    COST(&f);
    const double ssd = scores + 2 * t * heads * (128 * p + 2 * n * p);
    CHECK_NEAR(f.cost.f.flops, 2 * t * h * (projected + values) + ssd, 1);
    CHECK_NEAR(f.cost.d.flops,
               2 * t * h * (projected + values) + 2 * ssd + scores +
                   2 * t * heads * n * p,
               1);
    CHECK_NEAR((double)f.cost.activation_bytes,
               2 * t * (2 * h + projected + 2 * values), 1);
}

/* The FLOPs of an iteration are those published for Nemotron 3 Super, 84.3 to
 * 85.2 GFLOP per token (Megatron-Bridge, docs/performance-summary.md, 26.04.01
 * to 26.08: TFLOP/s divided by tokens/s). */
static void hybrid_flops_are_those_published(void)
{
    fixture f;
    const lh_model m = {
        .layers = 88,
        .hidden = 4096,
        .heads = 32,
        .kv_heads = 2,
        .head_dim = 128,
        .vocab = 131072,
        .layer_pattern = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
                         "EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME/*E",
        .mamba_heads = 128,
        .mamba_head_dim = 64,
        .mamba_groups = 8,
        .mamba_state_dim = 128,
        .mamba_conv_kernel = 4,
        .experts = 512,
        .experts_per_token = 22,
        .expert_ffn = 2688,
        .shared_expert_ffn = 5376,
        .expert_latent = 1024,
        .moe_interval = 1,
        .mtp_layers = 2,
    };
    fixture_init(&f, "llama3-8b");
    f.job.model = &m;
    f.job.training.sequence = 8192;
    f.job.training.global_batch = 512;
    const double tokens = 512 * 8192.0;
    CHECK_NEAR(lh_cost_iteration_flops(&f.job) / tokens, 84.75e9, 0.6e9);
}

/* Each module for later tokens has the main model's last layer, a head, and a
 * matrix from two hidden states to one. */
static void modules_for_later_tokens_add_their_layers(void)
{
    fixture f;
    lh_model m = *lh_model_preset("llama3-8b");
    const double tokens = 64 * 8192.0, h = m.hidden;
    double linear, attention;

    fixture_init(&f, "llama3-8b");
    f.job.model = &m;
    const double before = lh_cost_iteration_flops(&f.job);
    lhi_cost_layer_flops(&m, m.layers - 1, 8192, &linear, &attention);
    m.mtp_layers = 2;
    const double module =
        (linear + attention + lhi_cost_head_flops(&m, 8192)) / 8192 + 4 * h * h;
    CHECK_NEAR((lh_cost_iteration_flops(&f.job) - before) /
                   (3 * 2 * tokens * module),
               1, 1e-12);
}

/* A gated delta network's state has one size, whatever the sequence; its layers
 * and those with attention add up in a chunk. */
static void linear_attention_grows_with_tokens_alone(void)
{
    fixture f;
    lh_cost cost[3];
    lh_error err = {0};
    lh_model m = *lh_model_preset("llama3-8b");
    double linear, core, twice, before, all;

    lhi_cost_layer_flops(&m, 0, 8192, &before, &all);
    m.linear_key_heads = 16;
    m.linear_value_heads = 32;
    m.linear_key_head_dim = m.linear_value_head_dim = 128;
    m.linear_conv_kernel = 4;
    m.full_interval = 2;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &core);
    lhi_cost_layer_flops(&m, 0, 16384, &linear, &twice);
    CHECK_NEAR(core, 6.0 * 8192 * 32 * 128 * 128, 0);
    CHECK_NEAR(twice / core, 2, 1e-12);
    lhi_cost_layer_flops(&m, 1, 8192, &linear, &twice);
    CHECK_NEAR(linear, before, 0);
    CHECK_NEAR(twice, all, 0);
    fixture_init(&f, "llama3-8b");
    f.job.model = &m;
    for (uint32_t i = 0; i < 3; i++) {
        const lh_cost_layer_range slice = {.first_layer = i == 1 ? 9 : 8,
                                           .n_layers = i == 2 ? 2 : 1};
        CHECK_OK(lh_cost_chunk(&f.job, &f.layout, &slice, NULL, &cost[i], &err),
                 err);
    }
    CHECK(cost[0].f.total_ns != cost[1].f.total_ns);
    CHECK_NEAR((double)cost[2].f.total_ns,
               (double)(cost[0].f.total_ns + cost[1].f.total_ns), 1);
    f.layout.context = 2;
    CHECK(lh_cost_chunk(&f.job, &f.layout, &f.slice, NULL, &cost[0], &err) ==
          LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "gated delta networks");
}

/* Sparse attention: all tokens are scored by the indexer's heads, and the
 * chosen ones attended to, as in a window of as many. */
static void an_indexer_scores_all_tokens(void)
{
    lh_model m = *lh_model_preset("deepseek-v3");
    double linear, more, all, some, window;

    lhi_cost_layer_flops(&m, 0, 8192, &linear, &all);
    m.sliding_window = 2048;
    lhi_cost_layer_flops(&m, 0, 8192, &linear, &window);
    m.sliding_window = 0;
    m.index_topk = 2048;
    m.index_heads = 64;
    m.index_head_dim = 128;
    lhi_cost_layer_flops(&m, 0, 8192, &more, &some);
    CHECK_NEAR(some, window + 8192.0 * 8192 * 64 * 128, 1);
    CHECK_NEAR(more - linear,
               2.0 * 8192 * (1536.0 * 64 * 128 + 7168 * (128 + 64)), 1);
    CHECK(some < all);
}

/* Norms behind attention and MLP take time, and store their inputs; with tensor
 * parallelism they need no further communication. */
static void norms_behind_take_time_and_memory(void)
{
    fixture f;
    lh_cost cost[2];
    lh_error err = {0};
    lh_model m = *lh_model_preset("llama3-8b");

    fixture_init(&f, "llama3-8b");
    f.job.model = &m;
    f.layout.tensor = 8;
    for (int i = 0; i < 2; i++) {
        m.norm_placement = i ? LH_NORM_PLACEMENT_BOTH : LH_NORM_PLACEMENT_POST;
        CHECK_OK(
            lh_cost_chunk(&f.job, &f.layout, &f.slice, NULL, &cost[i], &err),
            err);
    }
    CHECK(cost[0].f.total_ns < cost[1].f.total_ns);
    CHECK(cost[0].activation_bytes < cost[1].activation_bytes);
    CHECK(cost[0].f.communication_ns > 0);
    CHECK_INT(cost[0].f.communication_ns, cost[1].f.communication_ns);
}

/* A chunk with windowed and full layers takes the sum of its layers' durations.
 */
static void windows_differ_within_a_chunk(void)
{
    fixture f;
    lh_cost cost[3];
    lh_error err = {0};
    lh_model m = *lh_model_preset("llama3-8b");

    m.sliding_window = 1024;
    m.full_interval = 2;
    fixture_init(&f, "llama3-8b");
    f.job.model = &m;
    for (uint32_t i = 0; i < 3; i++) {
        const lh_cost_layer_range slice = {.first_layer = i == 1 ? 9 : 8,
                                           .n_layers = i == 2 ? 2 : 1};
        CHECK_OK(lh_cost_chunk(&f.job, &f.layout, &slice, NULL, &cost[i], &err),
                 err);
    }
    CHECK(cost[0].f.total_ns < cost[1].f.total_ns);
    CHECK_NEAR((double)cost[2].f.total_ns,
               (double)(cost[0].f.total_ns + cost[1].f.total_ns), 1);
}

/* CrossPipe appendix E: eight layers of Llama 3 405B, 500 TFLOP/s, tensor 8,
 * communication included in that rate; printed as 108.9 ms. */
static void crosspipe_forward(void)
{
    fixture f;
    const double matrices = 2 * 8192 * llama3_layer(16384, 8 * 128, 53248);
    const double all = matrices + attention_flops(8192, 16384);

    fixture_init(&f, "llama3-405b");
    f.sites[0].gpu.efficiency = 500e12 / f.sites[0].gpu.flops_per_s;
    f.sites[0].node_link.bytes_per_s = 1e30;
    f.sites[0].node_link.latency_ns = 0;
    f.layout.tensor = 8;
    f.slice.n_layers = 8;
    COST(&f);
    CHECK_INT(f.cost.time_source, LH_COST_EFFICIENCY);
    CHECK_NEAR((double)f.cost.f.total_ns, 8 * all / (8 * 500e3), 1);
    CHECK_NEAR((double)f.cost.f.total_ns, 108.9e6, 0.05e6);
    /* W has the matrix operations without attention. */
    CHECK_NEAR((double)f.cost.w.total_ns / (double)f.cost.f.total_ns,
               matrices / all, 1e-8);
}

static void parts_of_a_pass(void)
{
    fixture f;
    const lh_pass_cost *p;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    COST(&f);
    CHECK_INT(f.cost.time_source, LH_COST_MODEL);
    for (int i = 0; i < 3; i++) {
        p = i == 0 ? &f.cost.f : i == 1 ? &f.cost.d : &f.cost.w;
        CHECK(p->matmul_ns > 0 && p->memory_ns > 0 && p->kernel_ns > 0);
        CHECK_NEAR((double)p->total_ns,
                   (double)(p->matmul_ns + p->memory_ns + p->kernel_ns +
                            p->communication_ns),
                   4);
    }
    /* Attention: two products forward, five backward, none for weight
     * gradients. */
    const double matrices = 2 * 8192 * llama3_layer(8192, 8 * 128, 28672);
    const double attention = attention_flops(8192, 8192);
    CHECK_NEAR(f.cost.f.flops * 8, matrices + attention, 1);
    CHECK_NEAR(f.cost.d.flops * 8, matrices + 2.5 * attention, 1);
    CHECK_NEAR(f.cost.w.flops * 8, matrices, 1);
    /* Four collectives with 2-byte numbers each way, none in W. */
    CHECK_NEAR((double)f.cost.f.communication_ns,
               4 * ring_ns(8, 8192.0 * 8192 * 2), 2);
    CHECK_INT(f.cost.d.communication_ns, f.cost.f.communication_ns);
    CHECK_INT(f.cost.w.communication_ns, 0);
}

static void small_layers_wait_for_the_host(void)
{
    fixture f;
    int64_t host = (int64_t)lh_cost_defaults()->layer_host_ns;

    fixture_init(&f, "llama3-8b");
    f.job.training.sequence = 16;
    f.slice.n_layers = 3;
    COST(&f);
    CHECK_INT(f.cost.f.total_ns, 3 * host);
    CHECK_NEAR((double)(f.cost.d.total_ns + f.cost.w.total_ns),
               6 * (double)host, 2);
    f.job.training.recompute = LH_RECOMPUTE_FULL;
    COST(&f);
    CHECK_NEAR((double)(f.cost.d.total_ns + f.cost.w.total_ns),
               9 * (double)host, 2);
}

static void recomputation_repeats_forward(void)
{
    fixture f;
    lh_cost none, selective;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    COST(&f);
    none = f.cost;
    f.job.training.recompute = LH_RECOMPUTE_SELECTIVE;
    COST(&f);
    selective = f.cost;
    f.job.training.recompute = LH_RECOMPUTE_FULL;
    COST(&f);
    CHECK_INT(f.cost.f.total_ns, none.f.total_ns);
    CHECK_INT(f.cost.w.total_ns, none.w.total_ns);
    CHECK_NEAR((double)f.cost.d.total_ns,
               (double)(none.d.total_ns + none.f.total_ns), 2);
    CHECK(selective.d.total_ns > none.d.total_ns);
    CHECK(selective.d.total_ns < none.d.total_ns + none.f.total_ns / 5);
    CHECK_NEAR(selective.d.flops, none.d.flops, 0);
}

/* Dispatch and combine: each token goes to experts_per_token experts, all but
 * 1/expert of them on other GPUs. */
static void expert_parallel_volume(void)
{
    fixture f;
    double moved;

    fixture_init(&f, "mixtral-8x7b");
    f.sites[0].node_link.latency_ns = 0;
    f.layout.expert = f.layout.data = 4;
    COST(&f);
    moved = 8192.0 * 2 * 4096 * 2;
    CHECK_NEAR((double)f.cost.f.communication_ns,
               2 * moved * 3 / 4 / fixture_node_rate(), 2);
    CHECK_INT(f.cost.d.communication_ns, f.cost.f.communication_ns);
    /* This GPU has only a quarter of the experts. */
    CHECK_INT(f.cost.expert_params, 2 * 3 * 4096LL * 14336);
}

/* The host launches a layer of one block in half the time of one with two. */
static void one_block_takes_half_the_host_time(void)
{
    lh_model m = *lh_model_preset("llama3-8b");
    fixture f;

    fixture_init(&f, "llama3-8b");
    f.job.training.sequence = 16;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.total_ns, lh_cost_defaults()->layer_host_ns, 1);
    m.layer_pattern = "*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-*-";
    f.job.model = &m;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.total_ns, lh_cost_defaults()->layer_host_ns / 2,
               1);
}

/* Costs a Mixtral layer with `expert` ranks; 0: the key is absent. */
static lh_cost cost_with(uint32_t expert, double imbalance, double capacity)
{
    fixture f;

    fixture_init(&f, "mixtral-8x7b");
    f.sites[0].node_link.latency_ns = 0;
    f.layout.data = 4;
    f.layout.expert = expert;
    f.job.training.imbalance = imbalance;
    f.job.training.expert_capacity = capacity;
    COST(&f);
    return f.cost;
}

/* The experts of the hottest rank process 1.3 times the mean: its products, its
 * activations and its all-to-alls grow, and nothing else. */
static void hottest_rank(void)
{
    const double rows = 8192.0 * 2, h = 4096, ffn = 14336;
    lh_cost even = cost_with(4, 1, 0), hot = cost_with(4, 1.3, 0);
    lh_cost limited = cost_with(4, 1.3, 1.1), all = cost_with(4, 100, 0);

    CHECK_NEAR(hot.f.flops - even.f.flops, 0.3 * rows * 3 * 2 * h * ffn, 1e6);
    CHECK_NEAR(hot.d.flops - even.d.flops, 0.3 * rows * 3 * 2 * h * ffn, 1e6);
    CHECK_NEAR(hot.w.flops - even.w.flops, 0.3 * rows * 3 * 2 * h * ffn, 1e6);
    CHECK_NEAR((double)hot.f.communication_ns,
               1.3 * 2 * rows * h * 2 * 3 / 4 / fixture_node_rate(), 2);
    /* 2 bytes each: received tokens, gate, up, and their product */
    CHECK_NEAR((double)(hot.activation_bytes - even.activation_bytes),
               0.3 * rows * 2 * (h + 3 * ffn), 2);
    CHECK_INT(hot.params, even.params);
    /* At most the capacity factor, and all rows on one of the ranks. */
    CHECK_NEAR(limited.f.flops - even.f.flops, 0.1 * rows * 3 * 2 * h * ffn,
               1e6);
    CHECK_NEAR(all.f.flops - even.f.flops, 3 * rows * 3 * 2 * h * ffn, 1e6);
    /* A rank with all experts has all rows. */
    CHECK_NEAR(cost_with(1, 1.3, 0).f.flops, cost_with(1, 1, 0).f.flops, 0);
}

/* Ring attention's exchange overlaps with attention until the links are slow.
 */
static void context_parallel_overlap(void)
{
    fixture f;
    lh_cost whole;

    fixture_init(&f, "llama3-70b");
    f.job.training.sequence = 131072;
    COST(&f);
    whole = f.cost;
    f.layout.context = 4;
    COST(&f);
    CHECK_INT(f.cost.f.communication_ns, 0);
    CHECK_NEAR(f.cost.f.flops * 4 / whole.f.flops, 1, 1e-12);
    f.sites[0].node_link.bytes_per_s = 1e8;
    COST(&f);
    CHECK(f.cost.f.communication_ns > 0);
}

/* Two sequences cut into two cost more than one whole sequence, although both
 * have the same tokens and operations. By hand for Llama 3 70B, 64 and 8 heads
 * of 128: a second kernel reads queries and half of the keys and values and
 * writes a partial result. Of the merge, F rescales one result (a read, a
 * write) and adds another (two reads, a write), with fp32 statistics. */
static void context_parallel_costs(void)
{
    fixture f;
    lh_cost whole;
    const double t = 8192, q = 64 * 128 * t * 2, kv = 2 * 8 * 128 * t * 2;
    const double lse = 4 * 64 * t,
                 rate = 3350 * lh_cost_defaults()->memory_efficiency;

    fixture_init(&f, "llama3-70b");
    COST(&f);
    whole = f.cost;
    f.layout.context = f.layout.micro_batch = 2;
    COST(&f);
    CHECK_NEAR(f.cost.f.flops, whole.f.flops, 1);
    CHECK_INT(f.cost.f.matmul_ns, whole.f.matmul_ns);
    CHECK_NEAR((double)(f.cost.f.memory_ns - whole.f.memory_ns),
               (2 * q + kv / 2 + 5 * q + 3 * lse + 4 * lse) / rate, 2);
    CHECK_INT(f.cost.f.kernel_ns - whole.f.kernel_ns,
              (1 + 1 + 2) * (int64_t)lh_cost_defaults()->kernel_ns);
    CHECK_NEAR((double)(f.cost.d.memory_ns - whole.d.memory_ns),
               (2 * (2 * q + kv / 2) + 5 * q + 4 * kv) / rate, 2);
    CHECK_INT(f.cost.d.kernel_ns - whole.d.kernel_ns,
              (2 + 2 + 4) * (int64_t)lh_cost_defaults()->kernel_ns);
    CHECK_INT(f.cost.w.total_ns, whole.w.total_ns);
    /* A given efficiency covers a pass's own kernels, not these. */
    f.sites[0].gpu.efficiency = 0.5;
    COST(&f);
    int64_t more = f.cost.f.memory_ns + f.cost.f.kernel_ns;
    CHECK_NEAR((double)f.cost.f.memory_ns,
               (2 * q + kv / 2 + 5 * q + 7 * lse) / rate, 2);
    /* Each layer adds its time; D also adds the forward that it recomputes. */
    const double f_ns = (2 * q + kv / 2 + 5 * q + 7 * lse) / rate;
    const double d_ns = (2 * (2 * q + kv / 2) + 5 * q + 4 * kv) / rate;
    f.slice.n_layers = 2;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.memory_ns, 2 * f_ns, 2);
    CHECK_NEAR((double)f.cost.d.memory_ns, 2 * d_ns, 2);
    f.job.training.recompute = LH_RECOMPUTE_FULL;
    COST(&f);
    CHECK_NEAR((double)f.cost.d.memory_ns, 2 * (f_ns + d_ns), 2);
    f.job.training.recompute = LH_RECOMPUTE_NONE;
    f.slice.n_layers = 1;
    f.layout.context = f.layout.micro_batch = 1;
    COST(&f);
    CHECK(more > 0 && f.cost.f.memory_ns == 0 && f.cost.f.kernel_ns == 0);
    /* Nor does the host issue them for free where it is slower than the GPU. */
    fixture_init(&f, "llama3-8b");
    f.job.training.sequence = 512;
    COST(&f);
    whole = f.cost;
    CHECK_INT(whole.f.total_ns, (int64_t)lh_cost_defaults()->layer_host_ns);
    f.layout.context = f.layout.micro_batch = 2;
    COST(&f);
    CHECK(f.cost.f.total_ns > whole.f.total_ns);
    CHECK(f.cost.d.total_ns > whole.d.total_ns);
}

/* F transfers during all steps of its attention but the last: of a ring that
 * takes as long as attention on four GPUs a quarter is exposed. */
static void rings_have_steps(void)
{
    fixture f;
    const double t = 131072 / 4.0, kv = 2 * 8 * 128 * t * 2;

    fixture_init(&f, "llama3-70b");
    f.job.training.sequence = 131072;
    f.layout.context = 4;
    for (int i = 0; i < 2; i++)
        f.sites[i].node_link.latency_ns = 0;
    double core_ns = 4 * t * (131072 / 2.0) * 64 * 128 /
                     (989.5e3 * 0.87 * lh_cost_defaults()->matmul_efficiency);
    f.sites[0].node_link.bytes_per_s =
        3 * kv / core_ns * 1e9 / lh_cost_defaults()->node_efficiency;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns, core_ns / 4, 2);
}

/* Results are computed in tiles of 64 x 64: 65 rows or columns take as long as
 * 128. */
static void partial_tiles_take_whole_ones(void)
{
    fixture f;
    lh_model wide = *lh_model_preset("llama3-70b"), odd;
    lh_cost whole;

    fixture_init(&f, "llama3-70b");
    wide.gated = false;
    odd = wide;
    odd.ffn -= 63;
    f.job.model = &wide;
    COST(&f);
    whole = f.cost;
    f.job.model = &odd;
    COST(&f);
    CHECK(f.cost.f.flops < whole.f.flops);
    /* The second product sums over these columns and needs less. */
    CHECK_NEAR((double)(whole.f.matmul_ns - f.cost.f.matmul_ns),
               2 * 8192.0 * 8192 * 63 /
                   (989.5e3 * 0.87 * lh_cost_defaults()->matmul_efficiency),
               2);
    CHECK_INT(f.cost.w.matmul_ns, whole.w.matmul_ns);
}

/* Splitting sequences is never free, whatever the shape. */
static void more_context_is_never_faster(void)
{
    static const char *const models[] = {"llama3-8b", "llama3-405b",
                                         "mixtral-8x7b", "deepseek-v3"};
    fixture f;

    for (int i = 0; i < 4 * 4 * 6; i++) {
        lh_cost whole = {0};

        fixture_init(&f, models[i % 4]);
        f.job.training.sequence = UINT32_C(512) << i / 16;
        f.layout.tensor = UINT32_C(1) << i / 4 % 4;
        for (uint32_t c = 1; c <= 8; c *= 2) {
            f.layout.context = f.layout.micro_batch = c;
            COST(&f);
            CHECK_MSG(c == 1 || (f.cost.f.total_ns > whole.f.total_ns &&
                                 f.cost.d.total_ns > whole.d.total_ns),
                      "%s, %u tokens, tensor %u: context %u is free",
                      models[i % 4], f.job.training.sequence, f.layout.tensor,
                      c);
            whole = f.cost;
        }
    }
}

/* The head of a tied model and multi-token prediction have a cost. */
static void ends(void)
{
    fixture f;
    lh_cost layers, more;

    fixture_init(&f, "deepseek-v3");
    f.job.training.sequence = 4096;
    f.slice.first_layer = 60;
    COST(&f);
    layers = f.cost;
    f.slice.head = true;
    COST(&f);
    more = f.cost;
    /* One MTP module: a layer, a 2h x h projection, the head again. */
    CHECK_NEAR(more.f.flops - 2 * layers.f.flops,
               2 * lhi_cost_head_flops(f.job.model, 4096) +
                   4.0 * 4096 * 7168 * 7168,
               1e6);
    f.slice = (lh_cost_layer_range){.embedding = true};
    COST(&f);
    CHECK(f.cost.f.total_ns > 0 && f.cost.f.flops == 0);
    CHECK_INT(f.cost.params, 129280LL * 7168);
}

static void given_efficiency_is_for_arithmetic(void)
{
    fixture f;
    lh_cost full;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    f.sites[0].gpu.efficiency = 0.6;
    COST(&f);
    full = f.cost;
    f.sites[0].gpu.efficiency = 0.3;
    COST(&f);
    CHECK_INT(f.cost.f.communication_ns, full.f.communication_ns);
    CHECK_NEAR((double)(f.cost.f.total_ns - f.cost.f.communication_ns),
               2.0 * (double)(full.f.total_ns - full.f.communication_ns), 4);
}

static void refuses_what_does_not_divide(void)
{
    fixture f;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 3;
    CHECK_INT(fixture_cost(&f), LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "heads (64) is not a multiple of tensor (3)");
    f.layout.tensor = 0;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
    CHECK_HAS(f.err.text, "tensor is 0");
    f.layout.tensor = 1;
    f.layout.expert = f.layout.data = 2;
    CHECK_INT(fixture_cost(&f), LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "no experts");
    fixture_init(&f, "mixtral-8x7b");
    f.layout.expert = 2;
    CHECK_INT(fixture_cost(&f), LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "expert_tensor (2)");
    f.layout.data = 3;
    CHECK_INT(fixture_cost(&f), LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "tensor x context x data (3)");
    f.layout.expert_tensor = 3;
    CHECK_INT(fixture_cost(&f), LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "width (14336) is not a multiple of expert_tensor");
    f.layout.expert_tensor = 0;
    f.layout.expert = 1;
    f.slice.first_layer = 32;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
    CHECK_HAS(f.err.text, "layers 32+1");
    f.slice.first_layer = 0;
    f.slice.datacenter = 2;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
    f.slice.datacenter = 0;
    f.options.size = 1;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
}

static void refuses_bad_constants(void)
{
    fixture f;
    lh_cost_constants c = *lh_cost_defaults();

    fixture_init(&f, "llama3-8b");
    f.options.constants = &c;
    c.matmul_efficiency = 1.5;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
    CHECK_HAS(f.err.text, "matmul_efficiency");
    c = *lh_cost_defaults();
    c.kernel_ns = (double)NAN;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
    CHECK_HAS(f.err.text, "kernel_ns");
}

/* Numbers far beyond any cluster are rejected instead of overflowing. */
static void overflow_is_refused(void)
{
    fixture f;
    lh_model m = *lh_model_preset("llama3-70b");

    fixture_init(&f, "llama3-70b");
    m.hidden = UINT32_MAX;
    m.ffn = UINT32_MAX;
    f.job.model = &m;
    f.job.training.sequence = UINT32_MAX;
    f.layout.micro_batch = 1u << 24;
    f.slice.n_layers = 80;
    CHECK_INT(fixture_cost(&f), LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "out of range");
    CHECK(lhi_cost_message_bytes(&f.job, &f.layout) > 0);
}

int main(void)
{
    RUN(gpt3_iteration);
    RUN(llama_layer);
    RUN(experts_count_as_used);
    RUN(window_bounds_attention);
    RUN(chunks_bound_attention);
    RUN(norms_behind_take_time_and_memory);
    RUN(windows_differ_within_a_chunk);
    RUN(hybrid_flops_are_those_published);
    RUN(modules_for_later_tokens_add_their_layers);
    RUN(mamba_layers_cost_their_products);
    RUN(linear_attention_grows_with_tokens_alone);
    RUN(an_indexer_scores_all_tokens);
    RUN(crosspipe_forward);
    RUN(parts_of_a_pass);
    RUN(small_layers_wait_for_the_host);
    RUN(recomputation_repeats_forward);
    RUN(expert_parallel_volume);
    RUN(hottest_rank);
    RUN(one_block_takes_half_the_host_time);
    RUN(context_parallel_overlap);
    RUN(context_parallel_costs);
    RUN(rings_have_steps);
    RUN(partial_tiles_take_whole_ones);
    RUN(more_context_is_never_faster);
    RUN(ends);
    RUN(given_efficiency_is_for_arithmetic);
    RUN(refuses_what_does_not_divide);
    RUN(refuses_bad_constants);
    RUN(overflow_is_refused);
    return test_summary();
}
