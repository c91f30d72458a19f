/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of kernels by size, held against published measurements on H100: small
 * and thin products and short sequences are slower, and not less so than
 * measured. */
#include "test_cost.h"

#include "model/timing.h"

/* A product of m x k by k x n in bf16, `batch` of them at once, in TFLOP/s.
 * OpenXLA, xla/service/gpu/model/matmul_interpolator_data.h, sm_90. */
static const struct {
    double batch, m, n, k, tflops;
} products[] = {
    {1, 256, 512, 256, 11.5},     {1, 256, 2048, 256, 41.8},
    {1, 4096, 4096, 256, 392.2},  {1, 4096, 512, 512, 238.8},
    {1, 4096, 1024, 512, 343.7},  {1, 4096, 2048, 512, 447.0},
    {1, 1024, 256, 1024, 68.3},   {1, 4096, 512, 1024, 370.8},
    {1, 512, 4096, 1024, 373.3},  {1, 4096, 1024, 1024, 488.1},
    {1, 2048, 512, 2048, 347.7},  {1, 1024, 2048, 2048, 524.3},
    {1, 4096, 256, 2048, 304.7},  {1, 2048, 2048, 2048, 632.0},
    {1, 256, 512, 4096, 91.7},    {1, 256, 2048, 4096, 285.9},
    {2, 4096, 1024, 4096, 750.6}, {1, 4096, 4096, 4096, 783.3},
};

/* FlashAttention-3 (arXiv:2407.08608), figure 5: forward, causal, head size
 * 128, 16 heads and 16,384 tokens in sequences of the given length, in
 * TFLOP/s. */
static const struct {
    uint32_t sequence;
    double tflops;
} attention[] = {{512, 292},  {1024, 423}, {2048, 521},
                 {4096, 579}, {8192, 602}, {16384, 616}};

/* Returns the rate that the cost model predicts for some work, in TFLOP/s. */
static double predict_tflops(const lhi_cost_context *p, const lhi_work *work)
{
    lhi_time_breakdown time;

    lhi_compute_work_time(p, work, &time);
    return work->flops / time.total / 1e3;
}

static void build_context(fixture *f, lhi_cost_context *p)
{
    CHECK_OK(lhi_cost_context_build(&f->job, &f->layout, &f->slice, &f->options,
                                    false, NULL, p, &f->err),
             f->err);
}

/* Predictions are at most 20 % above a measurement, in products that use few
 * of the GPU's units, and above half of it, in products whose traffic and
 * operations overlap best. */
static void thin_products_are_slower(void)
{
    fixture f;
    lhi_cost_context p;

    fixture_init(&f, "llama3-8b");
    build_context(&f, &p);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const double b = products[i].batch, m = products[i].m;
        lhi_work one = {0}, all = {0};

        lhi_work_linear(&p.shape, m, products[i].k, products[i].n, 1, &one);
        lhi_work_add(&all, &one, b);
        all.kernels = 1;
        const double predicted = predict_tflops(&p, &all);
        CHECK_MSG(predicted > 0.5 * products[i].tflops &&
                      predicted < 1.2 * products[i].tflops,
                  "%g x %g x %g: %g TFLOP/s predicted, %g measured", m,
                  products[i].n, products[i].k, predicted, products[i].tflops);
    }
}

/* The shorter the sequences, the slower; at each step from the longest by no
 * less than measured. */
static void short_sequences_are_slower(void)
{
    enum { N = sizeof attention / sizeof *attention };
    fixture f;
    lhi_cost_context p;
    lh_model model = *lh_model_preset("llama3-8b");
    double predicted[N];

    fixture_init(&f, "llama3-8b");
    model.heads = model.kv_heads = 16;
    f.job.model = &model;
    for (int i = 0; i < N; i++) {
        lhi_work work = {0};

        f.job.training.sequence = attention[i].sequence;
        f.layout.micro_batch = 16384 / attention[i].sequence;
        build_context(&f, &p);
        lhi_work_attention(&p.shape, 0, &work);
        predicted[i] = predict_tflops(&p, &work);
        CHECK_MSG(fabs(predicted[i] / attention[i].tflops - 1) < 0.25,
                  "%u tokens: %g TFLOP/s predicted, %g measured",
                  attention[i].sequence, predicted[i], attention[i].tflops);
    }
    for (int i = 0; i + 1 < N; i++)
        CHECK(predicted[i] / predicted[N - 1] <=
              attention[i].tflops / attention[N - 1].tflops);
}

/* Returns the time of a layer's F, D and W for eight sequences of 4,096 tokens
 * on two GPUs, in ns. */
static int64_t compute_layer_time(uint32_t tensor, uint32_t context,
                                  uint32_t micro_batch)
{
    fixture f;

    fixture_init(&f, "llama3-8b");
    f.job.training.sequence = 4096;
    f.layout.tensor = tensor;
    f.layout.context = context;
    f.layout.micro_batch = micro_batch;
    COST(&f);
    return (f.cost.f.total_ns + f.cost.d.total_ns + f.cost.w.total_ns) * 8 /
           (micro_batch * (2 / (tensor * context)));
}

/* Context parallelism with twice the microbatch has as many tokens per GPU; it
 * exchanges keys and values, and merges partial attention. Smaller microbatches
 * and thinner tensors are slower, too. */
static void splitting_is_not_free(void)
{
    static const uint32_t shapes[][3] = {
        {1, 1, 4}, {1, 1, 2}, {1, 1, 1}, {1, 2, 2}, {2, 1, 2}};
    int64_t ns[5];

    for (int i = 0; i < 5; i++)
        ns[i] = compute_layer_time(shapes[i][0], shapes[i][1], shapes[i][2]);
    CHECK(ns[0] < ns[1] && ns[1] < ns[2]);
    CHECK(ns[3] > ns[2] && ns[4] > ns[2]);
}

int main(void)
{
    RUN(splitting_is_not_free);
    RUN(thin_products_are_slower);
    RUN(short_sequences_are_slower);
    return test_summary();
}
