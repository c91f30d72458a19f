/* SPDX-License-Identifier: Apache-2.0 */
/* Computes ScaleAcross Explorer's figures (2026) from jobs. Values are
 * iteration time ratios; keys match bench/data/scaleacross/findings.csv. */
#include "scaleacross.h"

#include <longhaul/experimental/network_model.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double default_oversubscription = ACROSS_OVERSUBSCRIPTION;
static const double default_latency_us = ACROSS_LATENCY_US;

/* Output callback and its context. */
typedef struct value_sink {
    across_add_value add;
    void *to;
    const char *name; /* after a figure's number in keys; NULL: none */
} value_sink;

static void add(const value_sink *a, double value, const char *figure,
                const char *what, double at)
{
    char key[64], number[24] = "";

    if (at > 0)
        snprintf(number, sizeof number, " %g", at);
    snprintf(key, sizeof key, "%s%s%s %s%s", figure, a->name ? " " : "",
             a->name ? a->name : "", what, number);
    a->add(a->to, key, value);
}

static double seconds(const workload *w, const topology *on, outer outermost,
                      double over, double latency_us)
{
    crossing c = {.outermost = outermost,
                  .oversubscription = over,
                  .latency_us = latency_us};

    return across_seconds(w, on, &c, "dorapp");
}

/* Returns the slowdown from 1000 us latency when rings span all GPUs. */
static double flat_ring_growth(const workload *w, const topology *on,
                               outer outermost)
{
    crossing c = {.outermost = outermost,
                  .oversubscription = default_oversubscription,
                  .latency_us = default_latency_us,
                  .flat_rings = true};
    double near = across_seconds(w, on, &c, "dorapp");

    c.latency_us = 1000;
    return across_seconds(w, on, &c, "dorapp") / near;
}

/* Returns the iteration time with pipeline outermost divided by the time with
 * data outermost. */
static double pipeline_to_data_ratio(const workload *w, const topology *on,
                                     double over, double latency_us)
{
    return seconds(w, on, PIPELINE_OUT, over, latency_us) /
           seconds(w, on, DATA_OUT, over, latency_us);
}

/* ---- testbeds: figures 4, 5, 7, 8, 15, 16 ---- */

static void add_dense(const value_sink *a)
{
    static const double overs[] = {1, 4, 8, 16};
    static const uint32_t batches[] = {2, 11, 22};
    workload w = across_dense_17b(across_readings_of_batch[0].dense);

    for (size_t i = 0; i < sizeof overs / sizeof *overs; i++)
        add(a, pipeline_to_data_ratio(&w, NULL, overs[i], default_latency_us),
            "4", "1:", overs[i]);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        w = across_dense_17b(batches[i]);
        add(a, pipeline_to_data_ratio(&w, NULL, 16, default_latency_us), "5",
            "microbatches", batches[i]);
    }
}

/* Adds table 2's mixture-of-experts rows. */
static void add_experts(const value_sink *a)
{
    static const double overs[] = {4.0 / 3, 4, 8, 16};
    const uint32_t n = across_readings_of_batch[0].mixture;
    workload w = across_moe_40b(128, n), few = across_moe_40b(16, n);
    double many = 1 / pipeline_to_data_ratio(&w, NULL, 16, default_latency_us);

    add(a, many * pipeline_to_data_ratio(&few, NULL, 16, default_latency_us),
        "7", "128 by 16 experts", 0);
    for (size_t i = 0; i < sizeof overs / sizeof *overs; i++)
        add(a,
            1 / pipeline_to_data_ratio(&w, NULL, overs[i], default_latency_us),
            "8", "1:", round(overs[i]));
    w = across_moe_40b_narrow(128, n);
    add(a, 1 / pipeline_to_data_ratio(&w, NULL, 16, default_latency_us), "8",
        "16 bits 1:", 16);
}

/* Returns seconds per iteration of FSDP or HSDP. `by_run`: with a gather and a
 * reduction per run of microbatches; else one of each per iteration. */
static double sharded_seconds(const workload *w, const crossing *c, bool by_run)
{
    return by_run ? across_fsdp_by_run_seconds(w, c, "dorapp")
                  : across_seconds(w, NULL, c, "dorapp");
}

/* Returns the time of FSDP divided by that of a hybrid sharding with half the
 * microbatch. `by_run` as for sharded_seconds(). */
static double hybrid_gain(uint32_t microbatches, const char *kind, double over,
                          bool by_run)
{
    workload w = across_dense_17b(microbatches), halved;
    crossing c = {.oversubscription = over, .latency_us = default_latency_us};
    double full;

    /* A given share of the peak has no size; the cost model's kernels have. */
    w.gpu = "h100-sxm";
    halved = w;
    halved.microbatch_size /= 2; /* "smaller micro-batch size" */
    halved.microbatches *= 2;
    full = sharded_seconds(&w, &c, by_run);
    c.sharding = kind;
    return full / sharded_seconds(&halved, &c, by_run);
}

static void add_sharding(const value_sink *a)
{
    static const double overs[] = {1, 16};
    static const char *const kinds[] = {"hybrid-leaders", "hybrid"};

    for (size_t i = 0; i < sizeof overs / sizeof *overs; i++)
        for (int k = 0; k < 2; k++)
            add(a,
                hybrid_gain(across_readings_of_batch[0].dense, kinds[k],
                            overs[i], false),
                "15", kinds[k], overs[i]);
    add(a, hybrid_gain(across_readings_of_batch[0].dense, kinds[0], 8, false),
        "15", kinds[0], 8);
    for (size_t i = 0; i < sizeof overs / sizeof *overs; i++)
        add(a,
            hybrid_gain(across_readings_of_batch[0].dense, "hybrid-leaders",
                        overs[i], true),
            "15", "by run", overs[i]);
}

/* Returns the time of interleaved ZBV divided by that of DoraPP. */
static double zbv_ratio(uint32_t microbatches, double over)
{
    const workload w = across_dense_17b(microbatches);
    const crossing c = {.outermost = PIPELINE_OUT,
                        .oversubscription = over,
                        .latency_us = default_latency_us};

    return across_seconds(&w, NULL, &c, "interleaved-zbv") /
           across_seconds(&w, NULL, &c, "dorapp");
}

static void add_schedules(const value_sink *a)
{
    static const double overs[] = {1, 8, 16};

    for (size_t i = 0; i < sizeof overs / sizeof *overs; i++)
        add(a, zbv_ratio(across_readings_of_batch[0].dense, overs[i]), "16",
            "1:", overs[i]);
}

/* ---- both readings of table 2's batch ---- */

const batch_reading across_readings_of_batch[2] = {{"over all replicas", 11, 4},
                                                   {"per replica", 44, 64}};

/* Prints a row: the same ratio in both readings. */
static void print_reading(FILE *to, const char *figure, double over,
                          const char *what, const char *paper,
                          double (*ratio)(const batch_reading *, double))
{
    fprintf(to, "| %s | %s at 1:%.3g | %s |", figure, what, over, paper);
    for (int r = 0; r < 2; r++)
        fprintf(to, " %.3f |", ratio(&across_readings_of_batch[r], over));
    fputc('\n', to);
}

static double dense_ratio(const batch_reading *r, double over)
{
    const workload w = across_dense_17b(r->dense);

    return pipeline_to_data_ratio(&w, NULL, over, default_latency_us);
}

static double mixture_ratio(const batch_reading *r, double over)
{
    const workload w = across_moe_40b(128, r->mixture);

    return 1 / pipeline_to_data_ratio(&w, NULL, over, default_latency_us);
}

static double leaders_ratio(const batch_reading *r, double over)
{
    return hybrid_gain(r->dense, "hybrid-leaders", over, false);
}

static double runs_ratio(const batch_reading *r, double over)
{
    return hybrid_gain(r->dense, "hybrid-leaders", over, true);
}

static double schedule_ratio(const batch_reading *r, double over)
{
    return zbv_ratio(r->dense, over);
}

void across_print_readings(FILE *to)
{
    static const struct {
        const char *figure, *what;
        double (*ratio)(const batch_reading *, double);
        double over;
        const char *paper;
    } rows[] = {
        {"4", "dense: PP-out / DP-out", dense_ratio, 1, "narrow gap"},
        {"4", "dense: PP-out / DP-out", dense_ratio, 4, "narrow gap"},
        {"4", "dense: PP-out / DP-out", dense_ratio, 8, "above 1"},
        {"4", "dense: PP-out / DP-out", dense_ratio, 16, "1.285"},
        {"8", "MoE: DP-out / PP-out", mixture_ratio, 4.0 / 3, "about 1"},
        {"8", "MoE: DP-out / PP-out", mixture_ratio, 8, "above 1"},
        {"8", "MoE: DP-out / PP-out", mixture_ratio, 16, "1.494"},
        {"15", "dense: FSDP / HSDP", leaders_ratio, 1, "below 1"},
        {"15", "dense: FSDP / HSDP", leaders_ratio, 16, "1.068"},
        {"15", "the same, a gather per run", runs_ratio, 1, "below 1"},
        {"15", "the same, a gather per run", runs_ratio, 16, "1.068"},
        {"16", "dense: ZBV / DoraPP", schedule_ratio, 1, "above 1"},
        {"16", "dense: ZBV / DoraPP", schedule_ratio, 8, "above 1"},
        {"16", "dense: ZBV / DoraPP", schedule_ratio, 16, "below 1"},
    };

    fputs("| figure | ratio of iteration times | paper |", to);
    for (int r = 0; r < 2; r++)
        fprintf(to, " %s: %u, %u |", across_readings_of_batch[r].name,
                across_readings_of_batch[r].dense,
                across_readings_of_batch[r].mixture);
    fputs("\n| --- | --- | --- | --- | --- |\n", to);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        print_reading(to, rows[i].figure, rows[i].over, rows[i].what,
                      rows[i].paper, rows[i].ratio);
}

/* ---- 8192 GPUs: figures 9 and 10 ---- */

/* Iteration-time growth from fourfold oversubscription and from 1000 us
 * latency. */
typedef struct growth {
    double over[2], latency[2]; /* indexed by `outer` */
} growth;

/* Computes an iteration's growth under both outermost parallelisms. */
static growth growth_of(const workload *w, const topology *on)
{
    growth g;

    for (int out = 0; out < 2; out++) {
        double base = seconds(w, on, (outer)out, default_oversubscription,
                              default_latency_us);

        g.over[out] = seconds(w, on, (outer)out, 4 * default_oversubscription,
                              default_latency_us) /
                      base;
        g.latency[out] =
            seconds(w, on, (outer)out, default_oversubscription, 1000) / base;
    }
    return g;
}

static void add_8k(const value_sink *a, const char *figure, uint32_t pipeline)
{
    workload dense = across_8k(0, pipeline), many = across_8k(128, pipeline);
    growth d = growth_of(&dense, NULL), m = growth_of(&many, NULL);

    if (pipeline == 2) {
        workload few = across_8k(16, pipeline);
        growth f = growth_of(&few, NULL);

        add(a, f.over[PIPELINE_OUT] / f.over[DATA_OUT], figure,
            "16 experts growth PP by DP", 0);
    }
    add(a, m.over[DATA_OUT] / m.over[PIPELINE_OUT], figure,
        "128 experts growth DP by PP", 0);
    add(a, m.over[PIPELINE_OUT], figure, "128 experts PP 4x", 0);
    add(a, m.over[DATA_OUT], figure, "128 experts DP 4x", 0);
    add(a, d.over[PIPELINE_OUT] / d.over[DATA_OUT], figure,
        "dense growth PP by DP", 0);
    if (pipeline > 2) {
        add(a, d.latency[PIPELINE_OUT], figure, "latency PP dense", 0);
        add(a, m.latency[PIPELINE_OUT], figure, "latency PP 128 experts", 0);
        add(a, d.over[DATA_OUT], figure, "dense DP 4x", 0);
        add(a, d.over[PIPELINE_OUT], figure, "dense PP 4x", 0);
        add(a, d.latency[PIPELINE_OUT] / m.latency[PIPELINE_OUT], figure,
            "latency PP dense by 128 experts", 0);
        return;
    }
    add(a, m.over[DATA_OUT] / d.over[DATA_OUT], figure,
        "DP 4x 128 experts by dense", 0);
    add(a, d.latency[DATA_OUT] / d.latency[PIPELINE_OUT], figure,
        "latency dense DP by PP", 0);
    add(a, m.latency[DATA_OUT] / m.latency[PIPELINE_OUT], figure,
        "latency 128 experts DP by PP", 0);
    add(a,
        flat_ring_growth(&dense, NULL, DATA_OUT) /
            flat_ring_growth(&dense, NULL, PIPELINE_OUT),
        figure, "latency flat dense DP by PP", 0);
    add(a,
        flat_ring_growth(&many, NULL, DATA_OUT) /
            flat_ring_growth(&many, NULL, PIPELINE_OUT),
        figure, "latency flat 128 experts DP by PP", 0);
    add(a, 2.0 * dense.chunks, figure, "collectives", 0);
}

/* ---- 100,000 GPUs: figures 6, 11 to 14, 18 to 21 ---- */

/* Growth on a topology, computed once. */
typedef struct topology_growth {
    const char *name;
    growth growth;
} topology_growth;

/* Returns the growth on the topology called `name`; `known` has room for all
 * topologies. */
static growth find_growth(topology_growth *known, const char *name,
                          workload (*make)(const topology *on))
{
    uint32_t i = 0;

    while (known[i].name && strcmp(known[i].name, name) != 0)
        i++;
    if (!known[i].name) {
        const topology *on = across_topology(name);
        const workload w = make(on);

        known[i] = (topology_growth){name, growth_of(&w, on)};
    }
    return known[i].growth;
}

void across_add_100k(across_add_value add_value, void *to, const char *name,
                     workload (*make)(const topology *on))
{
    static const char *const compared[][3] = {
        /* topology, reference topology, figure */
        {"A2", "A1", "11"}, {"A3", "A1", "11"}, {"B3", "B2", "11"},
        {"A4", "A1", "13"}, {"B4", "B1", "13"},
    };
    const value_sink a = {add_value, to, name};
    topology_growth known[8] = {{0}};
    const topology *on = across_topology("A1");
    workload w = make(on);
    growth g = find_growth(known, "A1", make);

    for (double times = 1; times <= 4; times *= 2)
        add(&a,
            pipeline_to_data_ratio(&w, on, times * default_oversubscription,
                                   default_latency_us),
            "6", "times", times);
    add(&a, g.over[PIPELINE_OUT] / g.over[DATA_OUT], "11", "A1 growth PP by DP",
        0);
    add(&a, g.latency[DATA_OUT], "12", "A1 DP 1000 us", 0);
    add(&a, flat_ring_growth(&w, on, DATA_OUT), "12", "A1 DP flat 1000 us", 0);
    add(&a, g.latency[PIPELINE_OUT], "12", "A1 PP 1000 us", 0);
    add(&a, g.latency[PIPELINE_OUT] / g.latency[DATA_OUT], "12",
        "A1 growth PP by DP", 0);
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++) {
        growth p = find_growth(known, compared[i][0], make);
        growth q = find_growth(known, compared[i][1], make);
        bool buildings = strcmp(compared[i][2], "13") == 0;
        char what[40];

        snprintf(what, sizeof what, "PP %s by %s", compared[i][0],
                 compared[i][1]);
        add(&a, p.over[PIPELINE_OUT] / q.over[PIPELINE_OUT], compared[i][2],
            what, 0);
        add(&a, p.latency[PIPELINE_OUT] / q.latency[PIPELINE_OUT],
            buildings ? "14" : "12", what, 0);
    }
}

static void add_loss(const value_sink *a)
{
    const topology *on = across_topology("A1");
    workload w = across_100k(on);
    double lossy[2];

    for (int out = 0; out < 2; out++) {
        crossing c = {.outermost = (outer)out,
                      .oversubscription = default_oversubscription,
                      .latency_us = default_latency_us,
                      .link_keys = "loss: 2.0e-5, recovery: go-back-n"};
        double least = across_seconds(&w, on, &c, "dorapp");

        c.link_keys = "loss: 2.0e-3, recovery: go-back-n";
        lossy[out] = across_seconds(&w, on, &c, "dorapp") / least;
        c.link_keys = "loss: 2.0e-4, recovery: go-back-n";

        double near = across_seconds(&w, on, &c, "dorapp");

        c.latency_us = 1000;
        add(a, across_seconds(&w, on, &c, "dorapp") / near, "18",
            out == DATA_OUT ? "DP 1000 us" : "PP 1000 us", 0);
    }
    add(a, lossy[PIPELINE_OUT] / lossy[DATA_OUT], "18", "loss PP by DP", 0);
}

/* Compares one-layer chunks with a partition of one chunk less per device (a
 * sixth fewer), where one chunk per device has two layers. */
static void add_uneven(const value_sink *a)
{
    const topology *on = across_topology("A1");
    workload even = across_100k(on), uneven = even;

    uneven.chunks--;
    uneven.two_layer_chunks = uneven.pipeline;
    for (int far = 0; far < 2; far++) {
        crossing c = {.outermost = PIPELINE_OUT,
                      .oversubscription = default_oversubscription,
                      .latency_us = default_latency_us,
                      .last_building_us = far ? 2000 : 0};

        add(a,
            across_seconds(&even, on, &c, "dorapp") /
                across_seconds(&uneven, on, &c, "dorapp"),
            "19", "us", far ? 2000 : 50);
    }
}

static double seconds_with_link_keys(const char *ends, double over,
                                     double latency_us)
{
    const topology *on = across_topology("A1");
    workload w = across_100k(on);
    crossing c = {.outermost = DATA_OUT,
                  .oversubscription = over,
                  .latency_us = latency_us,
                  .link_keys = ends};

    return across_seconds(&w, on, &c, "dorapp");
}

/* Returns the iteration time where a building's links have one path per 400
 * Gb/s (packet spraying). */
static void add_spraying(const value_sink *a)
{
    static const char *const ecmp[] = {
        "load_balancing: ecmp, queue_pairs: 1, paths: 25600",
        "load_balancing: ecmp, queue_pairs: 4, paths: 25600"};
    static const char *const spray[] = {"load_balancing: spray, queue_pairs: 1",
                                        "load_balancing: spray, queue_pairs: "
                                        "4"};

    for (int far = 0; far < 2; far++)
        for (int four = 0; four < 2; four++) {
            double us = far ? 1000 : default_latency_us;

            add(a,
                seconds_with_link_keys(spray[four], default_oversubscription,
                                       us) /
                    seconds_with_link_keys(ecmp[four], default_oversubscription,
                                           us),
                "20", four ? "4 pairs us" : "1 pair us", us);
        }

    /* The window of 2 MB does not limit 64 queue pairs. */
    add(a,
        seconds_with_link_keys("load_balancing: spray, queue_pairs: 3",
                               default_oversubscription, default_latency_us) /
            seconds_with_link_keys("load_balancing: spray, queue_pairs: 64",
                                   default_oversubscription,
                                   default_latency_us),
        "20", "3 pairs by unlimited us", default_latency_us);
}

static void add_congestion(const value_sink *a)
{
    static const double at[] = {50, 100, 1000};

    for (int eight = 0; eight < 2; eight++)
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            double over = (eight ? 8 : 4) * default_oversubscription;

            add(a,
                seconds_with_link_keys("congestion_control: on", over, at[i]) /
                    seconds_with_link_keys("congestion_control: off", over,
                                           at[i]),
                "21", eight ? "8x us" : "4x us", at[i]);
        }
}

/* ---- collectives alone: figure 17 ---- */

/* Returns a collective's duration over sixteen GPUs in two clusters at
 * distance `km`, 400 Gb/s per GPU. */
static double collective_ns(bool all_reduce, double bytes, double km)
{
    lh_flow flow = {50e9, 5000 * km, 0};

    return all_reduce ? 2 * lh_ring_ns(LH_RING_PIPELINED, 16, bytes, &flow, 0)
                      : lh_message_ns(LH_RECOVERY_ANY, bytes, &flow);
}

static void add_collectives(const value_sink *a)
{
    for (int kind = 0; kind < 2; kind++) {
        double at[3];

        for (int i = 0; i < 3; i++)
            at[i] = collective_ns(kind, 16e6, 250 * i);
        add(a, (at[2] - at[1]) / (at[1] - at[0]), "17",
            kind ? "all-reduce linear" : "send linear", 0);
    }
    add(a, collective_ns(true, 2e9, 100) / collective_ns(false, 2e9, 100), "17",
        "all-reduce by send", 0);
}

void across_figures(across_add_value how, void *to)
{
    const value_sink a = {how, to, NULL};

    add_dense(&a);
    add_experts(&a);
    add_8k(&a, "9", 16);
    add_8k(&a, "10", 2);
    across_add_100k(how, to, NULL, across_100k);
    add_sharding(&a);
    add_schedules(&a);
    add_collectives(&a);
    add_loss(&a);
    add_uneven(&a);
    add_spraying(&a);
    add_congestion(&a);
}
