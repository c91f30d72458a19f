/* SPDX-License-Identifier: Apache-2.0 */
/* Measures blocking and requests per second in the setting of DeepRMSA
 * (X. Chen et al., J. Lightwave Technol. 37(16), 2019), whose program for
 * K-SP-FF and SP-FF is github.com/xiaoliangchenUCD/DeepRMSA, "K-SP-FF
 * benchmark_NSFNET.py":
 *
 *     bench-rmsa NSFNET.yaml [REQUESTS]
 *
 * 100 slots per fibre, 25 to 100 Gb/s per request, one guard slot, modulation
 * by length. There, 12 requests per time unit last 14 units, without those
 * above 28: on average 14 (1 - 2 / (e^2 - 1)) units.
 *
 * gym: the same requests in the setting of Optical RL-Gym (C. Natalino and P.
 * Monti, ICTON 2020; github.com/carlosnatalino/optical-rl-gym): both directions
 * share a fibre's slots; 12 requests per time unit last 7.5 units on average.
 * bench/peer_rmsa.py runs it beside this program.
 *
 * gsnr: the same requests with k = 5, where the modulation follows from the
 * GSNR under the current load. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include "bench.h"

#include <longhaul/experimental/optical.h>

#include <math.h>

enum { SEEDS = 10, N_CASES = 5 };

/* A setting. */
typedef struct setting {
    const char *name;
    double erlang; /* 0: DeepRMSA's */
    uint32_t k;
    bool shared_fibre, by_gsnr;
} setting;

static const setting settings[N_CASES] = {{"sp-ff", 0, 1, false, false},
                                          {"ksp-ff", 0, 5, false, false},
                                          {"gym-sp-ff", 90, 1, true, false},
                                          {"gym-ksp-ff", 90, 5, true, false},
                                          {"gsnr", 0, 5, false, true}};

int main(int argc, char **argv)
{
    const double mean = 14 * (1 - 2 / (exp(2) - 1));
    uint64_t requests = argc > 2 ? strtoull(argv[2], NULL, 10) : 10000;
    lh_error err = {0};
    lh_topology *topology = NULL;

    if (argc < 2 || requests < 1) {
        fprintf(stderr, "usage: bench-rmsa NSFNET.yaml [REQUESTS]\n");
        return 2;
    }
    if (lh_topology_read(argv[1], &topology, &err) != LH_OK)
        bench_die(&err);
    bench_begin("rmsa");
    for (int i = 0; i < N_CASES; i++) {
        const setting *s = &settings[i];
        lh_traffic load = {.size = sizeof load,
                           .erlang = s->erlang > 0 ? s->erlang : 12 * mean,
                           .holding_s = 1,
                           .slots = 100,
                           .k = s->k,
                           .shared_fibre = s->shared_fibre,
                           .gbps_min = 25,
                           .gbps_max = 100,
                           .guard_slots = 1,
                           .adaptive = !s->by_gsnr,
                           .by_gsnr = s->by_gsnr};
        double sum = 0, squares = 0, begin = (double)clock();

        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            lh_traffic_result r = {0};

            if (lh_traffic_run(topology, &load, seed, 3000, requests, &r,
                               &err) != LH_OK)
                bench_die(&err);
            double share = (double)r.refused / (double)r.requests;
            sum += share;
            squares += share * share;
        }
        double cpu = ((double)clock() - begin) / CLOCKS_PER_SEC;
        double average = sum / SEEDS;
        double sd = sqrt(fmax(0, squares / SEEDS - average * average));

        printf(",\n  \"%s\": {\"blocking_probability\": %.5f, \"ci95\": %.5f, "
               "\"requests_per_cpu_s\": %.0f}",
               s->name, average, lh_optical_half_width(sd, SEEDS),
               (double)(SEEDS * (requests + 3000)) / cpu);
    }
    printf("}\n");
    lh_topology_free(topology);
    return 0;
}
