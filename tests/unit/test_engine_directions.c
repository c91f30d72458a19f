/* SPDX-License-Identifier: Apache-2.0 */
/* Training with two directions (placement bd): the same weights, bit by bit, as
 * two replicas of a pipeline with one direction; memory compared with its
 * prediction; checkpoints. */
#define _GNU_SOURCE
#include "sharded_runs.h"
#include "virtual_time.h"

/* Device d and its mirror are two replicas of the same two chunks, so the
 * gradients have the same sums as with 1F1B and twice as many replicas. */
static void as_with_replicas(void)
{
    static const setup all[] = {
        {.stages = 4, .method = "chimera", .validation = 0.1},
        {.stages = 4,
         .method = "dualpipe",
         .split = true,
         .dropout = 0.1,
         .transport = "local"},
        {.stages = 2, .method = "greedy", .split = true, .tied = true},
        {.stages = 2, .method = "gpipe", .again = 0x51},
        {.stages = 2, .method = "chimera", .model = tiny_gpt2},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        setup s = all[i], plain = s;
        s.chunks = 2;
        s.replicas = 1;
        s.both_ways = true;
        s.steps = plain.steps = 2;
        plain.chunks = 1;
        plain.replicas = 2;
        plain.method = plain.transport = NULL;
        snprintf(name, sizeof name, "case%zu", i);
        outcome want = run(&plain, name), got = run(&s, name);
        CHECK_MSG(are_same(&got, &want), "%s: other weights", name);
        CHECK(memcmp(got.losses, want.losses, sizeof got.losses) == 0);
        free(got.weights);
        free(want.weights);
    }
}

/* Two replicas of two directions sum in another order than four replicas; the
 * optimizer is on each rank as a whole, or sharded over all four. */
static void replicas_of_two_directions(void)
{
    static const uint32_t sites[] = {0, 1, 0, 1};
    setup s = {.stages = 2,
               .chunks = 2,
               .replicas = 2,
               .steps = 2,
               .method = "chimera",
               .both_ways = true};
    setup plain = {.stages = 2, .chunks = 1, .replicas = 1, .steps = 2};
    outcome want = run(&plain, "plain");
    check_near(&s, "two", &want);
    s.whole_optimizer = true;
    check_near(&s, "whole", &want);
    s.whole_optimizer = false;
    s.sites = sites;
    check_refused(&s, "two directions (placement bd) with replicas grouped");
    free(want.weights);
}

/* A checkpoint continues in both directions, and in one. */
static void resumes(void)
{
    char from[128];
    setup s = {.stages = 2,
               .chunks = 2,
               .replicas = 1,
               .steps = 4,
               .checkpoint_every = 2,
               .method = "chimera",
               .both_ways = true};
    outcome want = run(&s, "first");
    snprintf(from, sizeof from, "%s/first/step-00000002", folder);
    s.resume = from;
    check_same(&s, "again", &want);
    setup plain = {
        .stages = 2, .chunks = 1, .replicas = 2, .steps = 4, .resume = from};
    check_same(&plain, "one way", &want);
    free(want.weights);
}

static void what_two_directions_cannot_do(void)
{
    setup s = {.stages = 2,
               .chunks = 2,
               .replicas = 1,
               .steps = 3,
               .method = "gpipe",
               .both_ways = true};
    setup three = s;
    three.stages = 3;
    check_refused(&three, "on an even number of devices, not on 3");
    setup cut = s;
    cut.tensor = 2;
    check_refused(&cut, "with tensor or context above 1");
    setup experts = s;
    experts.experts = true;
    check_refused(&experts, "with experts");
    setup sharded = s;
    sharded.gradients = 1;
    sharded.by_layer = true;
    check_refused(&sharded, "with ZeRO 2 or 3");
    static const uint32_t moved[] = {2, 6, 6, 2}; /* of both directions */
    s.then = "gpipe";
    s.layers = moved;
    free(run(&s, "moved").weights);
    CHECK_HAS(switch_refused, "the pipeline has two directions");
}

int main(void)
{
    if (!folder_begin("directions", 4000))
        return 1;
    RUN_VIRTUAL(as_with_replicas);
    RUN_VIRTUAL(replicas_of_two_directions);
    RUN_VIRTUAL(resumes);
    RUN_VIRTUAL(what_two_directions_cannot_do);
    folder_end();
    return test_summary();
}
