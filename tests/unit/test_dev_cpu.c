/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the cpu device with plain loops in doubles, which finite differences
 * validate; also checks that no partition of the work changes a bit. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "moe_models.h"
#include "naive_llama.h"
#include "small_llama.h"

#include "runtime/device/blas.h"
#include "runtime/device/cpu.h"

#include <pthread.h>

static naive_llama *copy_of(small *s)
{
    naive_llama *n = naive_make(&s->model);
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        const lhi_tensor *t = small_tensor(s, i);
        CHECK_INT(t->n, n->sizes[i]);
        for (size_t j = 0; j < t->n; j++)
            n->w[i][j] = (double)t->value[j];
    }
    return n;
}

/* Enlarges the initial weights, so that every term counts. */
static void stir(small *s)
{
    uint32_t state = 5;
    lhi_tensor *head = NULL; /* the last one */
    for (uint32_t i = 0; small_tensor(s, i); i++) {
        lhi_tensor *t = small_tensor(s, i);
        for (size_t j = 0; j < t->n; j++) {
            state = state * 1664525u + 1013904223u;
            float x = (float)(state >> 8) / 16777216.0f - 0.5f;
            bool is_bias = strstr(t->name, ".bias") != NULL;
            t->value[j] = t->balances             ? x * 0.3f
                          : t->columns || is_bias ? x * 0.6f
                                                  : 1 + x;
        }
        head = t;
    }
    if (head->is_head)
        memcpy(head->value, small_tensor(s, 0)->value, head->n * sizeof(float));
}

static double naive_step(naive_llama *n, small *s, uint64_t step,
                         int validation, double scale)
{
    lh_error err;
    double loss = 0;
    int32_t *window = calloc(s->sequence + 1, sizeof *window);
    uint64_t per = (uint64_t)s->n_microbatches * s->microbatch;
    for (uint64_t i = 0; i < per; i++) {
        CHECK_OK(
            lhi_data_read_window(s->data, validation,
                                 (step * s->n_replicas + s->replica) * per + i,
                                 window, &err),
            err);
        s->sample = (step * s->n_replicas + s->replica) * per + i;
        loss += naive_sequence(n, window, s->sequence, scale);
    }
    free(window);
    return loss;
}

/* Gives the model GPT-2's features. */
static lh_model gpt2_model(lh_model m)
{
    m.norm = LH_NORM_LAYER;
    m.gated = false;
    m.qkv_bias = m.output_bias = m.mlp_bias = true;
    m.kv_heads = m.heads;
    m.hidden = m.heads * m.head_dim;
    m.positions = 200;
    return m;
}

static lh_model qwen3_model(lh_model m)
{
    m.qk_norm = true;
    return m;
}

static lh_model falcon_model(lh_model m)
{
    m.norm = LH_NORM_LAYER;
    m.gated = false;
    m.kv_heads = 1;
    m.hidden = m.heads * m.head_dim;
    m.parallel_block = true;
    return m;
}

/* Latent dimensions that differ from all others. */
static lh_model deepseek_model(lh_model m)
{
    m.kv_heads = m.heads;
    m.q_lora_rank = 14;
    m.kv_lora_rank = 9;
    m.qk_nope_head_dim = 7;
    m.qk_rope_head_dim = 6;
    m.v_head_dim = 11;
    m.head_dim = m.qk_nope_head_dim + m.qk_rope_head_dim;
    return m;
}

/* An arbitrary dropout pattern. */
static double pattern(const void *context, int site, uint32_t layer,
                      uint32_t head, uint32_t row, uint32_t column)
{
    (void)context;
    return (row * 7 + column * 3 + layer + head * 5 + (uint32_t)site) % 4 ? 1.3
                                                                          : 0;
}

static void check_differences(const lh_model *m, bool drops)
{
    naive_llama *n = naive_make(m);
    n->capacity = drops ? 0.8 : 0;
    n->keep = drops ? pattern : NULL;
    n->balance = 0.3;
    int32_t tokens[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    uint32_t state = 1;
    for (uint32_t i = 0; i < n->n_tensors; i++)
        for (size_t j = 0; j < n->sizes[i]; j++) {
            state = state * 1664525u + 1013904223u;
            n->w[i][j] = (double)(state >> 8) / 16777216.0 - 0.5;
        }
    naive_sequence(n, tokens, 7, 1);
    for (uint32_t i = 0; i < n->n_tensors; i++)
        for (size_t j = 0; j < n->sizes[i]; j += 1 + n->sizes[i] / 9) {
            if (n->counts[i])
                continue;
            double was = n->w[i][j], d = 1e-5, up, down;
            n->w[i][j] = was + d;
            up = naive_sequence(n, tokens, 7, 0) + n->balance_loss;
            n->w[i][j] = was - d;
            down = naive_sequence(n, tokens, 7, 0) + n->balance_loss;
            n->w[i][j] = was;
            CHECK_NEAR((up - down) / (2 * d), n->g[i][j],
                       1e-6 * (1 + fabs(n->g[i][j])));
        }
    naive_free(n);
}

static void differences(void)
{
    lh_model m = small_model();
    m.layers = 2, m.vocab = 11, m.hidden = 6, m.ffn = 5, m.head_dim = 4;
    check_differences(&m, false);
    lh_model other = qwen3_model(m);
    check_differences(&other, false);
    other = falcon_model(m);
    check_differences(&other, true);
    other = deepseek_model(m);
    check_differences(&other, true);
    other.q_lora_rank = 0;
    check_differences(&other, false);
    m.qkv_bias = m.output_bias = m.mlp_bias = true;
    check_differences(&m, true);
    lh_model moe = mixtral_of(m);
    check_differences(&moe, true);
    moe = qwen2_moe_of(m);
    check_differences(&moe, false);
    moe = glm4_moe_of(m);
    check_differences(&moe, false);
    check_differences(&moe, true);
    m.heads = m.kv_heads = 2;
    m = gpt2_model(m);
    check_differences(&m, false);
    m.tied_embeddings = true;
    check_differences(&m, true);
}

/* Asks the device for each number's dropout factor, in its first training step.
 */
static double as_device(const void *context, int site, uint32_t layer,
                        uint32_t head, uint32_t row, uint32_t column)
{
    const small *s = context;
    lhi_cpu *cpu = (lhi_cpu *)s->devices[0];
    float one[512];
    for (uint32_t i = 0; i <= column; i++)
        one[i] = 1;
    lhi_cpu_apply_dropout(cpu,
                          (lhi_drop){s->sample, layer, (lhi_drop_site)site}, 0,
                          head, row, 0, one, 512, 1, column + 1);
    return (double)one[column];
}

static void compare(small s)
{
    small_open(&s);
    stir(&s);
    naive_llama *n = copy_of(&s);
    n->balance = s.balance;
    n->capacity = s.capacity;
    if (s.dropout > 0) {
        n->keep = as_device;
        n->context = &s;
    }
    double scale = 1 / ((double)s.n_microbatches * s.microbatch * s.sequence *
                        s.n_replicas);
    /* The expert scale multiplies outputs, and rounding errors with them. */
    double most = 2e-6 * (1 + s.model.routed_scale);
    double got_loss = small_step(&s, 4, LHI_STEP_TRAIN, SMALL_JOINT);
    double want = naive_step(n, &s, 4, 0, scale);
    CHECK_NEAR(got_loss, want, 1e-6 * want);
    for (uint32_t i = 0; i < n->n_tensors; i++) {
        lhi_tensor *t = small_tensor(&s, i);
        bool tied = s.model.tied_embeddings && i == 0;
        const lhi_tensor *other =
            tied ? small_tensor(&s, n->n_tensors - 1) : NULL;
        double size = 0, error = 0;
        if (t->is_head)
            continue;
        for (size_t j = 0; j < t->n; j++) {
            double got = (double)t->gradient[j] +
                         (other ? (double)other->gradient[j] : 0);
            size += n->g[i][j] * n->g[i][j];
            error += (got - n->g[i][j]) * (got - n->g[i][j]);
        }
        /* Gradients of queries and keys vanish with a single token, and those
         * of experts that no token chooses. */
        CHECK_MSG(
            sqrt(error) <= most * sqrt(size) + 5e-9 * sqrt((double)t->n) &&
                (size > 0 || s.sequence == 1 || strstr(t->name, "experts")),
            "%s: error %g of %g", t->name, sqrt(error), sqrt(size));
    }
    n->keep = NULL;
    want = naive_step(n, &s, 1, 1, 0);
    CHECK_NEAR(small_step(&s, 1, LHI_STEP_VALIDATE, SMALL_JOINT), want,
               1e-6 * want);
    naive_free(n);
    small_close(&s);
}

static void gradients(void)
{
    compare(small_sizes());
}

static void gradients_tied(void)
{
    small s = small_sizes();
    s.model.tied_embeddings = true;
    compare(s);
    s.n_chunks = 3, s.n_devices = 2;
    compare(s);
}

static void gradients_shapes(void)
{
    small s = small_sizes();
    s.model.hidden = 32, s.model.head_dim = 16, s.model.kv_heads = 4;
    s.model.ffn = 64, s.sequence = 130; /* three blocks of attention */
    s.n_microbatches = 2, s.microbatch = 1, s.model.layers = 2;
    compare(s);
    s.model.kv_heads = 1, s.sequence = 1, s.microbatch = 3;
    s.n_replicas = 2, s.replica = 1;
    compare(s);
}

static void gradients_biases(void)
{
    small s = small_sizes();
    s.model.qkv_bias = true;
    compare(s);
    s.model.output_bias = s.model.mlp_bias = true;
    s.dropout = 0.2;
    compare(s);
}

static void gradients_gpt2(void)
{
    small s = small_sizes();
    s.model = gpt2_model(s.model);
    compare(s);
    s.dropout = 0.3;
    compare(s);
    s.model.tied_embeddings = true;
    s.n_chunks = 3, s.n_devices = 1;
    s.sequence = 70; /* two blocks of attention */
    s.microbatch = 1, s.n_microbatches = 2, s.model.layers = 3;
    s.n_replicas = 2, s.replica = 1;
    compare(s);
}

static void gradients_mixtral(void)
{
    small s = small_sizes();
    s.model = mixtral_of(s.model);
    compare(s);
    s.balance = 0.5;
    compare(s);
    s.model.experts_per_token = 3;
    s.dropout = 0.2;
    s.n_chunks = 3, s.n_devices = 1;
    compare(s);
    s.model.experts_per_token = s.model.experts;
    s.sequence = 5, s.n_microbatches = 1, s.microbatch = 1; /* few rows */
    s.dropout = 0;
    compare(s);
    s.model.experts_per_token = 1;
    compare(s);
}

static void gradients_qwen3(void)
{
    small s = small_sizes();
    s.model = qwen3_model(s.model);
    compare(s);
    s.model.qkv_bias = s.model.output_bias = true;
    s.model.tied_embeddings = true;
    s.dropout = 0.2;
    s.n_chunks = 3, s.n_devices = 2;
    compare(s);
}

static void gradients_falcon(void)
{
    small s = small_sizes();
    s.model = falcon_model(s.model);
    compare(s);
    s.model.tied_embeddings = true;
    s.dropout = 0.3;
    s.n_chunks = 3, s.n_devices = 1;
    s.sequence = 70; /* two blocks of attention */
    s.microbatch = 1, s.n_microbatches = 2, s.model.layers = 3;
    compare(s);
}

static void gradients_deepseek(void)
{
    small s = small_sizes();
    s.model = deepseek_model(s.model);
    compare(s);
    s.model.q_lora_rank = 0;
    s.dropout = 0.2;
    s.n_chunks = 3, s.n_devices = 2;
    s.model.layers = 3;
    compare(s);
    s.model.q_lora_rank = s.model.kv_lora_rank = 60; /* the widest dimension */
    s.model.qk_rope_head_dim = 4, s.model.qk_nope_head_dim = 2;
    s.model.head_dim = 6, s.model.v_head_dim = 4;
    s.sequence = 70;
    s.microbatch = 1, s.n_microbatches = 2;
    compare(s);
    s.model.q_lora_rank = s.model.kv_lora_rank = 4;
    s.model.qk_rope_head_dim = 50, s.model.qk_nope_head_dim = 1;
    s.model.head_dim = 51, s.model.v_head_dim = 2;
    compare(s);
}

/* The planner counts parameters with separate code. */
static void as_many_as_planned(void)
{
    lh_model models[] = {small_model(),
                         gpt2_model(small_model()),
                         mixtral_of(small_model()),
                         qwen3_model(small_model()),
                         falcon_model(small_model()),
                         deepseek_model(small_model()),
                         deepseek_model(small_model())};
    models[6].q_lora_rank = 0;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const lh_model *m = &models[i];
        CHECK_INT(lhi_count_values(m, 0, lhi_count_model_tensors(m)),
                  lh_model_params(m));
    }
}

/* Compares both devices' gradients, bit by bit. */
static void check_same(small *a, small *b)
{
    for (uint32_t i = 0; small_tensor(a, i); i++) {
        const lhi_tensor *x = small_tensor(a, i), *y = small_tensor(b, i);
        CHECK_STR(x->name, y->name);
        CHECK_MSG(memcmp(x->gradient, y->gradient, x->n * sizeof(float)) == 0,
                  "%s differs", x->name);
        CHECK_MSG(memcmp(x->value, y->value, x->n * sizeof(float)) == 0,
                  "%s starts differently", x->name);
    }
}

static void check_ways(small base)
{
    static const struct {
        uint32_t chunks, devices;
        small_order order;
    } ways[] = {
        {1, 1, SMALL_SPLIT}, {1, 1, SMALL_BACKWARD}, {1, 1, SMALL_PARTS},
        {5, 5, SMALL_JOINT}, {5, 2, SMALL_PARTS},    {3, 3, SMALL_BACKWARD},
        {8, 4, SMALL_SPLIT}, /* chunks without layers */
    };
    small one = base;
    small_open(&one);
    /* leaves no state behind */
    small_step(&one, 9, LHI_STEP_TRAIN, SMALL_PARTS);
    double loss = small_step(&one, 2, LHI_STEP_TRAIN, SMALL_JOINT);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        small other = base;
        other.n_chunks = ways[i].chunks;
        other.n_devices = ways[i].devices;
        small_open(&other);
        double again = small_step(&other, 2, LHI_STEP_TRAIN, ways[i].order);
        CHECK(memcmp(&loss, &again, sizeof loss) == 0);
        check_same(&one, &other);
        small_close(&other);
    }
    small_close(&one);
}

static void same_bits(void)
{
    small s = small_sizes();
    check_ways(s);
    s.model = gpt2_model(s.model);
    s.model.tied_embeddings = true;
    s.dropout = 0.1;
    check_ways(s);
    s = small_sizes();
    s.model = mixtral_of(s.model);
    s.balance = 0.1;
    check_ways(s);
    s = small_sizes();
    s.model = qwen3_model(s.model);
    check_ways(s);
    s.model = falcon_model(small_model());
    s.dropout = 0.1;
    check_ways(s);
    s.model = deepseek_model(small_model());
    check_ways(s);
    s = small_sizes();
    s.model = qwen2_moe_of(small_model());
    s.capacity = 0.8;
    check_ways(s);
    s.model = glm4_moe_of(small_model());
    check_ways(s);
}

/* Dropout drops its share: different numbers in each step, sample, layer and
 * site, and none in validation. */
static void dropped_shares(void)
{
    small s = small_sizes();
    s.model = gpt2_model(s.model);
    s.dropout = 0.3;
    small_open(&s);
    double first = small_step(&s, 0, LHI_STEP_VALIDATE, SMALL_JOINT);
    small_step(&s, 0, LHI_STEP_TRAIN, SMALL_JOINT);
    double again = small_step(&s, 0, LHI_STEP_VALIDATE, SMALL_JOINT);
    CHECK(memcmp(&first, &again, sizeof first) == 0);
    lh_error err;
    lhi_cpu *cpu = (lhi_cpu *)s.devices[0];
    CHECK_OK(s.devices[0]->ops->begin(s.devices[0], 0, LHI_STEP_TRAIN, &err),
             err);
    enum { N = 400, WAYS = 5 };
    static float x[WAYS][N * N];
    static const lhi_drop at[WAYS] = {{0, 0, LHI_DROP_MLP},
                                      {1, 0, LHI_DROP_MLP},
                                      {0, 1, LHI_DROP_MLP},
                                      {0, 0, LHI_DROP_SCORES},
                                      {0, 0, LHI_DROP_SCORES}};
    for (int k = 0; k < WAYS; k++) {
        size_t zeros = 0, alike = 0;
        for (size_t i = 0; i < N * N; i++)
            x[k][i] = 1;
        lhi_cpu_apply_dropout(cpu, at[k], 0, k == 4, 0, 0, x[k], N, N, N);
        for (size_t i = 0; i < N * N; i++) {
            zeros += x[k][i] == 0;
            alike += k > 0 && x[k][i] == 0 && x[k - 1][i] == 0;
            CHECK(x[k][i] == 0 || fabs((double)x[k][i] - 1 / 0.7) < 1e-6);
        }
        /* Within five deviations of 160000 draws. */
        CHECK_NEAR((double)zeros / (N * N), 0.3, 5 * sqrt(0.21) / N);
        if (k > 0)
            CHECK_NEAR((double)alike / (N * N), 0.09, 5 * 0.29 / N);
    }
    small_close(&s);
}

static void gradients_qwen2_moe(void)
{
    small s = small_sizes();
    s.model = qwen2_moe_of(s.model);
    s.balance = 0.5;
    compare(s);
    s.model.dense_layers = 2;
    s.model.moe_interval = 1, s.model.moe_phase = 0;
    s.model.unnormalised_scores = false;
    s.dropout = 0.2;
    s.n_chunks = 3;
    compare(s);
}

static void gradients_glm4_moe(void)
{
    small s = small_sizes();
    s.model = glm4_moe_of(s.model);
    compare(s);
    s.balance = 0.5;
    s.n_replicas = 2, s.replica = 1;
    compare(s);
    s.model.unnormalised_scores = true;
    s.model.qkv_bias = true;
    s.model.groups_per_token = 1;
    s.n_chunks = 3;
    compare(s);
    s.model.expert_groups = 8; /* one expert per group */
    s.model.groups_per_token = 3;
    s.model.qkv_bias = false;
    s.model.qk_norm = true;
    compare(s);
}

/* With DeepSeek-V3's latent attention. */
static void gradients_deepseek_v3(void)
{
    small s = small_sizes();
    s.model = glm4_moe_of(deepseek_model(small_model()));
    s.balance = 0.5;
    compare(s);
    s.model.q_lora_rank = 0;
    s.n_chunks = 3;
    compare(s);
}

static void gradients_qwen3_moe(void)
{
    small s = small_sizes();
    s.model = mixtral_of(qwen3_model(small_model()));
    compare(s);
    s.model.ffn = 13, s.model.unnormalised_scores = true;
    s.model.n_dense_list = 2, s.model.dense_list = (const uint32_t[]){0, 3};
    s.balance = 0.5;
    compare(s);
}

/* Expert capacity applies per sequence, also in larger microbatches. */
static void gradients_with_a_capacity(void)
{
    small s = small_sizes();
    s.model = mixtral_of(s.model);
    s.balance = 0.5;
    s.capacity = 0.7;
    compare(s);
    s.microbatch = 1, s.n_microbatches = 6;
    compare(s);
    s.model = qwen2_moe_of(small_model());
    s.capacity = 0.01; /* one row each */
    compare(s);
    s.capacity = 100; /* all rows */
    compare(s);
}

static void *step_in_thread(void *context)
{
    small *s = context;
    for (uint64_t step = 0; step < 3; step++)
        small_step(s, step, LHI_STEP_TRAIN, SMALL_SPLIT);
    return NULL;
}

/* Results do not depend on the calling thread or on concurrent work. */
static void same_in_threads(void)
{
    enum { N = 4 };
    static small s[N];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        s[i] = small_sizes();
        s[i].model.hidden = 128, s[i].model.head_dim = 32;
        s[i].model.ffn = 192, s[i].sequence = 100;
        small_open(&s[i]);
    }
    step_in_thread(&s[0]);
    for (int i = 1; i < N; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, step_in_thread, &s[i]), 0);
    for (int i = 1; i < N; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < N; i++)
        check_same(&s[0], &s[i]);
    for (int i = 0; i < N; i++)
        small_close(&s[i]);
}

static void parts_cover_all(void)
{
    small s = small_sizes(), whole = small_sizes();
    small_open(&s);
    small_open(&whole);
    small_step(&whole, 0, LHI_STEP_TRAIN, SMALL_JOINT);
    for (uint16_t parts = 1; parts < 60; parts += 9) {
        lhi_device *d = s.devices[0];
        lh_error err;
        lh_pass pass = {.n_parts = 1};
        CHECK_OK(d->ops->begin(d, 0, LHI_STEP_TRAIN, &err), err);
        for (uint32_t m = 0; m < s.n_microbatches; m++) {
            pass = (lh_pass){.microbatch = m, .kind = LH_F, .n_parts = 1};
            CHECK_OK(d->ops->run(d, &pass, NULL, NULL, 0, NULL, &err), err);
            pass.kind = LH_D;
            CHECK_OK(d->ops->run(d, &pass, NULL, NULL, 0, NULL, &err), err);
            pass.kind = LH_W, pass.n_parts = parts;
            for (pass.part = 0; pass.part < parts; pass.part++)
                CHECK_OK(d->ops->run(d, &pass, NULL, NULL, 0, NULL, &err), err);
        }
        check_same(&whole, &s);
    }
    small_close(&s);
    small_close(&whole);
}

/* Rejects mixtures of model features, and features that no supported model has.
 */
static void refuses_kinds(void)
{
    const lh_model llama = small_model(), gpt2 = gpt2_model(llama);
    const lh_model mixtral = mixtral_of(llama), glm4 = glm4_moe_of(llama);
    const lh_model deepseek = deepseek_model(llama);
    const lh_model falcon = falcon_model(llama);
    struct {
        lh_model model;
        const char *says;
    } rows[] = {
        {llama, "norms of queries and keys with biases on only some"},
        {mixtral, "norms of queries and keys with a softmax router and shared "
                  "experts"},
        {llama, "norms of queries and keys with layer norm"},
        {deepseek, "latent attention with biases"},
        {deepseek, "latent attention without a sigmoid router"},
        {deepseek, "latent attention with norms of queries"},
        {deepseek, "latent attention with layer norm"},
        {falcon, "a parallel block with biases"},
        {falcon, "a parallel block with more than one key-value head"},
        {falcon, "a parallel block whose heads do not add up"},
        {falcon, "a parallel block with RMS norm"},
        {falcon, "a parallel block with experts"},
        {llama, "RMS norm with ungated MLPs"},
        {llama, "RMS norm with learned positions"},
        {llama, "a bias only on the attention output"},
        {gpt2, "layer norm with gated MLPs"},
        {gpt2, "layer norm with rotary positions"},
        {gpt2, "layer norm with linear layers that lack biases"},
        {gpt2, "learned positions with shared key-value heads"},
        {gpt2, "do not add up to hidden"},
        {mixtral, "experts with biases"},
        {mixtral, "without a gated shared expert"},
        {mixtral, "without a gated shared expert"},
        {mixtral, "experts without a valid expert_ffn or experts_per_token"},
        {mixtral, "experts with layer norm"},
        {gpt2, "multi-token prediction (mtp_layers) with layer norms"},
        {llama, "a sliding window"},
        {glm4, "a sigmoid router without ungated shared experts"},
        {glm4, "a sigmoid router with dense layers after expert layers"},
        {mixtral, "expert groups without a sigmoid router"},
        {mixtral, "a routed_scale without a sigmoid router"},
    };
    const uint32_t firsts[] = {0, llama.layers};
    lh_model *m[sizeof rows / sizeof *rows];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        m[i] = &rows[i].model;
    m[0]->qk_norm = m[1]->qk_norm = m[2]->qk_norm = true;
    m[0]->qkv_bias = true, m[1]->shared_expert_ffn = 5,
    m[2]->norm = LH_NORM_LAYER;
    m[3]->qkv_bias = true, m[4]->experts = m[4]->expert_ffn = 5,
    m[4]->experts_per_token = 1, m[5]->qk_norm = true;
    m[6]->norm = LH_NORM_LAYER, m[7]->mlp_bias = true, m[8]->kv_heads = 2;
    m[9]->hidden = 44, m[10]->norm = LH_NORM_RMS, m[11]->experts = 5;
    lh_model **more = m + 12;
    more[0]->gated = false;
    more[1]->positions = 50, more[2]->output_bias = true;
    more[3]->gated = true, more[4]->positions = 0;
    more[5]->mlp_bias = false, more[6]->kv_heads = 2;
    more[7]->hidden = 44, more[8]->router_bias = true;
    more[9]->shared_expert_ffn = 8, more[10]->dense_layers = 1;
    more[11]->experts_per_token = 6;
    more[12]->norm = LH_NORM_LAYER, more[13]->mtp_layers = 1;
    more[14]->sliding_window = 2;
    m[27]->shared_expert_ffn = 41, m[28]->moe_interval = 2;
    m[29]->expert_groups = 5, m[29]->groups_per_token = 2;
    m[30]->routed_scale = 2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_error err = {0};
        lhi_device *none = NULL;
        CHECK_INT(lhi_device_cpu(&(lhi_cpu_options){.model = &rows[i].model,
                                                    .n_chunks = 1,
                                                    .first_layers = firsts,
                                                    .microbatch = 1,
                                                    .sequence = 9,
                                                    .n_microbatches = 1,
                                                    .n_replicas = 1},
                                 &none, &err),
                  LH_EUNSUPPORTED);
        CHECK_HAS(err.text, rows[i].says);
    }
}

static void refusals(void)
{
    small s = small_sizes();
    lh_error err;
    small_open(&s);
    lhi_device *d = s.devices[0];
    lh_pass f = {.kind = LH_F, .n_parts = 1}, w = {.kind = LH_W, .n_parts = 1};
    lh_pass back = {.kind = LH_D, .n_parts = 1};
    CHECK_OK(d->ops->begin(d, 0, LHI_STEP_TRAIN, &err), err);
    CHECK_INT(d->ops->run(d, &back, NULL, NULL, 0, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "before its F");
    CHECK_INT(d->ops->run(d, &w, NULL, NULL, 0, NULL, &err), LH_EINVAL);
    CHECK_OK(d->ops->run(d, &f, NULL, NULL, 0, NULL, &err), err);
    CHECK_INT(d->ops->run(d, &f, NULL, NULL, 0, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "twice");
    CHECK_INT(d->ops->run(d, &w, NULL, NULL, 0, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "before its D");
    CHECK_OK(d->ops->run(d, &back, NULL, NULL, 0, NULL, &err), err);
    CHECK_OK(d->ops->run(d, &w, NULL, NULL, 0, NULL, &err), err);
    CHECK_INT(d->ops->run(d, &w, NULL, NULL, 0, NULL, &err), LH_EINVAL);
    CHECK_HAS(err.text, "twice");
    small_close(&s);
    small_text(s.path, sizeof s.path);
    s.model.attention_sinks = true;
    lhi_device *none = NULL;
    CHECK_INT(lhi_device_cpu(&(lhi_cpu_options){.model = &s.model,
                                                .n_chunks = 1,
                                                .first_layers = s.firsts,
                                                .microbatch = 1,
                                                .sequence = 1,
                                                .n_microbatches = 1,
                                                .n_replicas = 1},
                             &none, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "small has attention sinks");
    unlink(s.path);
    refuses_kinds();
}

enum { N_TASKS = 1000, N_THREADS = 4 };

/* Counts the calls of a task (lhi_thread_team_run()). */
static void count_task(void *of, uint32_t task, uint32_t thread)
{
    uint32_t *counts = of;
    counts[task] += thread < N_THREADS;
}

/* Checks that each task of a team of threads runs once, in every call. */
static void thread_teams(void)
{
    lh_error err;
    lhi_thread_team *team;
    uint32_t counts[N_TASKS] = {0};
    CHECK_OK(lhi_thread_team_make(N_THREADS, &team, &err), err);
    for (int round = 0; round < 20; round++)
        lhi_thread_team_run(team, N_TASKS, count_task, counts);
    lhi_thread_team_run(team, 0, count_task, counts);
    for (uint32_t i = 0; i < N_TASKS; i++)
        CHECK_INT(counts[i], 20);
    lhi_thread_team_free(team);
}

int main(void)
{
    RUN(thread_teams);
    RUN(differences);
    RUN(gradients);
    RUN(gradients_tied);
    RUN(gradients_shapes);
    RUN(gradients_biases);
    RUN(gradients_gpt2);
    RUN(gradients_mixtral);
    RUN(gradients_qwen3);
    RUN(gradients_falcon);
    RUN(gradients_deepseek);
    RUN(as_many_as_planned);
    RUN(gradients_qwen2_moe);
    RUN(gradients_glm4_moe);
    RUN(gradients_deepseek_v3);
    RUN(gradients_qwen3_moe);
    RUN(gradients_with_a_capacity);
    RUN(dropped_shares);
    RUN(same_bits);
    RUN(same_in_threads);
    RUN(parts_cover_all);
    RUN(refusals);
    return test_summary();
}
