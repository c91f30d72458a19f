/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the optical network simulation's speed.
 *
 *     optical TOPOLOGY.yaml [RUNS]
 *
 * traffic: plain background traffic, 150 Erlang, 1 to 8 of 80 slots, first fit
 * on 5 candidate routes, on one core. For comparison, the requests per second
 * that other simulators publish for one core (their papers, their machines):
 * Flex Net Sim 20,000, XLRON 15,000, FUSION 100.
 *
 * study: 2 jobs x 2 schedules x 4 micro-batch counts x 4 policies x 5 seeds x
 * 11 iterations with that traffic, on all cores. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"

#include <longhaul/experimental/optical.h>

enum { MAX_RUNS = 101, REQUESTS = 1000000 };

typedef struct timing {
    double wall[MAX_RUNS], cpu[MAX_RUNS];
} timing;

static void check_status(lh_status status, const lh_error *err)
{
    if (status != LH_OK)
        bench_die(err);
}

static double cpu_now(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static lh_traffic_result traffic(const lh_topology *topology, timing *t,
                                 int runs)
{
    lh_error err = {0};
    lh_traffic_result result = {0};
    lh_traffic load = {.size = sizeof load,
                       .erlang = 150,
                       .holding_s = 1,
                       .slots_min = 1,
                       .slots_max = 8,
                       .slots = 80,
                       .k = 5};
    for (int i = 0; i < runs; i++) {
        double wall = bench_now(), cpu = cpu_now();
        check_status(
            lh_traffic_run(topology, &load, 1, 0, REQUESTS, &result, &err),
            &err);
        t->wall[i] = bench_now() - wall;
        t->cpu[i] = cpu_now() - cpu;
    }
    return result;
}

static void one_case(const char *topology, const char *model,
                     const char *schedule, int microbatches)
{
    char text[1024];
    lh_error err = {0};
    lh_scenario *scenario = NULL;
    lh_optical *result = NULL;
    int n = snprintf(text, sizeof text,
                     "longhaul: optical/1\ntopology: %s\n"
                     "job: {preset: %s, stages: 8, datacenters: 6, "
                     "schedule: %s, microbatches: %d}\n"
                     "background: {erlang: 150}\n"
                     "policies:\n  sd-ff: {}\n  ksp-ff: {}\n  cba: {}\n"
                     "  cba-ladder: {policy: cba, ladder: true}\n",
                     topology, model, schedule, microbatches);
    check_status(lh_scenario_parse(text, (size_t)n, "study", &scenario, &err),
                 &err);
    check_status(lh_optical_run_all(scenario, NULL, &result, &err), &err);
    lh_optical_free(result);
    lh_scenario_free(scenario);
}

static void study(const char *topology, timing *t, int runs)
{
    static const char *const models[] = {"8b", "70b"};
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int i = 0; i < runs; i++) {
        double wall = bench_now(), cpu = cpu_now();
        for (int m = 0; m < 2; m++)
            for (int s = 0; s < 2; s++)
                for (int n = 16; n <= 128; n *= 2)
                    one_case(topology, models[m], schedules[s], n);
        t->wall[i] = bench_now() - wall;
        t->cpu[i] = cpu_now() - cpu;
    }
}

static void print_timing(const char *name, timing *t, int runs)
{
    double wall = bench_median(t->wall, runs), cpu = bench_median(t->cpu, runs);
    printf("  \"%s\": {\"best_s\": %.4f, \"median_s\": %.4f, "
           "\"best_cpu_s\": %.4f, \"median_cpu_s\": %.4f",
           name, t->wall[0], wall, t->cpu[0], cpu);
}

int main(int argc, char **argv)
{
    timing t;
    lh_error err = {0};
    lh_topology *topology = NULL;
    int runs = argc > 2 ? atoi(argv[2]) : 5;
    if (argc < 2 || runs < 1 || runs > MAX_RUNS) {
        fprintf(stderr, "usage: optical TOPOLOGY.yaml [RUNS of 1..%d]\n",
                MAX_RUNS);
        return 2;
    }
    check_status(lh_topology_read(argv[1], &topology, &err), &err);
    lh_traffic_result result = traffic(topology, &t, runs);
    bench_begin("optical");
    printf(", \"runs\": %d,\n", runs);
    print_timing("traffic", &t, runs);
    printf(", \"requests\": %d, \"requests_per_s\": %.0f, "
           "\"requests_per_cpu_s\": %.0f, \"blocking_probability\": %.6f},\n",
           REQUESTS, REQUESTS / t.wall[0], REQUESTS / t.cpu[0],
           (double)result.refused / (double)result.requests);
    printf("  \"published_requests_per_s\": {\"Flex Net Sim\": 20000, "
           "\"XLRON\": 15000, \"FUSION\": 100},\n");
    study(argv[1], &t, runs);
    print_timing("study", &t, runs);
    printf("}}\n");
    lh_topology_free(topology);
    return 0;
}
