/* SPDX-License-Identifier: Apache-2.0 */
/* Solves one pipeline and records its convergence, for bench/optimal.py.
 *
 *     bench-optimal PIPELINE [LIMIT [THREADS [SCHEDULE.csv [MIB]]]]
 *
 * LIMIT is in seconds of processor time per thread (default 60), so that a busy
 * machine does not change the result. MIB is the memory for tables (default
 * 1024). Prints one JSON object; "progress" is a list with [processor seconds,
 * makespan in ns, bound in ns], sampled ten times a second. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"

#include <longhaul/experimental/solve.h>

#include <inttypes.h>

/* Progress samples recorded so far. */
typedef struct watch {
    double begin_cpu_s, limit_s;
    int64_t best_ns, bound_ns;
    FILE *progress;
} watch;

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void add_sample(watch *w, int64_t best_ns, int64_t bound_ns)
{
    if (best_ns == w->best_ns && bound_ns == w->bound_ns)
        return;
    fprintf(w->progress, "%s[%.4f, %" PRId64 ", %" PRId64 "]",
            ftell(w->progress) ? ", " : "", cpu_now() - w->begin_cpu_s, best_ns,
            bound_ns);
    w->best_ns = best_ns;
    w->bound_ns = bound_ns;
}

static bool sample_progress(void *context, const lh_solve_progress *now)
{
    watch *w = context;
    add_sample(w, now->best_ns, now->bound_ns);
    return cpu_now() - w->begin_cpu_s >= w->limit_s;
}

static void check_status(lh_status status, const lh_error *err)
{
    if (status != LH_OK)
        bench_die(err);
}

static void print(const lh_solution *s, const watch *w, double cpu_s)
{
    bench_begin("optimal");
    printf(", \"status\": \"%s\", \"best_ns\": %" PRId64
           ", \"bound_ns\": %" PRId64 ", \"seconds\": %.4f, "
           "\"cpu_seconds\": %.4f, \"found_by\": \"%s\", "
           "\"proven_by\": \"%s\", \"progress\": [",
           lh_solve_status_name(s->status), s->makespan_ns, s->bound_ns,
           s->seconds, cpu_s, s->found_by, s->proven_by);
    char line[512];
    rewind(w->progress);
    while (fgets(line, sizeof line, w->progress))
        fputs(line, stdout);
    printf("]}\n");
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 6) {
        fprintf(stderr, "usage: bench-optimal PIPELINE [LIMIT [THREADS "
                        "[SCHEDULE.csv [MIB]]]]\n");
        return 2;
    }
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_solution s = {0};
    watch w = {.limit_s = argc > 2 ? strtod(argv[2], NULL) : 60,
               .best_ns = -1,
               .bound_ns = -1,
               .progress = tmpfile()};
    lh_solve_options o = {
        .size = sizeof o, .progress = sample_progress, .context = &w};
    o.threads = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
    o.memory = argc > 5 ? (size_t)strtoul(argv[5], NULL, 10) << 20 : 0;
    w.limit_s *= o.threads ? o.threads : 1;
    if (!w.progress) {
        fprintf(stderr, "bench: cannot make a temporary file\n");
        return 1;
    }
    check_status(lh_pipeline_read(argv[1], &p, &err), &err);
    w.begin_cpu_s = cpu_now();
    check_status(lh_solve(p, &o, &s, &err), &err);
    double cpu_s = cpu_now() - w.begin_cpu_s;
    add_sample(&w, s.makespan_ns, s.bound_ns);
    print(&s, &w, cpu_s);
    if (argc > 4 && s.schedule)
        check_status(lh_schedule_write(s.schedule, argv[4], &err), &err);
    fclose(w.progress);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
    return 0;
}
