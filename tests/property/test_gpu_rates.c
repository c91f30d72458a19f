/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs as numbers: a preset and the same numbers in a map cost the same, and no
 * pass gets longer with a higher matrix rate, memory bandwidth or amount of
 * memory. Random GPUs, models and layouts. */
#include "test_cost.h"

#include "base/random.h"

#include <longhaul/experimental/job.h>

static const char *const models[] = {"llama3-8b", "llama3-70b", "llama3-405b",
                                     "mixtral-8x7b", "deepseek-v3"};
enum { N_MODELS = sizeof models / sizeof *models };

/* Samples log-uniformly. */
static double draw_between(lhi_random *r, double least, double most)
{
    return least * pow(most / least, lhi_random_below(r, 100001) / 1e5);
}

static uint32_t draw_power(lhi_random *r, uint32_t most)
{
    return UINT32_C(1) << lhi_random_below(r, most + 1);
}

/* Samples a layout of one layer; tensor and context are at most 8. */
static void draw_layer(lhi_random *r, fixture *f)
{
    fixture_init(f, models[lhi_random_below(r, N_MODELS)]);
    f->job.training.precision = LH_PRECISION_BF16;
    f->job.training.sequence = 1024 * draw_power(r, 5);
    f->job.framework.fused_experts = lhi_random_below(r, 2);
    f->layout.tensor = draw_power(r, 3);
    f->layout.context = draw_power(r, 3);
    f->layout.micro_batch = draw_power(r, 2);
    f->slice.first_layer = lhi_random_below(r, f->job.model->layers - 2);
    f->slice.n_layers = 1 + lhi_random_below(r, 2);
    f->slice.head = lhi_random_below(r, 2);
    f->slice.mtp = LH_MTP_ELSEWHERE;
    if (f->slice.head)
        f->slice.first_layer = f->job.model->layers - f->slice.n_layers;
}

static void set_gpu(fixture *f, const lh_gpu *gpu)
{
    for (int i = 0; i < 2; i++)
        f->sites[i].gpu = *gpu;
}

/* Returns the total of all passes and of the optimizer's step. */
static int64_t total_ns(fixture *f)
{
    if (fixture_cost(f) != LH_OK) {
        CHECK_MSG(false, "%s: %s", f->job.model->name, f->err.text);
        return 0;
    }
    return f->cost.f.total_ns + f->cost.d.total_ns + f->cost.w.total_ns +
           f->cost.optimizer_ns;
}

static lh_gpu draw_gpu(lhi_random *r)
{
    lh_gpu g = {.name = "custom"};

    g.tflops = draw_between(r, 10, 5000);
    g.flops_per_s = g.tflops * 1e12;
    g.fp8_tflops = draw_between(r, 1, 2.5) * g.tflops;
    g.memory_gib = draw_between(r, 16, 400);
    g.memory_bytes = (int64_t)(g.memory_gib * 0x1p30);
    g.memory_gbps = draw_between(r, 300, 12000);
    g.memory_bytes_per_s = g.memory_gbps * 1e9;
    if (lhi_random_below(r, 4) == 0)
        g.sustained_tflops = draw_between(r, 0.3, 1) * g.tflops;
    if (lhi_random_below(r, 4) == 0)
        g.sustained_fp8_tflops = draw_between(r, 0.3, 1) * g.fp8_tflops;
    return g;
}

/* Multiplies one property of the GPU; a sustained rate stays below its peak. */
static lh_gpu improve_gpu(const lh_gpu *gpu, uint32_t which, double by)
{
    lh_gpu g = *gpu;

    switch (which) {
    case 0:
        g.tflops *= by;
        g.flops_per_s *= by;
        break;
    case 1:
        g.fp8_tflops *= by;
        break;
    case 2:
        g.memory_gbps *= by;
        g.memory_bytes_per_s *= by;
        break;
    case 3:
        g.memory_gib *= by;
        g.memory_bytes = (int64_t)(g.memory_gib * 0x1p30);
        break;
    default:
        g.sustained_tflops = fmin(g.sustained_tflops * by, g.tflops);
        g.sustained_fp8_tflops =
            fmin(g.sustained_fp8_tflops * by, g.fp8_tflops);
    }
    return g;
}

static void better_gpus_are_not_slower(void)
{
    lhi_random r = {40};

    for (int i = 0; i < 20000; i++) {
        fixture f;
        lh_gpu g = draw_gpu(&r);
        uint32_t which = lhi_random_below(&r, 5);
        double by = draw_between(&r, 1.0001, 4);
        lh_gpu more = improve_gpu(&g, which, by);

        draw_layer(&r, &f);
        f.job.framework.fp8 =
            lhi_random_below(&r, 2) ? LH_FP8_MATMUL : LH_FP8_NONE;
        set_gpu(&f, &g);
        int64_t before = total_ns(&f);
        set_gpu(&f, &more);
        CHECK_MSG(total_ns(&f) <= before,
                  "property %u of %g TFLOP/s (%g in FP8), %g GB/s, times %g: "
                  "%" PRId64 " ns became %" PRId64,
                  which, g.tflops, g.fp8_tflops, g.memory_gbps, by, before,
                  total_ns(&f));
        if (test_state.bad)
            return;
    }
}

/* Reads a GPU with the preset's numbers from a job. */
static lh_job *read_by_hand(const lh_gpu *preset, bool sustained)
{
    char text[1024], rates[128] = "";
    lh_job *job = NULL;
    lh_error err = {0};
    const double efficiency = lh_cost_defaults()->matmul_efficiency;

    if (sustained)
        snprintf(rates, sizeof rates,
                 ", sustained_tflops: %.17g, sustained_fp8_tflops: %.17g",
                 preset->tflops * efficiency, preset->fp8_tflops * efficiency);
    int n = snprintf(
        text, sizeof text,
        "longhaul: job/1\nmodel: llama3-8b\n"
        "training: {global_batch: 8, sequence: 4096, precision: fp16}\n"
        "cluster:\n  gpu: {tflops: %g, fp8_tflops: %g, memory_gib: %g, "
        "memory_gbps: %g%s}\n  gpus_per_node: 8\n"
        "  node_link: {gbps: 3600, latency_us: 3}\n"
        "  fabric: {gbps: 400, latency_us: 8}\n"
        "  datacenters: [{name: here, nodes: 1}]\n",
        preset->tflops, preset->fp8_tflops > 0 ? preset->fp8_tflops : 1,
        preset->memory_gib, preset->memory_gbps, rates);
    CHECK_MSG(lh_job_parse(text, (size_t)n, "by-hand", NULL, &job, &err) ==
                  LH_OK,
              "%s: %s", preset->name, err.text);
    return job;
}

/* GPUs whose sustained rates are measured and differ from the rule, in 16 and
 * in 8 bits. */
static bool has_own_rate(const char *name, lh_fp8 fp8)
{
    return strncmp(name, "mi3", 3) == 0 ||
           (fp8 != LH_FP8_NONE && strstr(name, "b300"));
}

static void presets_by_hand_cost_the_same(void)
{
    lhi_random r = {41};

    for (const char *const *name = lh_gpu_presets(); *name; name++) {
        const lh_gpu *preset = lh_gpu_preset(*name);
        lh_job *job = read_by_hand(preset, false);

        if (!job)
            continue;
        for (int i = 0; i < 50; i++) {
            fixture f;

            draw_layer(&r, &f);
            f.job.framework.fp8 =
                preset->fp8_tflops > 0 && i % 2 ? LH_FP8_MATMUL : LH_FP8_NONE;
            if (has_own_rate(*name, f.job.framework.fp8))
                continue;
            set_gpu(&f, preset);
            int64_t as_preset = total_ns(&f);
            set_gpu(&f, &job->datacenters[0].gpu);
            CHECK_MSG(total_ns(&f) == as_preset,
                      "%s: %" PRId64 " ns as a preset, %" PRId64 " by hand",
                      *name, as_preset, total_ns(&f));
        }
        lh_job_free(job);
    }
}

/* A sustained rate replaces the rule: with A100's fraction of the peak of an
 * H100, products take 0.87 of the time. */
static void sustained_rates_replace_the_rule(void)
{
    fixture f;
    const lh_gpu *h100 = lh_gpu_preset("h100-sxm");
    lh_job *job = read_by_hand(h100, true);

    fixture_init(&f, "llama3-70b");
    COST(&f);
    double by_rule = (double)f.cost.f.matmul_ns;
    if (job) {
        set_gpu(&f, &job->datacenters[0].gpu);
        COST(&f);
        CHECK_NEAR((double)f.cost.f.matmul_ns, 0.87 * by_rule, 2);
    }
    lh_job_free(job);
}

int main(void)
{
    RUN(better_gpus_are_not_slower);
    RUN(presets_by_hand_cost_the_same);
    RUN(sustained_rates_replace_the_rule);
    return test_summary();
}
