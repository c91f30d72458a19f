/* SPDX-License-Identifier: Apache-2.0 */
/* Measures schedule generation as a whole process: reads the pipeline, builds
 * the schedule, writes its CSV. Prints one JSON object.
 *
 *     greedy [RUNS]                    the project's reference series:
 *                                      greedy, 64 devices, 4 sub-blocks
 *     greedy RUNS METHOD PLACEMENT DEVICES MICROBATCHES SUB_BLOCKS
 *                                      one case
 *
 * Each run is a fresh process; times and memory come from the kernel's
 * accounting. */
#define _GNU_SOURCE /* wait4 */
#include "commit.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/status.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RUNS = 1000 };

/* Benchmark case: method, placement and size. */
typedef struct bench_case {
    const char *method, *placement;
    unsigned devices, microbatches, sub_blocks;
} bench_case;

/* The runs' times and peak memory. */
typedef struct outcome {
    double best_s, median_s; /* wall clock */
    double cpu_s;            /* minimum user plus system time */
    double peak_mb;
} outcome;

static void fail(const char *what)
{
    fprintf(stderr, "greedy: %s\n", what);
    exit(1);
}

static void check_status(lh_status status, const lh_error *err)
{
    if (status != LH_OK)
        fail(err->text);
}

/* Runs the measured process. */
static int child(char **args)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_method_options options = {.size = sizeof options,
                                 .sub_blocks =
                                     (uint32_t)strtoul(args[2], NULL, 10)};
    check_status(lh_pipeline_read(args[0], &p, &err), &err);
    check_status(lh_method_run(args[1], p, &options, &s, NULL, &err), &err);
    check_status(lh_schedule_write(s, args[3], &err), &err);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return 0;
}

static void write_pipeline(const char *path, const bench_case *c)
{
    char text[1024];
    bool one = strcmp(c->placement, "ud") == 0;
    int n = snprintf(text, sizeof text,
                     "longhaul: pipeline/1\n"
                     "time_unit: ms\n"
                     "microbatches: %u\n"
                     "devices: %u\n"
                     "uniform: {placement: %s, chunks_per_device: %d, F: 38, "
                     "D: 48, W: 20, memory: {F: 1, D: 0, W: -1}}\n"
                     "datacenters: {count: 2, latency: 38, transfer: 9.5}\n"
                     "memory_limit: %u\n",
                     c->microbatches, c->devices, c->placement, one ? 1 : 2,
                     c->devices * (one ? 1 : 2));
    lh_error err = {0};
    check_status(lh_file_write(path, text, (size_t)n, &err), &err);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static double run_once(const bench_case *c, const char *in, const char *out,
                       outcome *o)
{
    char parts[16];
    snprintf(parts, sizeof parts, "%u", c->sub_blocks);
    double start = seconds_now();
    pid_t pid = fork();
    if (pid < 0)
        fail("cannot start a process");
    if (pid == 0) {
        execl("/proc/self/exe", "greedy", "--child", in, c->method, parts, out,
              (char *)NULL);
        _exit(127);
    }
    int status;
    struct rusage use;
    if (wait4(pid, &status, 0, &use) != pid || status != 0)
        fail("a measured run failed");
    double wall = seconds_now() - start;
    double mb = (double)use.ru_maxrss / 1024;
    o->peak_mb = mb > o->peak_mb ? mb : o->peak_mb;
    double cpu = seconds_of(use.ru_utime) + seconds_of(use.ru_stime);
    o->cpu_s = o->cpu_s == 0 || cpu < o->cpu_s ? cpu : o->cpu_s;
    return wall;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static outcome measure(const bench_case *c, unsigned runs, const char *folder)
{
    char in[256], out[256];
    double times[MAX_RUNS];
    outcome o = {0};
    snprintf(in, sizeof in, "%s/pipeline.yaml", folder);
    snprintf(out, sizeof out, "%s/schedule.csv", folder);
    write_pipeline(in, c);
    for (unsigned i = 0; i < runs; i++)
        times[i] = run_once(c, in, out, &o);
    qsort(times, runs, sizeof *times, compare);
    o.best_s = times[0];
    o.median_s = times[runs / 2];
    remove(in);
    remove(out);
    return o;
}

static void print_row(const bench_case *c, const outcome *o, bool last)
{
    unsigned chunks = c->devices * (strcmp(c->placement, "ud") == 0 ? 1 : 2);
    bool cut = strcmp(c->method, "greedy") == 0;
    printf("    {\"method\": \"%s\", \"placement\": \"%s\", \"devices\": %u, "
           "\"microbatches\": %u, \"sub_blocks\": %u, \"passes\": %u, "
           "\"best_s\": %.6f, \"median_s\": %.6f, \"cpu_s\": %.6f, "
           "\"peak_mb\": %.1f}%s\n",
           c->method, c->placement, c->devices, c->microbatches, c->sub_blocks,
           chunks * c->microbatches * (2 + (cut ? c->sub_blocks : 1)),
           o->best_s, o->median_s, o->cpu_s, o->peak_mb, last ? "" : ",");
}

static void machine(char *name, size_t size)
{
    snprintf(name, size, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !value)
            continue;
        snprintf(name, size, "%.*s", (int)strcspn(value + 2, "\"\\\n"),
                 value + 2);
        break;
    }
    if (f)
        fclose(f);
}

static void print_head(unsigned runs)
{
    char name[128];
    machine(name, sizeof name);
    printf("{\n  \"bench\": \"greedy\",\n  \"version\": \"%s\",\n"
           "  \"commit\": \"%s\",\n  \"machine\": \"%s\",\n  \"runs\": %u,\n"
           "  \"rows\": [\n",
           lh_version(), BENCH_COMMIT, name, runs);
}

/* Doubling the microbatches should double the processor time. Wall-clock time
 * also depends on disk load. */
static void run_series(unsigned runs, const char *folder)
{
    static const unsigned microbatches[] = {256, 512, 1024, 2048};
    outcome o[4];
    print_head(runs);
    for (unsigned i = 0; i < 4; i++) {
        bench_case c = {"greedy", "ud", 64, microbatches[i], 4};
        o[i] = measure(&c, runs, folder);
        print_row(&c, &o[i], i == 3);
    }
    double growth = o[3].cpu_s / o[2].cpu_s / 2;
    printf("  ],\n  \"seconds_limit\": 1.0,\n  \"mb_limit\": 500,\n"
           "  \"growth_per_doubling\": %.3f,\n  \"growth_limit\": 1.2,\n"
           "  \"met\": %s\n}\n",
           growth,
           o[2].median_s <= 1 && o[2].peak_mb <= 500 && growth <= 1.2
               ? "true"
               : "false");
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--child") == 0)
        return child(argv + 2);
    unsigned runs = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 5;
    if (runs < 1 || runs > MAX_RUNS || (argc > 2 && argc != 7)) {
        fprintf(stderr, "usage: greedy [RUNS [METHOD PLACEMENT DEVICES "
                        "MICROBATCHES SUB_BLOCKS]]\n");
        return 2;
    }
    char folder[] = "/tmp/longhaul-bench-XXXXXX";
    if (!mkdtemp(folder))
        fail("cannot make a temporary folder");
    if (argc == 7) {
        bench_case c = {argv[2], argv[3], (unsigned)strtoul(argv[4], NULL, 10),
                        (unsigned)strtoul(argv[5], NULL, 10),
                        (unsigned)strtoul(argv[6], NULL, 10)};
        print_head(runs);
        outcome o = measure(&c, runs, folder);
        print_row(&c, &o, true);
        printf("  ]\n}\n");
    } else {
        run_series(runs, folder);
    }
    rmdir(folder);
    return 0;
}
