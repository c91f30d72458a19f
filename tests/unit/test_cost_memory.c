/* SPDX-License-Identifier: Apache-2.0 */
/* Memory: activations and model state, and how they change with the layout. */
#include "format/job/model_size.h"
#include "test_cost.h"

/* A GPT-3 layer as counted by Korthikanti et al. (arXiv:2205.05198): 16 bits,
 * dropout, scores in memory; s = 2048, b = 2, h = 12288, a = 96. */
static const double sbh = 2048.0 * 2 * 12288, as_h = 96.0 * 2048 / 12288;

static void gpt3(fixture *f, uint32_t tensor)
{
    fixture_init(f, "gpt3-175b");
    f->job.training.sequence = 2048;
    f->layout.micro_batch = 2;
    f->layout.tensor = tensor;
    f->options.unfused_attention = true;
}

static void korthikanti(void)
{
    fixture f;

    gpt3(&f, 1);
    COST(&f); /* equation 1 */
    CHECK_NEAR((double)f.cost.activation_bytes, sbh * (34 + 5 * as_h), 1);
    gpt3(&f, 8);
    f.options.no_sequence_parallel = true;
    COST(&f); /* equation 2 */
    CHECK_NEAR((double)f.cost.activation_bytes,
               sbh * (10 + 24.0 / 8 + 5 * as_h / 8), 1);
    gpt3(&f, 8);
    COST(&f); /* equation 4 */
    CHECK_NEAR((double)f.cost.activation_bytes, sbh / 8 * (34 + 5 * as_h), 1);
    f.job.training.recompute = LH_RECOMPUTE_SELECTIVE;
    COST(&f); /* equation 6, one layer */
    CHECK_NEAR((double)f.cost.activation_bytes, sbh / 8 * 34, 1);
    f.job.training.recompute = LH_RECOMPUTE_FULL;
    COST(&f);
    CHECK_NEAR((double)f.cost.activation_bytes, sbh / 8 * 2, 1);
    /* Recomputed activations use memory while the layer is recomputed. */
    CHECK_NEAR((double)f.cost.workspace_bytes, sbh / 8 * (32 + 5 * as_h), 1);
}

/* Half of the layers are offloaded, each without its input (2sbh). */
static void half_of_the_layers_are_offloaded(void)
{
    const double within = sbh * (32 + 5 * as_h);
    fixture f;

    gpt3(&f, 1);
    f.job.training.offload_share = 0.5;
    f.job.training.offload_bytes_per_s = 16e9;
    for (uint32_t half = 1; half <= 2; half++) {
        f.slice.n_layers = 2 * half;
        COST(&f);
        CHECK_NEAR((double)f.cost.offload_bytes, half * within, 1);
        CHECK_NEAR((double)f.cost.offload_ns, half * within / 16, 1);
        CHECK_NEAR((double)f.cost.activation_bytes,
                   half * (within + 2 * 2 * sbh), 2);
    }
}

/* Qi et al. (arXiv:2401.10241), table 1: W needs 32sbh. */
static void zero_bubble(void)
{
    fixture f;

    gpt3(&f, 1);
    COST(&f);
    CHECK_NEAR((double)f.cost.weight_input_bytes, 32 * sbh, 1);
}

/* Korthikanti section 4.3: 4sbh/t (1 + v/h), with the vocabulary rounded up. */
static void head(void)
{
    fixture f;
    double v = 6283; /* 50257 / 8 */

    gpt3(&f, 8);
    f.slice = (lh_cost_layer_range){.first_layer = 96, .head = true};
    COST(&f);
    CHECK_NEAR((double)f.cost.activation_bytes, 4 * sbh / 8 + 4 * 2048 * 2 * v,
               1);
}

/* Llama 3 70B, tensor 8, per token: norms' inputs and outputs 4h/8, queries,
 * keys, values and result (64+8+8+64) x 128 / 8, gate, up and product 3 x 28672
 * / 8, all in two bytes; log-sum-exp 4 x 8. */
static void llama(void)
{
    fixture f;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    COST(&f);
    CHECK_INT(f.cost.activation_bytes,
              8192LL * (2 * (4 * 8192 + 144 * 128 + 3 * 28672) / 8 + 32));
    f.job.training.recompute = LH_RECOMPUTE_SELECTIVE;
    COST(&f);
    CHECK_INT(f.cost.activation_bytes,
              8192LL * (2 * (2 * 8192 + 144 * 128 + 2 * 28672) / 8 + 32));
}

/* With more GPUs than key and value heads, the heads are replicated. */
static void few_kv_heads(void)
{
    fixture f;
    lh_model m = *lh_model_preset("llama3-70b");
    lh_cost eight;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 16;
    COST(&f);
    eight = f.cost;
    m.kv_heads = 16;
    f.job.model = &m;
    COST(&f);
    CHECK_INT(f.cost.activation_bytes, eight.activation_bytes);
}

/* Rajbhandari et al., section 3.1 and figure 1: 2 + 2 + 12 bytes, and the part
 * that each stage divides. */
static void zero_stages(void)
{
    fixture f;
    int64_t psi;

    fixture_init(&f, "llama3-8b");
    f.options.gradient_bytes = 2;
    f.layout.data = 64;
    f.slice =
        (lh_cost_layer_range){.n_layers = 32, .embedding = true, .head = true};
    for (uint32_t zero = 0; zero <= 3; zero++) {
        f.job.training.zero = zero;
        COST(&f);
        psi = f.cost.params;
        CHECK_INT(psi, 8030261248);
        CHECK_INT(f.cost.weight_bytes, zero >= 3 ? psi * 2 / 64 : psi * 2);
        CHECK_INT(f.cost.gradient_bytes, zero >= 2 ? psi * 2 / 64 : psi * 2);
        CHECK_INT(f.cost.optimizer_bytes, zero >= 1 ? psi * 12 / 64 : psi * 12);
        CHECK_INT(f.cost.static_bytes,
                  f.cost.weight_bytes + f.cost.gradient_bytes +
                      f.cost.optimizer_bytes + f.cost.workspace_bytes +
                      f.cost.buffer_bytes);
    }
    /* Megatron-LM's bf16: fp32 gradients, 18 bytes. */
    f.options.gradient_bytes = 0;
    f.job.training.zero = 0;
    COST(&f);
    CHECK_INT(f.cost.weight_bytes + f.cost.gradient_bytes +
                  f.cost.optimizer_bytes,
              18 * psi);
    f.job.training.precision = LH_PRECISION_FP32;
    COST(&f);
    CHECK_INT(f.cost.weight_bytes + f.cost.gradient_bytes +
                  f.cost.optimizer_bytes,
              16 * psi);
}

/* The slices of a model contain each parameter exactly once. */
/* A layer of Llama 3 8B has 4096 x (4096 + 2 x 1024 + 4096) + 3 x 4096 x 14336
 * + 2 x 4096 parameters; embedding and head have 128256 x 4096 each, the head
 * also a norm. Where they are sharded, the two largest are temporarily
 * gathered. */
static void sharded_buffers(void)
{
    const int64_t layer = 4096LL * (2 * 4096 + 2 * 1024) + 3LL * 4096 * 14336 +
                          2 * 4096,
                  ends = 128256LL * 4096;
    fixture f;

    fixture_init(&f, "llama3-8b");
    f.layout.data = 4;
    f.slice.n_layers = 5;
    for (uint32_t zero = 0; zero <= 3; zero++) {
        const int64_t each = zero < 2 ? 0 : zero == 2 ? 4 : 4 + 2;
        f.job.training.zero = zero;
        f.slice.embedding = f.slice.head = false;
        COST(&f);
        CHECK_INT(f.cost.buffer_bytes, each * 2 * layer);
        CHECK_INT(f.cost.static_bytes,
                  f.cost.weight_bytes + f.cost.gradient_bytes +
                      f.cost.optimizer_bytes + f.cost.workspace_bytes +
                      f.cost.buffer_bytes);
        f.slice.embedding = true;
        COST(&f);
        CHECK_INT(f.cost.buffer_bytes, each * (ends + layer));
        f.slice.head = true;
        COST(&f);
        CHECK_INT(f.cost.buffer_bytes, each * (2 * ends + 4096));
    }
    /* One layer alone; gradients in 16 bits; a single replica shards nothing.
     */
    f.slice.embedding = f.slice.head = false;
    f.slice.n_layers = 1;
    COST(&f);
    CHECK_INT(f.cost.buffer_bytes, 6 * layer);
    f.options.gradient_bytes = 2;
    COST(&f);
    CHECK_INT(f.cost.buffer_bytes, 4 * layer);
    f.layout.data = 1;
    COST(&f);
    CHECK_INT(f.cost.buffer_bytes, 0);
}

static void parameters_add_up(void)
{
    static const char *const models[] = {"llama3-70b", "gpt3-175b",
                                         "mixtral-8x7b", "deepseek-v3"};

    for (int i = 0; i < 4; i++) {
        fixture f;
        const lh_model *m = lh_model_preset(models[i]);
        int64_t sum = 0, want;

        fixture_init(&f, models[i]);
        for (uint32_t at = 0; at < m->layers; at++) {
            f.slice = (lh_cost_layer_range){.first_layer = at,
                                            .n_layers = 1,
                                            .embedding = at == 0,
                                            .head = at == m->layers - 1};
            COST(&f);
            sum += f.cost.params;
        }
        want = (int64_t)(lh_model_params(m) + lhi_model_mtp_params(m));
        /* A tied matrix exists at both ends. */
        if (m->tied_embeddings)
            want += (int64_t)m->vocab * m->hidden;
        CHECK_INT(sum, want);
    }
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static uint32_t power(uint64_t *seed, uint32_t most)
{
    return 1u << next(seed) % (most + 1);
}

static bool no_less(const lh_pass_cost *a, const lh_pass_cost *b)
{
    return a->total_ns >= b->total_ns;
}

/* No erasure code: under heavy loss that makes a link faster. */
static lh_link_setting random_setting(uint64_t *seed)
{
    return (lh_link_setting){
        .balancing = (lh_balancing)(next(seed) % 3),
        .congestion = (lh_congestion)(next(seed) % 3),
        .recovery = (lh_recovery)(next(seed) % 3),
        .queue_pairs = (uint32_t)(next(seed) % 9),
        .paths = (uint32_t)(next(seed) % 17),
        .window_bytes = next(seed) % 2 ? 1e6 : 0,
        .channels = (uint32_t)(next(seed) % 5),
        .sockets = (uint32_t)(next(seed) % 3),
    };
}

static void random_layout(fixture *f, uint64_t *seed)
{
    static const char *const models[] = {"llama3-8b",    "llama3-70b",
                                         "llama3-405b",  "gpt3-175b",
                                         "mixtral-8x7b", "crosspipe-m8"};

    fixture_init(f, models[next(seed) % 6]);
    f->job.training.sequence = 1024u << next(seed) % 5;
    f->job.training.zero = (uint32_t)(next(seed) % 4);
    f->job.training.recompute = (lh_recompute)(next(seed) % 3);
    f->layout.tensor = power(seed, 3);
    f->layout.context = power(seed, 2);
    f->layout.data = power(seed, 5);
    f->layout.pipeline = power(seed, 3);
    f->layout.micro_batch = power(seed, 3);
    f->layout.outermost =
        next(seed) % 2 ? LH_OUTERMOST_DATA : LH_OUTERMOST_PIPELINE;
    if (f->job.model->experts) {
        uint32_t ranks = f->layout.tensor * f->layout.context * f->layout.data;

        f->layout.expert = power(seed, 3);
        f->layout.expert_tensor = next(seed) % 2 ? power(seed, 2) : 0;
        while (ranks % lh_layout_expert_block(&f->layout) != 0) {
            f->layout.expert = (f->layout.expert + 1) / 2;
            f->layout.expert_tensor = f->layout.expert_tensor > 1;
        }
        f->job.training.dispatcher = (lh_dispatcher)(next(seed) % 2);
    }
    f->options.unfused_attention = next(seed) % 4 == 0;
    f->options.no_sequence_parallel = next(seed) % 4 == 0;
    f->slice.n_layers = 1 + (uint32_t)(next(seed) % 8);
    f->slice.embedding = next(seed) % 4 == 0;
    f->slice.head = next(seed) % 4 == 0;
    f->slice.data_datacenters = f->layout.data > 1 && next(seed) % 2 ? 2 : 1;
    f->layout.sharding = (lh_sharding)(next(seed) % 4);
    f->job.training.rings = (lh_ring)(next(seed) % 2);
    for (int k = 1; k < 3 && next(seed) % 2; k++) {
        f->wans[k].loss = (double)(next(seed) % 3) * 1e-4;
        f->wans[k].setting = random_setting(seed);
    }
    f->job.wans = f->wans;
    f->job.datacenters = f->sites;
}

static int64_t but_buffers(const lh_cost *cost)
{
    return cost->static_bytes - cost->buffer_bytes;
}

/* Compares with state sharded over all replicas. */
static void check_hybrid(const fixture *f)
{
    fixture g = *f;

    g.job.datacenters = g.sites;
    g.job.wans = g.wans;
    g.layout.sharding = LH_SHARDING_FULL;
    COST(&g);
    CHECK(but_buffers(&f->cost) >= but_buffers(&g.cost));
    CHECK(f->cost.all_gather_ns <= g.cost.all_gather_ns);
    CHECK(no_less(&g.cost.f, &f->cost.f) && no_less(&g.cost.w, &f->cost.w));
    CHECK_INT(f->cost.gather_bytes, g.cost.gather_bytes);
}

/* Compares with links without any settings. */
static void check_settings(const fixture *f)
{
    fixture g = *f;

    for (int k = 1; k < 3; k++)
        g.wans[k].setting = (lh_link_setting){0};
    g.job.datacenters = g.sites;
    g.job.wans = g.wans;
    COST(&g);
    CHECK(f->cost.reduce_scatter_ns >= g.cost.reduce_scatter_ns);
    CHECK(f->cost.all_gather_ns >= g.cost.all_gather_ns);
    CHECK_INT(f->cost.data_latency_ns, g.cost.data_latency_ns);
}

/* Properties of any layout. */
static void properties(void)
{
    uint64_t seed = 20241;

    for (int i = 0; i < 2000; i++) {
        fixture f, g;

        random_layout(&f, &seed);
        COST(&f);
        CHECK(f.cost.activation_bytes >= 0 && f.cost.weight_input_bytes >= 0);
        check_hybrid(&f);
        check_settings(&f);
        /* A larger microbatch takes longer and stores more, but is no slower
         * per sequence. */
        g = f;
        g.layout.micro_batch *= 2;
        COST(&g);
        CHECK(no_less(&g.cost.f, &f.cost.f) && no_less(&g.cost.d, &f.cost.d) &&
              no_less(&g.cost.w, &f.cost.w));
        CHECK(g.cost.f.total_ns <= 2 * f.cost.f.total_ns + 2);
        CHECK(g.cost.activation_bytes >= f.cost.activation_bytes);
        CHECK_INT(g.cost.weight_bytes, f.cost.weight_bytes);
        /* The same holds for another layer. */
        g = f;
        g.slice.n_layers += 1;
        COST(&g);
        CHECK(no_less(&g.cost.f, &f.cost.f) && no_less(&g.cost.d, &f.cost.d));
        CHECK(g.cost.static_bytes >= f.cost.static_bytes);
        CHECK(g.cost.reduce_scatter_ns >= f.cost.reduce_scatter_ns);
        /* More recomputation stores less and takes longer. */
        if (f.job.training.recompute != LH_RECOMPUTE_FULL) {
            g = f;
            g.job.training.recompute++;
            COST(&g);
            CHECK(g.cost.activation_bytes <= f.cost.activation_bytes);
            CHECK(no_less(&g.cost.d, &f.cost.d));
        }
        /* A higher ZeRO stage uses no more memory, except for one or two layers
         * that are temporarily gathered. */
        if (f.job.training.zero < 3) {
            g = f;
            g.job.training.zero++;
            COST(&g);
            CHECK(but_buffers(&g.cost) <= but_buffers(&f.cost));
        }
        /* Slower links never help. */
        g = f;
        for (int k = 0; k < 2; k++) {
            g.sites[k].fabric.bytes_per_s /= 2;
            g.sites[k].fabric.latency_ns *= 2;
            g.sites[k].node_link.bytes_per_s /= 2;
            g.wans[k + 1].latency_ns *= 2;
            g.wans[k + 1].bytes_per_s /= 2;
        }
        g.job.datacenters = g.sites;
        g.job.wans = g.wans;
        COST(&g);
        CHECK(no_less(&g.cost.f, &f.cost.f) && no_less(&g.cost.d, &f.cost.d) &&
              no_less(&g.cost.w, &f.cost.w));
        CHECK(g.cost.reduce_scatter_ns >= f.cost.reduce_scatter_ns &&
              g.cost.all_gather_ns >= f.cost.all_gather_ns &&
              g.cost.data_latency_ns >= f.cost.data_latency_ns);
        if (test_state.bad) {
            fprintf(stderr, "layout %d\n", i);
            return;
        }
    }
}

int main(void)
{
    RUN(korthikanti);
    RUN(half_of_the_layers_are_offloaded);
    RUN(zero_bubble);
    RUN(head);
    RUN(llama);
    RUN(few_kv_heads);
    RUN(zero_stages);
    RUN(sharded_buffers);
    RUN(parameters_add_up);
    RUN(properties);
    return test_summary();
}
