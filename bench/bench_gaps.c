/* SPDX-License-Identifier: Apache-2.0 */
/* Measures named scheduling methods' optimality gaps for a grid of
 * delays and memory limits: docs/theory/gaps.md.
 *
 *     bench-gaps ud|wave|loop DEVICES MICROBATCHES [LIMIT]
 *
 * Prints one JSON object. `bound` is a proven lower bound; where "status" is
 * "optimal" it equals the minimum makespan. A method that violates the memory
 * limit or does not support the placement is null. LIMIT: seconds for each
 * point's proof (default 10). */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"
#include "pipelines.h"

#include <longhaul.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/solve.h>

#include <inttypes.h>

static const char *const ud_methods[] = {
    "gpipe", "1f1b", "zb-h1", "zb-h2", "slack", "greedy", "look-ahead"};
static const char *const chunk_methods[] = {
    "gpipe", "interleaved-1f1b", "zb-v", "slack", "greedy", "look-ahead"};

/* Returns the makespan, or -1 if the method does not support the pipeline. */
static int64_t makespan_by(const lh_pipeline *p, const char *method)
{
    lh_error err = {0};
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_status status = lh_method_run(method, p, NULL, &s, NULL, &err);
    if (status == LH_EINFEASIBLE || status == LH_EUNSUPPORTED)
        return -1;
    bench_check_status(status, &err);
    bench_check_status(lh_simulate(p, s, NULL, &t, &err), &err);
    int64_t ns = lh_timeline_makespan(t);
    lh_timeline_free(t);
    lh_schedule_free(s);
    return ns;
}

static void print_point(const bench_point *q, double limit_s, bool first)
{
    lh_pipeline *p = bench_uniform(q);
    lh_solve_options o = {.size = sizeof o, .time_limit_s = limit_s};
    lh_solution s = {0};
    lh_error err = {0};
    bench_check_status(lh_solve(p, &o, &s, &err), &err);
    printf("%s\n  {\"memory\": %u, \"datacenters\": %u, \"latency\": %g, "
           "\"transfer\": %g, \"status\": \"%s\", \"best_ns\": %" PRId64
           ", \"bound_ns\": %" PRId64 ", \"seconds\": %.3f, \"methods\": {",
           first ? "" : ",", q->memory, q->datacenters, q->latency, q->transfer,
           lh_solve_status_name(s.status), s.makespan_ns, s.bound_ns,
           s.seconds);
    bool ud = strcmp(q->placement, "ud") == 0;
    const char *const *methods = ud ? ud_methods : chunk_methods;
    size_t n = ud ? sizeof ud_methods / sizeof *ud_methods
                  : sizeof chunk_methods / sizeof *chunk_methods;
    for (size_t i = 0; i < n; i++) {
        int64_t ns = makespan_by(p, methods[i]);
        printf("%s\"%s\": ", i ? ", " : "", methods[i]);
        if (ns < 0)
            printf("null");
        else
            printf("%" PRId64, ns);
    }
    printf("}}");
    fflush(stdout);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    static const double delays[][2] = {{0, 0}, {.25, .25}, {1, .25}, {.25, 1},
                                       {1, 1}, {2, .25},   {.25, 2}, {2, 2}};
    if (argc < 4) {
        fprintf(
            stderr,
            "usage: bench-gaps ud|wave|loop DEVICES MICROBATCHES [LIMIT]\n");
        return 2;
    }
    bench_point q = {.placement = argv[1],
                     .devices = (unsigned)strtoul(argv[2], NULL, 10),
                     .microbatches = (unsigned)strtoul(argv[3], NULL, 10),
                     .datacenters = 2};
    double limit_s = argc > 4 ? strtod(argv[4], NULL) : 10;
    unsigned each = strcmp(q.placement, "ud") == 0 ? 1 : 2;
    /* In activations per chunk: half, all, and one and a half times 1F1B's
     * peak, and no limit. */
    unsigned limits[] = {q.devices * each / 2, q.devices * each,
                         q.devices * each * 3 / 2, 0};
    bench_begin("gaps");
    printf(", \"placement\": \"%s\", \"devices\": %u, \"microbatches\": %u, "
           "\"points\": [",
           q.placement, q.devices, q.microbatches);
    for (size_t m = 0; m < sizeof limits / sizeof *limits; m++)
        for (size_t d = 0; d < sizeof delays / sizeof *delays; d++) {
            q.memory = limits[m];
            q.latency = delays[d][0];
            q.transfer = delays[d][1];
            print_point(&q, limit_s, m + d == 0);
        }
    printf("\n]}\n");
    return 0;
}
