/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the planner's search with Monte Carlo and with exhaustive
 * enumeration.
 *
 *     bench-sampling SEEDS [JOB...]
 *
 * Each seed draws a small job on two sites and enumerates all its layouts:
 * every degree (also with fewer GPUs than available), microbatch, chunks per
 * device, recomputation, outermost placement and method, and for each every
 * layer partition over its chunks. For these jobs and for every JOB the
 * planner runs three times: with its own search, with that and optimal
 * schedules, and with Monte Carlo under ScaleAcross Explorer's budget (2026,
 * section 5). Small jobs also run `--search exact`. Prints one JSON object;
 * gaps refer to the fastest plan found by any of them without optimal
 * schedules, times are processor time. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>

enum { GPUS_PER_NODE = 2, LARGEST_RATIO = 3 };

/* Best plan found by one search. */
typedef struct found {
    double iteration_s; /* 0: no layout fits */
    double cpu_s;
    uint32_t n_plans; /* plans evaluated */
    char layout[128]; /* the fastest plan's layout */
    lh_error why;
} found;

/* All searches' results on one job. */
typedef struct row {
    char name[64];
    uint32_t gpus;
    bool enumerated;
    found search, optimal, sampled, exact, all;
} row;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void describe(const lh_choice *c, char *text, size_t size)
{
    snprintf(text, size,
             "t%u p%u d%u m%u %u chunks %s %s, recompute %s, %s outermost%s",
             c->layout.tensor, c->layout.pipeline, c->layout.data,
             c->layout.micro_batch, c->layout.chunks_per_device,
             lh_placement_name(c->placement), c->layout.schedule,
             lh_recompute_name(c->recompute),
             lh_outermost_name(c->layout.outermost),
             c->chunk_layers ? ", uneven" : "");
}

static void plan(const lh_job *job, const lh_plan_options *options, found *out)
{
    lh_plan *made = NULL;
    double begin = cpu_now();
    lh_status status = lh_plan_make(job, options, &made, &out->why);
    out->cpu_s += cpu_now() - begin;
    out->n_plans++;
    if (status == LH_ENOMEM)
        bench_die(&out->why);
    if (status != LH_OK)
        return; /* no layout fits or divides evenly */
    double s = (double)made->best.iteration_ns / 1e9;
    if (out->iteration_s <= 0 || s < out->iteration_s) {
        out->iteration_s = s;
        describe(&made->best, out->layout, sizeof out->layout);
    }
    lh_plan_free(made);
}

/* --- enumeration -------------------------------------------------------- */

/* Evaluates all methods, and thus all partitions under each, for a layout. */
static void plan_methods(const lh_job *job, found *out)
{
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .top = 1,
                         .max_chunk_ratio = LARGEST_RATIO,
                         .partition = LH_PARTITION_EXACT};
    for (uint32_t m = 0; m < lh_n_methods(); m++) {
        lh_job one = *job;
        one.layout.schedule = lh_method_name(m);
        if (!lh_method_is_auto(one.layout.schedule))
            plan(&one, &o, out);
    }
}

static void plan_layouts(const lh_job *job, found *out)
{
    static const uint32_t chunks[] = {1, 2, 4};
    lh_job one = *job;
    one.training.recompute_given = true;
    for (int c = 0; c < 3; c++)
        for (int r = LH_RECOMPUTE_NONE; r <= LH_RECOMPUTE_FULL; r++)
            for (int o = LH_OUTERMOST_PIPELINE; o <= LH_OUTERMOST_DATA; o++) {
                one.layout.chunks_per_device = chunks[c];
                one.training.recompute = (lh_recompute)r;
                one.layout.outermost = (lh_outermost)o;
                plan_methods(&one, out);
            }
}

static void plan_all(const lh_job *job, found *out)
{
    lh_job one = *job;
    uint32_t batch = job->training.global_batch;
    for (uint32_t t = 1; t <= GPUS_PER_NODE; t *= 2)
        for (uint32_t p = 1; t * p <= job->n_gpus; p++)
            for (uint32_t d = 1; t * p * d <= job->n_gpus; d++)
                for (uint32_t m = 1; m <= 8; m *= 2) {
                    if (batch % (d * m) != 0 || p > job->model->layers)
                        continue;
                    one.layout = (lh_layout){.tensor = t,
                                             .pipeline = p,
                                             .data = d,
                                             .micro_batch = m};
                    plan_layouts(&one, out);
                }
}

/* --- jobs --------------------------------------------------------------- */

static uint32_t draw(uint64_t *state, uint32_t from, uint32_t to)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return from + (uint32_t)((z ^ (z >> 31)) % (to - from + 1));
}

static lh_job *small_job(uint64_t seed)
{
    char text[1024];
    uint64_t r = seed;
    lh_error err = {0};
    lh_job *job = NULL;
    uint32_t layers = draw(&r, 4, 7), batch = 4 * draw(&r, 1, 3);
    uint32_t hidden = 1024 * draw(&r, 2, 6);
    uint32_t latency = draw(&r, 1, 60), gbps = draw(&r, 4, 60);
    /* 1.2 to 3 times the evenly spread training state, with 16 bytes for each
     * of the 16 h^2 parameters per layer, plus working memory. */
    double state = 256.0 * hidden * hidden * layers / 4;
    double memory = 3 + state / (1 << 30) * draw(&r, 12, 30) / 10;
    int n = snprintf(
        text, sizeof text,
        "longhaul: job/1\n"
        "model: {layers: %u, hidden: %u, ffn: %u, heads: 16, vocab: 32000}\n"
        "training: {global_batch: %u, sequence: 2048, zero: 1}\n"
        "cluster:\n"
        "  gpu: {tflops: 312, memory_gib: %.2f, memory_gbps: 2039}\n"
        "  gpus_per_node: %d\n"
        "  node_link: {gbps: 2400, latency_us: 3}\n"
        "  fabric: {gbps: 100, latency_us: 5}\n"
        "  datacenters: [{name: a, nodes: 1}, {name: b, nodes: 1}]\n"
        "  links: [{between: [a, b], latency_ms: %u, gbps: %u}]\n",
        layers, hidden, 4 * hidden, batch, memory, GPUS_PER_NODE, latency,
        gbps);
    if (lh_job_parse(text, (size_t)n, "small", NULL, &job, &err) != LH_OK)
        bench_die(&err);
    return job;
}

static void measure(const lh_job *job, row *r)
{
    lh_plan_options o = {.size = sizeof o, .max_chunk_ratio = LARGEST_RATIO};
    r->gpus = job->n_gpus;
    plan(job, &o, &r->optimal);
    o.no_optimal = true;
    plan(job, &o, &r->search);
    o.partition = LH_PARTITION_MONTE_CARLO;
    plan(job, &o, &r->sampled);
    if (!r->enumerated)
        return;
    o.partition = LH_PARTITION_EXACT;
    plan(job, &o, &r->exact);
    plan_all(job, &r->all);
}

/* --- results ------------------------------------------------------------ */

static void print_found(const char *name, const found *f, double best)
{
    printf(", \"%s\": {", name);
    if (f->iteration_s > 0)
        printf("\"iteration_s\": %.9f, \"gap\": %.6f, \"layout\": \"%s\", ",
               f->iteration_s, f->iteration_s / best - 1, f->layout);
    printf("\"cpu_seconds\": %.3f, \"plans\": %u}", f->cpu_s, f->n_plans);
}

static void update_best(const found *f, double *best)
{
    if (f->iteration_s > 0 && (*best <= 0 || f->iteration_s < *best))
        *best = f->iteration_s;
}

static void print_row(const row *r, bool first)
{
    double best = 0;
    update_best(&r->search, &best);
    update_best(&r->sampled, &best);
    update_best(&r->exact, &best);
    update_best(&r->all, &best);
    printf("%s\n {\"job\": \"%s\", \"gpus\": %u", first ? "" : ",", r->name,
           r->gpus);
    if (best <= 0)
        printf(", \"why\": \"nothing fits\"");
    print_found("search", &r->search, best);
    print_found("with_optimal", &r->optimal, best);
    print_found("monte_carlo", &r->sampled, best);
    if (r->enumerated) {
        print_found("exact", &r->exact, best);
        print_found("enumerated", &r->all, best);
    }
    printf("}");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench-sampling SEEDS [JOB...]\n");
        return 2;
    }
    long seeds = strtol(argv[1], NULL, 10);
    bench_begin("sampling");
    printf(", \"rows\": [");
    for (long i = 0; i < seeds + argc - 2; i++) {
        row r = {.enumerated = i < seeds};
        lh_job *job = NULL;
        lh_error err = {0};
        if (r.enumerated) {
            job = small_job((uint64_t)i + 1);
            snprintf(r.name, sizeof r.name, "small %ld", i + 1);
        } else {
            const char *path = argv[2 + i - seeds];
            const char *slash = strrchr(path, '/');
            if (lh_job_read(path, &job, &err) != LH_OK)
                bench_die(&err);
            snprintf(r.name, sizeof r.name, "%s", slash ? slash + 1 : path);
        }
        measure(job, &r);
        print_row(&r, i == 0);
        lh_job_free(job);
    }
    printf("]}\n");
    return 0;
}
