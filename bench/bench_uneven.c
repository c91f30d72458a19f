/* SPDX-License-Identifier: Apache-2.0 */
/* How far the search gets with pipelines whose stages and links differ.
 *
 *     bench-uneven [LIMIT [CASES [FAMILIES]]]
 *
 * For every family CASES pipelines (default 3) are drawn, the same every time:
 * F, D, W between 3/4 and 5/4 of 38, 48 and 20 ms a device; latency and
 * transfer of every boundary, in both directions, 0, 9.5 or 76 ms, or, where
 * the name says "slow", of those between two or four datacenters only. Each is
 * given LIMIT seconds of processor time (default 20) on one thread. FAMILIES:
 * only those with this in their name, such as "8 x 64". Prints one
 * JSON object: per family how many were proven optimal, the largest gap that
 * was left, and the processor seconds, of all together and of the longest
 * proof. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"

#include <longhaul/solve.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct family {
    const char *name;
    uint32_t devices, microbatches;
    uint32_t chunks; /* per device; 2: in V shape */
    uint32_t memory; /* activations, of a chunk */
    bool slow;       /* only links between datacenters are */
} family;

static const family families[] = {
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

typedef struct result {
    uint32_t proven;
    double worst_gap, cpu_s, longest_proof_s;
} result;

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Around `ms` per device, for one of its chunks. */
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

/* Devices next to each other, as many in each or one more. */
static uint32_t site_of(const family *k, uint32_t sites, uint32_t device)
{
    return device * sites / k->devices;
}

static void must(lh_status status, const lh_error *err)
{
    if (status != LH_OK)
        bench_die(err);
}

static lh_pipeline *make(const family *k, uint64_t seed)
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
    must(lh_pipeline_make(&desc, &p, &err), &err);
    return p;
}

typedef struct watch {
    double begin_s, limit_s;
} watch;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool look(void *context, const lh_solve_progress *now)
{
    const watch *w = context;
    (void)now;
    return cpu_now() - w->begin_s >= w->limit_s;
}

static void measure(const family *k, uint64_t seed, double limit_s, result *out)
{
    lh_pipeline *p = make(k, seed);
    watch w = {cpu_now(), limit_s};
    lh_solve_options o = {.size = sizeof o, .progress = look, .context = &w};
    lh_solution s = {0};
    lh_error err = {0};
    must(lh_solve(p, &o, &s, &err), &err);
    double took = cpu_now() - w.begin_s;
    double gap =
        s.schedule ? (double)s.makespan_ns / (double)s.bound_ns - 1 : INFINITY;
    out->cpu_s += took;
    if (s.status == LH_SOLVE_OPTIMAL) {
        out->proven++;
        if (took > out->longest_proof_s)
            out->longest_proof_s = took;
    } else if (gap > out->worst_gap) {
        out->worst_gap = gap;
    }
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    double limit_s = argc > 1 ? strtod(argv[1], NULL) : 20;
    uint32_t cases = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 3;
    const char *which = argc > 3 ? argv[3] : "";
    const char *comma = "";
    if (argc > 4 || !(limit_s > 0) || cases == 0) {
        fprintf(stderr, "usage: bench-uneven [LIMIT [CASES [FAMILIES]]]\n");
        return 2;
    }
    bench_begin("uneven");
    printf(", \"limit_s\": %g, \"rows\": [", limit_s);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const family *k = &families[i];
        result r = {0};
        if (!strstr(k->name, which))
            continue;
        for (uint32_t c = 0; c < cases; c++)
            measure(k, 1000 * i + c, limit_s, &r);
        printf("%s\n  {\"family\": \"%s\", \"cases\": %" PRIu32
               ", \"proven\": %" PRIu32 ", \"worst_gap\": %.5f, "
               "\"cpu_seconds\": %.2f, \"longest_proof_s\": %.3f}",
               comma, k->name, cases, r.proven, r.worst_gap, r.cpu_s,
               r.longest_proof_s);
        comma = ",";
        fflush(stdout);
    }
    printf("\n]}\n");
    return 0;
}
