/* SPDX-License-Identifier: Apache-2.0 */
/* Measures an adaptive run's decision latency.
 *
 *     bench-decide [--json] [--seeds N]
 *
 * Draws seeded pipelines whose passes take 8 to 12 ms; one to three links
 * become slow by 10 to 60 ms. Reports, per size, memory limit and data path,
 * the resulting decision's processor time on one thread. On the direct
 * path each order is evaluated with all, no or only slow messages delegated;
 * copies take 2 ms. */
#define _DEFAULT_SOURCE
#include "bench.h"

#include <inttypes.h>
#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/methods.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST_DEVICES = 16, MOST_SEEDS = 1000, MS = 1000000 };

/* Pipeline size and memory limit. */
typedef struct setting {
    uint32_t devices, microbatches, memory; /* activations; 0: no limit */
    bool direct;
} setting;

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (uint32_t)((*state >> 33) % n);
}

static int64_t draw_pass(uint64_t *state)
{
    return (8000 + (int64_t)draw(state, 4001)) * (MS / 1000);
}

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Builds a pipeline. Links k and devices - 1 + k connect device k to the next
 * one and back. */
static lh_pipeline *make_pipeline(const setting *s, uint64_t seed,
                                  const int64_t *extra_ns)
{
    lh_chunk chunks[MOST_DEVICES];
    lh_link links[2 * MOST_DEVICES];
    int64_t memory[MOST_DEVICES];
    lh_pipeline *p;
    lh_error err;
    const uint32_t n = s->devices;
    for (uint32_t d = 0; d < n; d++) {
        chunks[d] = (lh_chunk){.device = d, .mem_f = 1, .mem_w = -1};
        chunks[d].f_ns = draw_pass(&seed);
        chunks[d].d_ns = draw_pass(&seed);
        chunks[d].w_ns = draw_pass(&seed);
        memory[d] = s->memory;
    }
    for (uint32_t d = 0; d + 1 < n; d++) {
        const int64_t ns = MS + extra_ns[d];
        links[d] = (lh_link){.from = d, .to = d + 1, .latency_ns = ns};
        links[n - 1 + d] = (lh_link){.from = d + 1, .to = d, .latency_ns = ns};
    }
    const lh_pipeline_desc desc = {.size = sizeof desc,
                                   .n_microbatches = s->microbatches,
                                   .n_devices = n,
                                   .n_chunks = n,
                                   .chunks = chunks,
                                   .n_links = 2 * (n - 1),
                                   .links = links,
                                   .memory_limits = s->memory ? memory : NULL};
    if (lh_pipeline_make(&desc, &p, &err) != LH_OK)
        bench_die(&err);
    return p;
}

static uint32_t add_slow_links(const setting *s, uint64_t seed,
                               int64_t *extra_ns, lh_monitor_event *events)
{
    const uint32_t n = 1 + draw(&seed, 3);
    uint32_t n_events = 0;
    for (uint32_t i = 0; i < n; i++)
        extra_ns[draw(&seed, s->devices - 1)] =
            (int64_t)(10 + draw(&seed, 51)) * MS;
    for (uint32_t d = 0; d + 1 < s->devices; d++)
        for (uint32_t back = 0; back < 2 && extra_ns[d]; back++)
            events[n_events++] = (lh_monitor_event){
                .target = LH_MONITOR_LINK,
                .index = d + back * (s->devices - 1),
                .baseline_ns = MS,
                .current_ns = (double)(MS + extra_ns[d]),
            };
    return n_events;
}

/* Returns the decision's processor time; *effort is its effort. */
static double decide(const setting *s, uint64_t seed, uint64_t *effort)
{
    int64_t extra_ns[MOST_DEVICES] = {0};
    lh_monitor_event events[2 * MOST_DEVICES];
    const lh_sim_options direct = {.size = sizeof direct,
                                   .coupled_queue = 1,
                                   .receives = LH_RECEIVES_LATE};
    const lh_delegation copies = {.size = sizeof copies, .staging_ns = 2 * MS};
    const lh_adapt_options o = {.size = sizeof o,
                                .sim = s->direct ? &direct : NULL,
                                .delegation = s->direct ? &copies : NULL};
    lh_schedule *schedule;
    lh_adapt *a = NULL;
    const lh_decision *d;
    lh_error err;
    lh_pipeline *quiet = make_pipeline(s, seed, extra_ns);
    const uint32_t n_events = add_slow_links(s, seed + 7, extra_ns, events);
    lh_pipeline *slow = make_pipeline(s, seed, extra_ns);
    const lh_adapt_input now = {.size = sizeof now,
                                .pipeline = slow,
                                .n_events = n_events,
                                .events = events,
                                .step = 100,
                                .steps_left = UINT64_MAX};
    if (lh_method_run("zb-h1", quiet, NULL, &schedule, NULL, &err) != LH_OK ||
        lh_adapt_make(quiet, schedule, &o, &a, &err) != LH_OK)
        bench_die(&err);
    const double from = processor_time();
    if (lh_adapt_decide(a, &now, &d, &err) != LH_OK)
        bench_die(&err);
    const double seconds = processor_time() - from;
    *effort = d->effort;
    lh_adapt_free(a);
    lh_schedule_free(schedule);
    lh_pipeline_free(slow);
    lh_pipeline_free(quiet);
    return seconds;
}

static void tell(const setting *s, int n_seeds, bool json, bool first)
{
    static double seconds[MOST_SEEDS];
    uint64_t effort, most = 0;
    for (int i = 0; i < n_seeds; i++) {
        seconds[i] = decide(s, (uint64_t)i + 1, &effort);
        most = effort > most ? effort : most;
    }
    const double median = bench_median(seconds, n_seeds); /* sorts `seconds` */
    const double worst = seconds[n_seeds - 1];
    if (json)
        printf("%s{\"devices\": %" PRIu32 ", \"microbatches\": %" PRIu32
               ", \"memory\": %" PRIu32 ", \"direct\": %s, \"median_s\": %.6f, "
               "\"worst_s\": %.6f, \"most_effort\": %" PRIu64 "}",
               first ? "" : ", ", s->devices, s->microbatches, s->memory,
               s->direct ? "true" : "false", median, worst, most);
    else
        printf("%2" PRIu32 " x %3" PRIu32 ", memory %3" PRIu32
               ", %-9s median %7.1f ms, worst %7.1f ms, at most %" PRIu64
               " units\n",
               s->devices, s->microbatches, s->memory,
               s->direct ? "direct:" : "delegated:", median * 1e3, worst * 1e3,
               most);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const uint32_t sizes[][2] = {{8, 32}, {16, 256}};
    int n_seeds = 20;
    bool json = false, first = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            n_seeds = atoi(argv[++i]);
        else
            n_seeds = 0;
    }
    if (n_seeds < 1 || n_seeds > MOST_SEEDS) {
        fprintf(stderr, "usage: bench-decide [--json] [--seeds N]\n");
        return 2;
    }
    if (json) {
        bench_begin("decide");
        printf(", \"seeds\": %d, \"rows\": [", n_seeds);
    }
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t tight = 0; tight < 3; tight++)
            for (int direct = 0; direct < 2; direct++) {
                const uint32_t n = sizes[k][0];
                const uint32_t memory[] = {0, 2 * n, n + n / 4};
                const setting s = {n, sizes[k][1], memory[tight], direct};
                tell(&s, n_seeds, json, first);
                first = false;
            }
    if (json)
        printf("]}\n");
    return 0;
}
