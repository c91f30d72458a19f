/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the solver's progress on pipelines with unequal stages and links.
 *
 *     bench-uneven [LIMIT [CASES [FAMILIES]]]
 *
 * Draws CASES pipelines (default 3) per family in pipelines.h, reproducibly.
 * Each gets LIMIT seconds of processor time (default 20) on one thread.
 * FAMILIES: only those whose name contains this text, e.g. "8 x 64". Prints one
 * JSON object per family: the number proven optimal, the largest remaining gap,
 * and the processor seconds in total and of the longest proof. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"
#include "pipelines.h"

#include <longhaul/experimental/solve.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* One family's results. */
typedef struct result {
    uint32_t proven;
    double worst_gap, cpu_s, longest_proof_s;
} result;

typedef struct watch {
    double begin_s, limit_s;
} watch;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool check_time_limit(void *context, const lh_solve_progress *now)
{
    const watch *w = context;
    (void)now;
    return cpu_now() - w->begin_s >= w->limit_s;
}

static void measure(const bench_family *k, uint64_t seed, double limit_s,
                    result *out)
{
    lh_pipeline *p = bench_irregular(k, seed);
    watch w = {cpu_now(), limit_s};
    lh_solve_options o = {
        .size = sizeof o, .progress = check_time_limit, .context = &w};
    lh_solution s = {0};
    lh_error err = {0};
    bench_check_status(lh_solve(p, &o, &s, &err), &err);
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
    for (size_t i = 0; i < bench_n_families; i++) {
        const bench_family *k = &bench_families[i];
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
