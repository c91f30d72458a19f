/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, in bench.h */
#include "pipelines.h"

#include "bench.h"

#include <longhaul/experimental/pipeline.h>

void bench_check_status(lh_status status, const lh_error *err)
{
    if (status != LH_OK)
        bench_die(err);
}

const bench_family bench_families[] = {
    {"UD 4 x 8, K = 2", 4, 8, 1, 2, false},
    {"UD 4 x 16, K = 2", 4, 16, 1, 2, false},
    {"UD 6 x 12, K = 3", 6, 12, 1, 3, false},
    {"UD 8 x 8, K = 8", 8, 8, 1, 8, false},
    {"UD 8 x 16, K = 4", 8, 16, 1, 4, false},
    {"UD 8 x 16, K = 8", 8, 16, 1, 8, false},
    {"UD 8 x 16, K = 10", 8, 16, 1, 10, false},
    {"UD 6 x 32, K = 3", 6, 32, 1, 3, false},
    {"UD 8 x 32, K = 4", 8, 32, 1, 4, false},
    {"UD 8 x 32, K = 8", 8, 32, 1, 8, false},
    {"UD 8 x 64, K = 8", 8, 64, 1, 8, false},
    {"UD 16 x 16, K = 16", 16, 16, 1, 16, false},
    {"UD 16 x 32, K = 16", 16, 32, 1, 16, false},
    {"Wave 4 x 8, K = 4", 4, 8, 2, 4, false},
    {"Wave 4 x 16, K = 4", 4, 16, 2, 4, false},
    {"Wave 6 x 12, K = 6", 6, 12, 2, 6, false},
    {"Wave 8 x 16, K = 8", 8, 16, 2, 8, false},
    {"Wave 8 x 16, K = 16", 8, 16, 2, 16, false},
    {"UD 8 x 64, K = 4", 8, 64, 1, 4, false},
    {"UD 8 x 64, K = 10", 8, 64, 1, 10, false},
    {"UD 16 x 32, K = 8", 16, 32, 1, 8, false},
    {"UD 16 x 32, K = 18", 16, 32, 1, 18, false},
    {"Wave 8 x 32, K = 32", 8, 32, 2, 32, false},
    {"UD 6 x 32, K = 3, slow", 6, 32, 1, 3, true},
    {"UD 8 x 16, K = 4, slow", 8, 16, 1, 4, true},
    {"UD 8 x 16, K = 8, slow", 8, 16, 1, 8, true},
    {"UD 8 x 32, K = 4, slow", 8, 32, 1, 4, true},
    {"UD 8 x 32, K = 8, slow", 8, 32, 1, 8, true},
    {"UD 8 x 32, K = 10, slow", 8, 32, 1, 10, true},
    {"UD 8 x 64, K = 4, slow", 8, 64, 1, 4, true},
    {"UD 8 x 64, K = 8, slow", 8, 64, 1, 8, true},
    {"UD 8 x 64, K = 10, slow", 8, 64, 1, 10, true},
    {"UD 16 x 32, K = 8, slow", 16, 32, 1, 8, true},
    {"UD 16 x 32, K = 16, slow", 16, 32, 1, 16, true},
    {"UD 16 x 32, K = 18, slow", 16, 32, 1, 18, true},
    {"Wave 4 x 16, K = 4, slow", 4, 16, 2, 4, true},
    {"Wave 6 x 12, K = 6, slow", 6, 12, 2, 6, true},
    {"Wave 8 x 16, K = 8, slow", 8, 16, 2, 8, true},
    {"Wave 8 x 16, K = 16, slow", 8, 16, 2, 16, true},
    {"Wave 8 x 32, K = 32, slow", 8, 32, 2, 32, true},
};

const size_t bench_n_families = sizeof bench_families / sizeof *bench_families;

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Draws a duration around `ms` per device, for one of its chunks. */
static int64_t draw_time(uint64_t *state, int64_t ms, uint32_t chunks)
{
    int64_t least = ms * 3 / 4, most = ms * 5 / 4;
    int64_t drawn =
        least + (int64_t)(draw(state) % (uint64_t)(most - least + 1));
    return drawn * 1000000 / chunks;
}

static int64_t draw_delay(uint64_t *state)
{
    static const int64_t delays[] = {0, 9500000, 76000000};
    return delays[draw(state) % 3];
}

/* Returns a device's site: adjacent devices, equally many per site or one
 * more. */
static uint32_t site_of(const bench_family *k, uint32_t sites, uint32_t device)
{
    return device * sites / k->devices;
}

lh_pipeline *bench_irregular(const bench_family *k, uint64_t seed)
{
    enum { MOST = 16 };
    lh_chunk chunks[2 * MOST] = {0};
    lh_link links[2 * MOST] = {0};
    int64_t limits[MOST];
    uint32_t n_chunks = k->devices * k->chunks, n_links = 0;
    for (uint32_t c = 0; c < n_chunks; c++) {
        uint32_t turn = c < k->devices ? c : 2 * k->devices - 1 - c;
        chunks[c] = (lh_chunk){.device = turn,
                               .f_ns = draw_time(&seed, 38, k->chunks),
                               .d_ns = draw_time(&seed, 48, k->chunks),
                               .w_ns = draw_time(&seed, 20, k->chunks),
                               .mem_f = 1,
                               .mem_w = -1};
    }
    for (uint32_t d = 0; d < k->devices; d++)
        limits[d] = k->memory;
    const uint32_t sites = k->slow ? 2 + 2 * (uint32_t)(draw(&seed) % 2) : 0;
    for (uint32_t d = 0; d + 1 < k->devices; d++)
        for (uint32_t back = 0; back < 2; back++) {
            if (k->slow && site_of(k, sites, d) == site_of(k, sites, d + 1))
                continue;
            links[n_links++] = (lh_link){.from = d + back,
                                         .to = d + 1 - back,
                                         .latency_ns = draw_delay(&seed),
                                         .transfer_ns = draw_delay(&seed)};
        }
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = k->devices,
                             .n_microbatches = k->microbatches,
                             .n_chunks = n_chunks,
                             .chunks = chunks,
                             .n_links = n_links,
                             .links = links,
                             .memory_limits = limits};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    bench_check_status(lh_pipeline_make(&desc, &p, &err), &err);
    return p;
}

lh_pipeline *bench_uniform(const bench_point *q)
{
    char text[1024], limit[64] = "";
    lh_error err = {0};
    lh_pipeline *p = NULL;
    if (q->memory)
        snprintf(limit, sizeof limit, "memory_limit: %u\n", q->memory);
    snprintf(text, sizeof text,
             "longhaul: pipeline/1\n"
             "time_unit: ms\n"
             "microbatches: %u\n"
             "devices: %u\n"
             "uniform: {placement: %s, F: 38, D: %d, W: 20, "
             "memory: {F: 1, D: 0, W: -1}}\n"
             "datacenters: {count: %u, latency: %g, transfer: %g}\n%s",
             q->microbatches, q->devices, q->placement, q->recomputes ? 86 : 48,
             q->datacenters, 38 * q->latency, 38 * q->transfer, limit);
    bench_check_status(
        lh_pipeline_parse(text, strlen(text), "uniform", &p, &err), &err);
    return p;
}
