/* SPDX-License-Identifier: Apache-2.0 */
/* Training with ZeRO 0, 2 and 3 under any schedule, with per-layer gathers and
 * scatters, and with hybrid sharding per site. Weights are compared with
 * optimizer sharding alone, memory with its prediction. */
#define _GNU_SOURCE
#include "scripted_switches.h"
#include "sharded_runs.h"
#include "virtual_time.h"

/* Each replica alone; in pairs, adjacent and not. */
static const uint32_t alone[] = {0, 1, 2, 3, 0, 1, 2, 3};
static const uint32_t pairs[] = {0, 0, 1, 1, 0, 0, 1, 1};
static const uint32_t threes[] = {0, 0, 0, 1, 1, 1};
static const uint32_t apart[] = {0, 1, 0, 1, 0, 1, 0, 1};

static const uint32_t apart_at_2[] = {0, 0, 1, 1, 0, 1, 0, 1};

/* The sums do not depend on the owner of the optimizer state. */
static void optimizer_shards_do_not_change_sums(void)
{
    const setup one = {.stages = 2, .chunks = 1, .replicas = 4};
    setup none = one;
    outcome shared = run(&one, "one");
    none.sites = alone;
    check_same(&none, "none", &shared);
    none.stages = 1;
    none.chunks = 2;
    none.tied = true;
    outcome tied_none = run(&none, "tied-none");
    none.sites = NULL;
    check_same(&none, "tied-one", &tied_none);
    free(tied_none.weights);
    free(shared.weights);
}

/* Gradients are summed over replicas per microbatch: the same bits with any
 * gathering, recomputation, order or number of stages. */
static void layers(void)
{
    static const setup all[] = {
        {.stages = 1, .chunks = 1, .parameters = 1},
        {.stages = 2, .chunks = 1, .parameters = 0},
        {.stages = 2, .chunks = 2, .parameters = 1},
        {.stages = 4, .chunks = 1, .parameters = 1, .again = LH_PART_ALL},
        {.stages = 4, .chunks = 2, .parameters = 1, .transport = "local"},
        {.stages = 2, .chunks = 1, .parameters = 1, .method = "gpipe"},
        {.stages = 2,
         .chunks = 1,
         .parameters = 1,
         .method = "zb-h1",
         .split = true},
        {.stages = 2,
         .chunks = 2,
         .parameters = 1,
         .method = "greedy",
         .sub_blocks = 3,
         .split = true,
         .again = 0x51},
        {.stages = 2,
         .chunks = 2,
         .parameters = 0,
         .method = "look-ahead",
         .split = true,
         .again = LH_PART_ALL},
        {.stages = 2,
         .chunks = 1,
         .parameters = 1,
         .method = "gpipe",
         .then = "1f1b"},
        {.stages = 2,
         .chunks = 1,
         .parameters = 0,
         .method = "gpipe",
         .then = "1f1b"},
    };
    /* Operations launched by passes, in groups of one microbatch. */
    const setup groups = {.stages = 1,
                          .chunks = 1,
                          .replicas = 2,
                          .enqueue = "1,1,1,1,1,1,1,1",
                          .dequeue = "1,1,1,1,1,1,1,1",
                          .gradients = 1,
                          .scatter = 1,
                          .forward = 1,
                          .backward = 1};
    const setup plainly = {.stages = 1, .chunks = 1, .replicas = 2};
    outcome want = run(&groups, "groups"), plain = run(&plainly, "plainly");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        setup s = all[i];
        s.replicas = 2;
        s.gradients = 1;
        s.by_layer = true;
        snprintf(name, sizeof name, "layers%zu", i);
        check_same(&s, name, &want);
        if (i == 0)
            check_near(&s, name, &plain);
    }
    free(want.weights);
    free(plain.weights);
}

static int64_t least_ns; /* over the iterations so far */

static void note_least(void *none, const lh_iteration *it)
{
    (void)none;
    if (it->ns < least_ns)
        least_ns = it->ns;
}

/* Emulated links: the same bits, and the iteration includes all traffic over
 * the one link, by latency alone and by bytes. */
static void links_are_emulated(void)
{
    enum { PARTS = LAYERS + 2, MICROBATCHES = ALL_MICROBATCHES / 2 };
    static const setup all[] = {
        {.parameters = 1, .gathers = {200000, 0}, .reductions = {100000, 0}},
        {.parameters = 0, .reductions = {300000, 0}},
        {.parameters = 1, .gathers = {0, 20}, .reductions = {0, 10}},
    };
    const setup plain = {.stages = 1,
                         .chunks = 1,
                         .replicas = 2,
                         .by_layer = true,
                         .gradients = 1,
                         .parameters = 1};
    const lh_model model = tiny_model(LAYERS);
    const double sent = sizeof(float) * (double)lh_model_params(&model) / 2;
    outcome want = run(&plain, "real-links");
    progress = note_least;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        setup s = plain;
        s.delays = true;
        s.parameters = all[i].parameters;
        s.gathers = all[i].gathers;
        s.reductions = all[i].reductions;
        least_ns = INT64_MAX;
        snprintf(name, sizeof name, "emulated%zu", i);
        check_same(&s, name, &want);
        double gathers = 2 * s.parameters *
                         (PARTS * (double)s.gathers.latency_ns +
                          sent * s.gathers.ns_per_byte);
        double reductions = PARTS * (double)s.reductions.latency_ns +
                            sent * s.reductions.ns_per_byte;
        double least = MICROBATCHES * (gathers + reductions);
        CHECK_MSG((double)least_ns + 1000 > least, "%s: %g s, not %g", name,
                  1e-9 * (double)least_ns, 1e-9 * least);
    }
    progress = NULL;
    free(want.weights);
}

/* Other model families with different tensors, and with both ends of a tied
 * embedding on one rank or on two. */
static void families(void)
{
    lh_model (*const models[])(uint32_t) = {tiny_gpt2, tiny_mixtral,
                                            tiny_model};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        setup s = {.stages = 2,
                   .chunks = 1,
                   .replicas = 2,
                   .model = models[i],
                   .tied = i == 2,
                   .gradients = 1,
                   .by_layer = true};
        outcome scattered = run(&s, "two");
        s.parameters = 1;
        s.stages = 1;
        s.chunks = 3;
        check_same(&s, "three", &scattered);
        s.sites = alone; /* no sharding, all summed at the end */
        s.by_layer = false;
        s.gradients = s.parameters = 0;
        outcome plain = run(&s, "alone");
        s.sites = NULL;
        s.by_layer = true;
        s.gradients = s.parameters = 1;
        check_near(&s, "near", &plain);
        free(plain.weights);
        free(scattered.weights);
    }
}

/* Sums within a site, then across: the same bits for any order of the sites'
 * replicas, as long as the grouping stays. */
static void sites(void)
{
    const setup plainly = {.stages = 2, .chunks = 1, .replicas = 4};
    setup s = plainly;
    outcome plain = run(&plainly, "plainly");
    s.sites = pairs;
    check_near(&s, "pairs", &plain);
    outcome one = run(&s, "pairs");
    s.sites = apart;
    check_near(&s, "apart", &plain);
    s.sites = pairs;
    s.stages = 1;
    check_same(&s, "pairs-1", &one);
    s.leaders = true;
    check_same(&s, "leaders-1", &one);
    s.by_layer = true;
    s.gradients = 1;
    outcome scattered = run(&s, "pairs-2");
    s.stages = 2;
    s.parameters = 1;
    s.transport = "local";
    check_same(&s, "leaders-3", &scattered);
    s.leaders = false;
    check_same(&s, "pairs-3", &scattered);
    check_near(&s, "pairs-3", &plain);
    const setup launched = {.stages = 1,
                            .chunks = 2,
                            .replicas = 4,
                            .enqueue = "4",
                            .dequeue = "4",
                            .gradients = 1,
                            .parameters = .5,
                            .scatter = 2,
                            .forward = 2,
                            .backward = 1,
                            .sites = pairs};
    check_same(&launched, "launched", &one);
    setup led = launched;
    led.leaders = true;
    check_same(&led, "led", &one);
    free(plain.weights);
    /* Split experts are sharded like everything else. */
    setup cut = {.stages = 1,
                 .chunks = 1,
                 .replicas = 4,
                 .experts = true,
                 .tensor = 2,
                 .cut = 2};
    plain = run(&cut, "cut");
    cut.sites = pairs;
    check_near(&cut, "cut-pairs", &plain);
    free(plain.weights);
    free(one.weights);
    free(scattered.weights);
}

/* Changes the level between checkpoints, with validation in between. */
static void levels_change(void)
{
    static const struct {
        double gradients, parameters;
        const uint32_t *sites;
    } rows[] = {{1, 0, NULL}, {1, 1, NULL}, {1, 0, NULL}};
    const setup all = {.stages = 2,
                       .chunks = 1,
                       .replicas = 2,
                       .tied = true,
                       .by_layer = true,
                       .validation = .1,
                       .gradients = 1};
    setup s = all;
    char from[128];
    outcome want = run(&all, "unchanged");
    snprintf(from, sizeof from, "%s/changed", folder);
    for (uint32_t i = 0; i < 3; i++) {
        s.steps = 2 * (i + 1);
        s.resume = i ? from : NULL;
        s.gradients = rows[i].gradients;
        s.parameters = rows[i].parameters;
        s.stages = i == 1 ? 1 : 2;
        outcome o = run(&s, "changed");
        if (i == 2)
            CHECK_MSG(are_same(&o, &want), "levels: other weights");
        free(o.weights);
    }
    free(want.weights);
    snprintf(from, sizeof from, "%s/shared", folder);
    /* ZeRO 0 and 1, from optimizer state on one replica and on two. */
    setup one = {.stages = 2, .chunks = 1, .replicas = 2};
    want = run(&one, "unshared");
    for (uint32_t i = 0; i < 3; i++) {
        one.steps = 2 * (i + 1);
        one.resume = i ? from : NULL;
        one.sites = i == 1 ? alone : NULL;
        outcome o = run(&one, "shared");
        if (i == 2)
            CHECK_MSG(are_same(&o, &want), "sharing: other weights");
        free(o.weights);
    }
    free(want.weights);
}

/* Less memory with each level, finally less than half. */
static void memory_is_lower(void)
{
    setup s = {.stages = 1, .chunks = 1, .replicas = 4, .sites = alone};
    double most[5];
    for (uint32_t i = 0; i < 5; i++) {
        if (i > 0)
            s.sites = NULL;
        s.by_layer = i > 1;
        s.gradients = i > 1;
        s.parameters = i > 2;
        s.again = i > 3 ? LH_PART_ALL : 0;
        outcome o = run(&s, "held");
        most[i] = o.most_bytes;
        CHECK_MSG(i == 0 || most[i] < most[i - 1], "%u: %.0f, not below %.0f",
                  i, most[i], most[i - 1]);
        free(o.weights);
    }
    CHECK_MSG(most[4] < .5 * most[1], "%.0f of %.0f bytes", most[4], most[1]);
}

/* Layers migrate where the shards are the same at every stage. */
static void moves(void)
{
    static const uint32_t layers[] = {3, 5};
    setup s = {.stages = 2,
               .chunks = 1,
               .replicas = 4,
               .then = "1f1b",
               .sites = pairs};
    outcome stays = run(&s, "stays");
    CHECK(strcmp(switch_refused, "") == 0);
    s.layers = layers;
    check_same(&s, "moves", &stays);
    CHECK(strcmp(switch_refused, "") == 0);
    s.sites = apart_at_2;
    check_near(&s, "apart-at-2", &stays);
    CHECK_HAS(switch_refused, "at different sites at different stages");
    s.sites = NULL;
    s.by_layer = true;
    s.gradients = 1;
    check_near(&s, "by-layer", &stays);
    CHECK_HAS(switch_refused, "gradients are sharded over replicas");
    setup launched = {.stages = 2,
                      .chunks = 1,
                      .replicas = 4,
                      .enqueue = "4",
                      .dequeue = "4",
                      .gradients = .5,
                      .scatter = 1,
                      .forward = 1,
                      .backward = 1,
                      .then = "elastic",
                      .layers = layers};
    free(run(&launched, "launched").weights);
    CHECK_HAS(switch_refused, "gradients are sharded over replicas");
    free(stays.weights);
}

static void invalid_levels_are_rejected(void)
{
    static const uint32_t uneven[] = {0, 0, 0, 1};
    static const struct {
        setup s;
        const char *says;
    } rows[] = {
        {{.stages = 1, .chunks = 1, .replicas = 4, .sites = uneven},
         "requires the same number at every site"},
        {{.stages = 2,
          .chunks = 1,
          .replicas = 4,
          .tied = true,
          .sites = apart_at_2},
         "both have the same embedding"},
        {{.stages = 1,
          .chunks = 1,
          .replicas = 2,
          .by_layer = true,
          .gradients = .5},
         "per-layer sharding covers all gradients"},
        {{.stages = 1,
          .chunks = 1,
          .replicas = 2,
          .by_layer = true,
          .gradients = 1,
          .parameters = .5},
         "per-layer sharding covers all gradients"},
        {{.stages = 1,
          .chunks = 1,
          .replicas = 2,
          .enqueue = "4,4",
          .dequeue = "4,4",
          .scatter = 1,
          .forward = 1,
          .backward = 1,
          .by_layer = true,
          .gradients = 1},
         "per-layer sharding covers all gradients"},
        {{.stages = 1,
          .chunks = 1,
          .replicas = 6,
          .sites = threes,
          .experts = true,
          .expert = 2},
         "1 ranks at the site of rank 1 have its experts"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refused(&rows[i].s, rows[i].says);
}

/* While the other ranks wait in a gather or scatter. */
static void a_rank_is_killed(void)
{
    setup s = {.stages = 2,
               .chunks = 1,
               .replicas = 4,
               .gradients = 1,
               .parameters = 1,
               .by_layer = true,
               .transport = "local",
               .steps = 100000};
    check_killed(&s);
    s.sites = pairs;
    check_killed(&s);
}

int main(void)
{
    if (!folder_begin("sharded", 9000))
        return 1;
    RUN_VIRTUAL(optimizer_shards_do_not_change_sums);
    RUN_VIRTUAL(layers);
    RUN_VIRTUAL(links_are_emulated);
    RUN_VIRTUAL(families);
    RUN_VIRTUAL(sites);
    RUN_VIRTUAL(levels_change);
    RUN_VIRTUAL(memory_is_lower);
    RUN_VIRTUAL(moves);
    RUN_VIRTUAL(invalid_levels_are_rejected);
    RUN_VIRTUAL(a_rank_is_killed);
    folder_end();
    return test_summary();
}
