/* SPDX-License-Identifier: Apache-2.0 */
/* Computes figures 5 and 23 to 26 of ScaleAcross Explorer (2026): the best plan
 * of a search compared with the production layout and with the layouts
 * available to Sailor's planner. */
#include "scaleacross.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Sailor's search space in section 6.3: pipelines cross buildings, one chunk
 * per stage, 1F1B, no context parallelism. The planner keeps tensor parallelism
 * within a node unless the layout sets its degree. */
#define SAILOR                                                                 \
    "outermost: pipeline, chunks_per_device: 1, schedule: 1f1b, context: 1"

/* The production layout's iteration time, and the plans of both planners. */
typedef struct found {
    double production, best, sailor; /* seconds */
    across_plan best_plan, sailor_plan;
} found;

static crossing data_out(double over, double latency_us)
{
    return (crossing){.outermost = DATA_OUT,
                      .oversubscription = over,
                      .latency_us = latency_us};
}

static found find(const workload *w, const topology *on, double over,
                  double latency_us)
{
    const crossing c = data_out(over, latency_us);

    const across_plan best = across_best_plan(w, on, &c, NULL);
    const across_plan sailor = across_best_plan(w, on, &c, SAILOR);

    return (found){.production = across_seconds(w, on, &c, "dorapp"),
                   .best = best.seconds,
                   .sailor = sailor.seconds,
                   .best_plan = best,
                   .sailor_plan = sailor};
}

/* Returns the seconds of Sailor's best layout with tensor parallelism over 2 to
 * 16 whole nodes: "forces Sailor to use a high TP degree" (section 6.3). 128,
 * the number of attention heads, is the highest degree. */
static double find_sailor_over_nodes(const workload *w, const topology *on,
                                     double over, double latency_us)
{
    static const char *const layouts[] = {
        SAILOR ", tensor: 16", SAILOR ", tensor: 32", SAILOR ", tensor: 64",
        SAILOR ", tensor: 128"};
    const crossing c = data_out(over, latency_us);
    double best = INFINITY;

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        best = fmin(best, across_best_seconds(w, on, &c, layouts[i]));
    return best;
}

/* Returns the seconds of the best plan with PP-out over those of the best plan
 * with DP-out, each with its own degrees, chunks and schedule. */
static double pipeline_by_data(const workload *w, const topology *on,
                               double over, double latency_us)
{
    const crossing c = data_out(over, latency_us);

    return across_best_seconds(w, on, &c, "outermost: pipeline") /
           across_best_seconds(w, on, &c, "outermost: data");
}

static void add(across_add_value how, void *to, const char *figure,
                const char *what, double at, double value)
{
    char key[64];

    snprintf(key, sizeof key, "%s %s %g", figure, what, at);
    how(to, key, value);
}

/* Returns the mean number of layers of a plan's chunks. */
static double layers_per_chunk(const workload *w, uint32_t pipeline,
                               uint32_t chunks)
{
    return (double)w->layers / (pipeline * chunks);
}

/* Adds the causes that the paper names: the best plan's batches, chunks and
 * placement by those of production. */
static void add_causes(across_add_value how, void *to, const char *figure,
                       const workload *w, const across_plan *best, double ratio)
{
    if (w->expert > 1)
        add(how, to, figure, "microbatches by production 1:", ratio,
            (double)best->microbatches / w->microbatches);
    else
        add(how, to, figure, "microbatch size by production 1:", ratio,
            (double)best->microbatch_size / w->microbatch_size);
    add(how, to, figure, "layers per chunk by production 1:", ratio,
        layers_per_chunk(w, best->pipeline, best->chunks) /
            layers_per_chunk(w, w->pipeline, w->chunks));
}

/* Adds the rows for 64 GPUs per building; "largest" is over all
 * oversubscriptions. */
static void add_testbed(across_add_value how, void *to, const char *figure,
                        const workload *w, double least)
{
    const double overs[] = {least, 4, 8, 16};
    enum { N_OVERS = sizeof overs / sizeof *overs };
    bool placements[2] = {false, false};
    double most = 0;

    for (int i = 0; i < N_OVERS; i++) {
        const bool far = i == N_OVERS - 1;
        const double over = overs[i];
        const found f = find(w, NULL, over, 50);
        const double ratio = round(over);

        add(how, to, figure, "production by best 1:", ratio,
            f.production / f.best);
        add(how, to, figure, "production by sailor 1:", ratio,
            f.production / f.sailor);
        add(how, to, figure, "sailor by best 1:", ratio, f.sailor / f.best);
        most = fmax(most, f.sailor / f.best);
        placements[f.best_plan.pipeline_out] = true;
        if (far)
            add_causes(how, to, figure, w, &f.best_plan, ratio);
        if (w->expert == 1 && far)
            add(how, to, figure, "sailor stages 1:", ratio,
                f.sailor_plan.pipeline);
        if (w->expert > 1 && (i == 0 || far)) {
            const crossing c = data_out(over, 50);
            const double without =
                across_best_seconds(w, NULL, &c, SAILOR ", expert: 1");

            add(how, to, figure,
                "production by sailor without experts 1:", ratio,
                f.production / without);
            add(how, to, figure, "sailor without experts by best 1:", ratio,
                without / f.best);
        }
    }
    add(how, to, figure, "sailor by best largest of", N_OVERS, most);
    add(how, to, figure, "placements of", N_OVERS,
        placements[DATA_OUT] + placements[PIPELINE_OUT]);
}

/* Adds figure 24 at 1:16 with FSDP that gathers and reduces for each pass. */
static void add_per_pass(across_add_value how, void *to, uint32_t microbatches)
{
    const workload w = across_dense_17b_per_pass(microbatches);
    const found f = find(&w, NULL, 16, 50);

    add(how, to, "24", "per pass production by best 1:", 16,
        f.production / f.best);
    add(how, to, "24", "per pass production by sailor 1:", 16,
        f.production / f.sailor);
    add(how, to, "24", "per pass sailor by best 1:", 16, f.sailor / f.best);
}

/* Adds figure 5 with the best plan under either placement. */
static void add_batches(across_add_value how, void *to)
{
    static const uint32_t batches[] = {2, 11, 44};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        const workload w = across_dense_17b(batches[i]);
        const double ratio = pipeline_by_data(&w, NULL, 16, 50);

        add(how, to, "5", "best microbatches", batches[i], ratio);
        if (batches[i] == across_readings_of_batch[0].dense)
            add(how, to, "24", "pipeline by data 1:", 16, ratio);
    }
}

/* Adds figure 26 at 50 us for twice the batch, and for the added half of it
 * alone: without the time of filling and draining the pipeline. */
static void add_twice_the_batch(across_add_value how, void *to,
                                const workload *w, const topology *on,
                                double best, double over_nodes)
{
    const crossing c = data_out(3, 50);
    workload twice = *w;
    double best_twice, sailor_twice;

    twice.microbatches *= 2;
    best_twice = across_best_seconds(&twice, on, &c, NULL);
    sailor_twice = find_sailor_over_nodes(&twice, on, 3, 50);
    add(how, to, "26", "sailor by best twice us", 50,
        sailor_twice / best_twice);
    add(how, to, "26", "sailor by best further us", 50,
        (sailor_twice - over_nodes) / (best_twice - best));
}

static void add_100k(across_add_value how, void *to)
{
    topology whole = *across_topology("A1");
    workload w = across_100k(&whole);

    double gains[2];

    whole.zones = 1; /* links between zones play no role here */
    for (int far = 0; far < 2; far++) {
        double us = far ? 1000 : 50;
        const found f = find(&w, &whole, 3, us);
        const double over_nodes =
            fmin(f.sailor, find_sailor_over_nodes(&w, &whole, 3, us));

        gains[far] = f.production / f.best;
        add(how, to, "25", "production by best us", us, gains[far]);
        add(how, to, "26", "sailor by best us", us, over_nodes / f.best);
        add(how, to, "26", "sailor by production us", us,
            over_nodes / f.production);
        add(how, to, "26", "sailor in nodes by best us", us, f.sailor / f.best);
        if (far)
            continue;
        add(how, to, "25", "stages by production us", us,
            (double)f.best_plan.pipeline / w.pipeline);
        add(how, to, "25", "replicas by production us", us,
            (double)f.best_plan.data / w.data);
        add(how, to, "25", "pipeline by data us", us,
            pipeline_by_data(&w, &whole, 3, us));
        add_twice_the_batch(how, to, &w, &whole, f.best, over_nodes);
    }
    add(how, to, "25", "gain by gain at 50 us", 1000, gains[1] / gains[0]);
}

void across_print_batches(FILE *to)
{
    static const uint32_t microbatches[] = {1, 2, 4, 11};

    fputs("| FSDP gathers | batch | production, s | best found, s | Sailor's "
          "choice, s | production / best | production / Sailor's | Sailor's / "
          "best |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
          to);
    for (int per_pass = 0; per_pass < 2; per_pass++)
        for (size_t i = 0; i < sizeof microbatches / sizeof *microbatches;
             i++) {
            const workload w = per_pass
                                   ? across_dense_17b_per_pass(microbatches[i])
                                   : across_dense_17b(microbatches[i]);
            const found f = find(&w, NULL, 16, 50);

            fprintf(to,
                    "| once per %s | %u | %.3f | %.3f, %s-out | %.3f, %u "
                    "stages | %.3f | %.3f | %.3f |\n",
                    per_pass ? "pass" : "iteration",
                    microbatches[i] * w.microbatch_size * w.data, f.production,
                    f.best, f.best_plan.pipeline_out ? "PP" : "DP", f.sailor,
                    f.sailor_plan.pipeline, f.production / f.best,
                    f.production / f.sailor, f.sailor / f.best);
        }
    fputs("| the paper | \"small\" | | PP-out | 8 stages | 2.830 | 2.360 | "
          "1.196 to 1.355 |\n",
          to);
}

void across_print_sampling(FILE *to)
{
    const batch_reading *batch = &across_readings_of_batch[0];
    const workload all[] = {across_dense_17b(batch->dense),
                            across_moe_40b(128, batch->mixture)};
    const crossing c = data_out(16, 50);

    fputs(
        "| workload | hill climbing, s | Monte Carlo, s | longer by | layouts "
        "that fit, simulated |\n"
        "| --- | --- | --- | --- | --- |\n",
        to);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const across_search climbed = across_search_layouts(&all[i], &c, false);
        const across_search sampled = across_search_layouts(&all[i], &c, true);

        fprintf(to, "| %s | %.4f | %.4f | %.1f %% | %" PRIu64 " |\n",
                all[i].name, climbed.seconds, sampled.seconds,
                100 * (sampled.seconds / climbed.seconds - 1),
                sampled.n_simulated);
    }
}

void across_searches(across_add_value how, void *to)
{
    const batch_reading *batch = &across_readings_of_batch[0];
    const workload experts = across_moe_40b(128, batch->mixture);
    const workload dense = across_dense_17b(batch->dense);

    add_testbed(how, to, "23", &experts, 4.0 / 3);
    add_testbed(how, to, "24", &dense, 1);
    add_per_pass(how, to, batch->dense);
    add_100k(how, to);
    add_batches(how, to);
}
