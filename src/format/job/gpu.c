/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU presets, one row each. The dense (no sparsity) 16-bit matrix rate,
 * memory and memory bandwidth are from NVIDIA's and AMD's datasheets, which
 * docs/formats/job.md lists. */
#include "format/job/parse.h"

#include <math.h>
#include <string.h>

/* A GPU preset. `share` and `fp8_share`: sustained fractions of the peaks where
 * measurements differ from the rule for all GPUs (below); otherwise 0. */
typedef struct gpu_preset {
    lh_gpu gpu;
    double share, fp8_share, host_gbps;
    bool fp16_only; /* Volta's tensor cores support FP16 only */
    lhi_server server;
} gpu_preset;

#define GPU(name_, peak, fp8, gib, gbytes)                                     \
    .gpu = {.name = name_,                                                     \
            .preset = name_,                                                   \
            .tflops = peak,                                                    \
            .flops_per_s = peak * 1e12,                                        \
            .memory_gib = gib,                                                 \
            .memory_bytes = INT64_C(gib) << 30,                                \
            .memory_gbps = gbytes,                                             \
            .memory_bytes_per_s = gbytes * 1e9,                                \
            .fp8_tflops = fp8}

/* The columns and their sources:
 * - `share`: MI300X reaches 620 TFLOP/s where H100 reaches 720 (SemiAnalysis,
 *   MI300X vs H100 vs H200 Benchmark Part 1, 2024), MI325X 784.9 to H100's
 *   794.5, and MI355X 1565 to B200's 1745 (Bekman, ML Engineering, maximum
 *   achievable matmul FLOPS, 2025): these ratios times the rule's rates for
 *   H100 and B200.
 * - `fp8_share`: B300 and GB300 fitted; docs/validation.md lists the runs.
 *   MI300X 990 TFLOP/s to H100's 1280 (SemiAnalysis, as above), times the rule.
 *   MI325X and MI355X, for which there is no measurement: MI300X's ratio of
 *   fp8_share to share.
 * - `host_gbps`: PCIe 3.0 to 6.0, and NVLink-C2C between a Grace processor and
 *   its GPUs
 * - `server`: DGX-1, DGX A100 to B300 and NVL72, of whose 72 GPUs power-of-two
 *   degrees use 64; docs/formats/job.md. GH200: Alps nodes with four GPUs, with
 *   six NVLinks of 200 Gb/s to each of the others. A10: PipeMesh's nodes with
 *   four GPUs over PCIe 4.0, and 50 Gb/s between nodes (IEEE TPDS 2025, section
 *   VI). H800: NVLink with 400 GB/s in both directions together, and 400 Gb/s
 *   for each GPU (arXiv:2412.19437, section 3.1). L40S: PCIe 4.0, and a 200
 *   Gb/s interface for each two GPUs (2-8-5 in NVIDIA's enterprise reference
 *   architecture). MI300X to MI355X: seven
 *   Infinity Fabric links to the platform's other GPUs, and 400 Gb/s for each
 *   GPU. */
static const gpu_preset rows[] = {
    {GPU("v100-32g", 125, 0, 32, 900), 0, 0, 32, true, {8, 1200, 50}},
    {GPU("a100-40g", 312, 0, 40, 1555), 0, 0, 64, false, {8, 2400, 200}},
    {GPU("a100-80g", 312, 0, 80, 2039), 0, 0, 64, false, {8, 2400, 200}},
    {GPU("a10-24g", 125, 0, 24, 600), 0, 0, 64, false, {4, 256, 12.5}},
    {GPU("l40s", 362, 733, 48, 864), 0, 0, 64, false, {8, 256, 100}},
    {GPU("h20", 148, 296, 96, 4000), 0, 0, 128, false, {8, 3600, 400}},
    {GPU("h800", 989.5, 1979, 80, 3350), 0, 0, 128, false, {8, 1600, 400}},
    {GPU("h100-sxm", 989.5, 1979, 80, 3350), 0, 0, 128, false, {8, 3600, 400}},
    {GPU("h200", 989.5, 1979, 141, 4800), 0, 0, 128, false, {8, 3600, 400}},
    {GPU("gh200", 989.5, 1979, 96, 4000), 0, 0, 900, false, {4, 1200, 200}},
    {GPU("b200", 2250, 4500, 180, 8000), 0, 0, 128, false, {8, 7200, 400}},
    {GPU("b300", 2250, 4500, 270, 8000), 0, 0.84, 256, false, {8, 7200, 800}},
    /* A Grace processor has 900 GB/s for its two GPUs. */
    {GPU("gb200", 2500, 5000, 186, 8000), 0, 0, 450, false, {64, 7200, 400}},
    {GPU("gb300", 2500, 5000, 279, 8000), 0, 0.84, 450, false, {64, 7200, 800}},
    {GPU("mi300x", 1307.4, 2614.9, 192, 5300),
     0.567,
     0.392,
     128,
     false,
     {8, 3584, 400}},
    {GPU("mi325x", 1307.4, 2614.9, 256, 6000),
     0.650,
     0.450,
     128,
     false,
     {8, 3584, 400}},
    {GPU("mi355x", 2516.6, 5033.2, 288, 8000),
     0.641,
     0.443,
     128,
     false,
     {8, 4300.8, 400}},
};

/* The rule for all GPUs, which uses their numbers alone, so that a preset and
 * the same numbers in a map cost the same. Peak in TFLOP/s, and the fraction of
 * it that large products sustain, relative to A100's. Sources: 720 of 989
 * TFLOP/s on H100 and H200 (SemiAnalysis, as above), about 1500 of 2250 on B200
 * (arXiv:2604.23466, tables III and IV). Between two points the sustained rate
 * is linear in the peak, so that a higher peak never costs time; outside them
 * the fraction is constant. */
typedef struct sustained_point {
    double peak, share;
} sustained_point;

static const sustained_point rule[] = {{312, 1}, {989.5, 0.87}, {2250, 0.80}};
/* The same in FP8: fitted to published runs on Hopper, B200 and GB200;
 * docs/validation.md. */
static const sustained_point fp8_rule[] = {{1979, 0.67}, {4500, 0.62}};

enum {
    N_RULE = sizeof rule / sizeof *rule,
    N_FP8_RULE = sizeof fp8_rule / sizeof *fp8_rule
};

/* Number of GPU presets. */
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const char *const preset_names[N_ROWS + 1] = {
    "v100-32g", "a100-40g", "a100-80g", "a10-24g", "l40s",   "h20",
    "h800",     "h100-sxm", "h200",     "gh200",   "b200",   "b300",
    "gb200",    "gb300",    "mi300x",   "mi325x",  "mi355x", NULL,
};

static const lhi_alias aliases[] = {
    {"v100", "v100-32g"}, {"a100", "a100-80g"}, {"a10", "a10-24g"},
    {"h100", "h100-sxm"}, {NULL, NULL},
};

const char *lhi_resolve_alias(const lhi_alias *list, const char *name)
{
    for (; list->name; list++)
        if (strcmp(list->name, name) == 0)
            return list->preset;
    return name;
}

/* Returns the names of all GPU presets, NULL-terminated; static storage. */
const char *const *lh_gpu_presets(void)
{
    return preset_names;
}

/* Returns the preset table's entry for a GPU preset's name or alias; NULL if
 * there is none. */
static const gpu_preset *find_row(const char *name)
{
    if (name)
        name = lhi_resolve_alias(aliases, name);
    for (size_t i = 0; name && i < N_ROWS; i++)
        if (strcmp(rows[i].gpu.name, name) == 0)
            return &rows[i];
    return NULL;
}

const lh_gpu *lh_gpu_preset(const char *name)
{
    const gpu_preset *r = find_row(name);
    return r ? &r->gpu : NULL;
}

lhi_server lhi_gpu_find_server(const lh_gpu *preset)
{
    return find_row(preset->name)->server;
}

bool lhi_gpu_preset_supports(const char *preset, lh_precision precision)
{
    const gpu_preset *r = find_row(preset);
    return precision == LH_PRECISION_FP16 ||
           (precision == LH_PRECISION_BF16 && !(r && r->fp16_only));
}

int64_t lh_gpu_usable_bytes(const lh_gpu *gpu)
{
    const double reserve =
        gpu->reserve_gib > 0
            ? gpu->reserve_gib * 0x1p30
            : (double)gpu->memory_bytes * gpu->reserve_percent / 100;
    return gpu->memory_bytes - (int64_t)ceil(reserve);
}

/* Returns the fraction of a peak rate that GPUs sustain: interpolated at `peak`
 * between a rule's n points, which are sorted by rate. */
static double find_sustained_share(const sustained_point *points, size_t n,
                                   double peak)
{
    const sustained_point *low, *high;

    if (peak <= points[0].peak)
        return points[0].share;
    for (size_t i = 1; i < n; i++) {
        low = &points[i - 1];
        high = &points[i];
        if (peak < high->peak) {
            double from = low->peak * low->share;
            double to = high->peak * high->share;
            double part = (peak - low->peak) / (high->peak - low->peak);
            return (from + part * (to - from)) / peak;
        }
    }
    return points[n - 1].share;
}

double lhi_gpu_sustained_flops_per_s(const lh_gpu *gpu, double efficiency)
{
    const gpu_preset *r = find_row(gpu->preset);

    if (gpu->sustained_tflops > 0)
        return fmin(gpu->sustained_tflops * 1e12, gpu->flops_per_s);
    /* A preset's fraction also applies to a peak of another precision. */
    double share =
        r && r->share > 0
            ? r->share
            : find_sustained_share(rule, N_RULE,
                                   r ? r->gpu.tflops : gpu->flops_per_s / 1e12);
    return gpu->flops_per_s * (efficiency * share);
}

double lhi_gpu_sustained_fp8_flops_per_s(const lh_gpu *gpu, double efficiency)
{
    const gpu_preset *r = find_row(gpu->preset);

    if (gpu->sustained_fp8_tflops > 0)
        return fmin(gpu->sustained_fp8_tflops, gpu->fp8_tflops) * 1e12;
    double share =
        r && r->fp8_share > 0
            ? r->fp8_share
            : find_sustained_share(fp8_rule, N_FP8_RULE,
                                   r ? r->gpu.fp8_tflops : gpu->fp8_tflops);
    return gpu->fp8_tflops * 1e12 * (efficiency * share);
}

double lhi_gpu_experts_efficiency(double sustained_flops_per_s, bool fp8,
                                  double efficiency, double experts)
{
    const sustained_point *a100 = &rule[0], *h100 = &rule[1];
    double from = a100->peak * a100->share, to = h100->peak * h100->share;
    double rate = sustained_flops_per_s / efficiency / 1e12;

    if (fp8) /* in 16-bit terms, by H100's rates */
        rate *= to / (fp8_rule[0].peak * fp8_rule[0].share);
    if (rate <= from)
        return 1;
    if (rate >= to * (1 - 1e-9))
        return experts;
    double reached = fmax(experts * to, from);
    return (from + (rate - from) / (to - from) * (reached - from)) / rate;
}

double lhi_gpu_max_flops_per_s(const lh_gpu *gpu, lh_fp8 fp8)
{
    return fp8 == LH_FP8_NONE ? gpu->flops_per_s
                              : fmax(gpu->flops_per_s, gpu->fp8_tflops * 1e12);
}

double lhi_gpu_host_bytes_per_s(const lh_gpu *gpu)
{
    const gpu_preset *r = find_row(gpu->preset);
    double pcie = gpu->flops_per_s < rule[1].peak * 1e12 ? 64 : 128;
    return 0.8 * (r ? r->host_gbps : pcie) / 2 * 1e9;
}

uint32_t lhi_count_offloaded_layers(const lh_job *job, uint32_t n_layers)
{
    /* Compensates for binary rounding: 0.28 x 25 is 7, but the binary product
     * is slightly larger. */
    return (uint32_t)ceil(job->training.offload_share * (1 - 1e-12) * n_layers);
}
