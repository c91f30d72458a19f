/* SPDX-License-Identifier: Apache-2.0 */
/* Computes figures 5 and 23 to 26 of ScaleAcross Explorer (2026): the best plan
 * of a search compared with the production layout and with the layouts
 * available to Sailor's planner. */
#include "scaleacross.h"

#include <math.h>
#include <stdio.h>

/* Sailor's search space in section 6.3: pipelines cross buildings, one chunk
 * per stage, 1F1B. */
static const char sailor[] =
    "outermost: pipeline, chunks_per_device: 1, schedule: 1f1b";
/* On 100,000 GPUs it also lacks context parallelism. */
static const char sailor_100k[] =
    "outermost: pipeline, chunks_per_device: 1, schedule: 1f1b, context: 1";

/* The three planners' iteration times. */
typedef struct found {
    double production, best, sailor; /* seconds */
} found;

static found find(const workload *w, const topology *on, double over,
                  double latency_us, const char *others)
{
    crossing c = {.outermost = DATA_OUT,
                  .oversubscription = over,
                  .latency_us = latency_us};

    return (found){.production = across_seconds(w, on, &c, "dorapp"),
                   .best = across_best_seconds(w, on, &c, NULL),
                   .sailor = across_best_seconds(w, on, &c, others)};
}

static void add(across_add_value how, void *to, const char *figure,
                const char *what, double at, double value)
{
    char key[64];

    snprintf(key, sizeof key, "%s %s %g", figure, what, at);
    how(to, key, value);
}

/* Adds the rows for 64 GPUs per building. */
static void add_testbed(across_add_value how, void *to, const char *figure,
                        const workload *w, double least)
{
    for (int far = 0; far < 2; far++) {
        double over = far ? 16 : least;
        found f = find(w, NULL, over, 50, sailor);

        over = round(over);
        add(how, to, figure, "production by best 1:", over,
            f.production / f.best);
        add(how, to, figure, "production by sailor 1:", over,
            f.production / f.sailor);
        add(how, to, figure, "sailor by best 1:", over, f.sailor / f.best);
    }
}

/* Adds figure 5 with the best plan under either placement, each with its own
 * degrees, chunks and schedule. */
static void add_batches(across_add_value how, void *to)
{
    static const uint32_t batches[] = {2, 11, 44};
    const crossing c = {.oversubscription = 16, .latency_us = 50};

    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        const workload w = across_dense_17b(batches[i]);

        add(how, to, "5", "best microbatches", batches[i],
            across_best_seconds(&w, NULL, &c, "outermost: pipeline") /
                across_best_seconds(&w, NULL, &c, "outermost: data"));
    }
}

static void add_100k(across_add_value how, void *to)
{
    topology whole = *across_topology("A1");
    workload w = across_100k(&whole);

    whole.zones = 1; /* links between zones play no role here */
    for (int far = 0; far < 2; far++) {
        double us = far ? 1000 : 50;
        found f = find(&w, &whole, 3, us, sailor_100k);

        add(how, to, "25", "production by best us", us, f.production / f.best);
        add(how, to, "26", "sailor by best us", us, f.sailor / f.best);
    }
}

void across_print_batches(FILE *to)
{
    static const uint32_t microbatches[] = {1, 2, 4, 11};

    fputs("| batch | production, s | best found, s | Sailor's choice, s | "
          "production / best | Sailor's / best |\n"
          "| --- | --- | --- | --- | --- | --- |\n",
          to);
    for (size_t i = 0; i < sizeof microbatches / sizeof *microbatches; i++) {
        const workload w = across_dense_17b(microbatches[i]);
        found f = find(&w, NULL, 16, 50, sailor);

        fprintf(to, "| %u | %.3f | %.3f | %.3f | %.3f | %.3f |\n",
                microbatches[i] * w.microbatch_size * w.data, f.production,
                f.best, f.sailor, f.production / f.best, f.sailor / f.best);
    }
    fputs("| the paper, \"small\" | | | | 2.830 | 1.196 to 1.355 |\n", to);
}

void across_searches(across_add_value how, void *to)
{
    const batch_reading *batch = &across_readings_of_batch[0];
    const workload experts = across_moe_40b(128, batch->mixture);
    const workload dense = across_dense_17b(batch->dense);

    add_testbed(how, to, "23", &experts, 4.0 / 3);
    add_testbed(how, to, "24", &dense, 1);
    add_100k(how, to);
    add_batches(how, to);
}
