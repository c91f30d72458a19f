/* SPDX-License-Identifier: Apache-2.0 */
/* Training with the sharding of elastic plans: gradients are scattered per
 * group and freed, parameters gathered before use and freed. Weights are
 * compared with optimizer sharding alone, memory with its prediction. */
#define _GNU_SOURCE
#include "sanitized.h"
#include "scripted_switches.h"
#include "sharded_runs.h"
#include "virtual_time.h"

/* --- tests ---------------------------------------------------------------- */

static outcome plain; /* two replicas, optimizer sharded */

static void one_group_equals_zero_1(void)
{
    static const setup all[] = {
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 0,
         .parameters = 0,
         .scatter = 1,
         .forward = 1,
         .backward = 1},
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 1,
         .parameters = 0,
         .scatter = 3,
         .forward = 1,
         .backward = 1},
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 1,
         .parameters = 1,
         .scatter = 3,
         .forward = 2,
         .backward = 2},
        {.stages = 2,
         .chunks = 4,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = .6,
         .parameters = .3,
         .scatter = 2,
         .forward = 3,
         .backward = 2,
         .transport = "local"},
        {.stages = 1,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = 1,
         .parameters = .7,
         .scatter = 8,
         .forward = 8,
         .backward = 8,
         .again = LH_PART_ALL},
        {.stages = 4,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "8",
         .dequeue = "8",
         .gradients = .5,
         .parameters = .5,
         .scatter = 2,
         .forward = 3,
         .backward = 2,
         .delays = true},
    };
    const setup reference = {.stages = 2, .chunks = 1, .replicas = 2};
    plain = run(&reference, "plain");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        snprintf(name, sizeof name, "once%zu", i);
        check_same(&all[i], name, &plain);
    }
}

/* Equal groups and gradients give equal bits in any configuration. */
static void groups(void)
{
    static const setup all[] = {
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = 0,
         .scatter = 3,
         .forward = 1,
         .backward = 1},
        {.stages = 2,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = 1,
         .scatter = 2,
         .forward = 2,
         .backward = 2},
        {.stages = 2,
         .chunks = 4,
         .replicas = 2,
         .enqueue = "4,2,2",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = .4,
         .scatter = 1,
         .forward = 1,
         .backward = 2,
         .transport = "local"},
        {.stages = 1,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = 1,
         .scatter = 4,
         .forward = 4,
         .backward = 4,
         .again = LH_PART_ALL},
        {.stages = 4,
         .chunks = 2,
         .replicas = 2,
         .enqueue = "4,4",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = .6,
         .scatter = 2,
         .forward = 3,
         .backward = 2,
         .delays = true},
        {.stages = 1,
         .chunks = 1,
         .replicas = 2,
         .enqueue = "3,5",
         .dequeue = "4,4",
         .gradients = 1,
         .parameters = .5,
         .scatter = 2,
         .forward = 1,
         .backward = 1,
         .again = 0x51},
    };
    outcome first = {0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[32];
        double weights, losses;
        snprintf(name, sizeof name, "groups%zu", i);
        outcome o = run(&all[i], name);
        differences(&o, &plain, &weights, &losses);
        CHECK_MSG(losses < 1e-6, "%s: losses differ by %g", name, losses);
        CHECK_MSG(weights > 0, "%s: sums in another order would differ", name);
        if (getenv("LONGHAUL_SHOW"))
            fprintf(stderr, "%s: weights %g, losses %g\n", name, weights,
                    losses);
        if (i == 0) {
            first = o;
            continue;
        }
        CHECK_MSG(are_same(&o, &first), "%s: other weights", name);
        free(o.weights);
    }
    free(first.weights);
}

/* Expert weights are contiguous, gate, up and down per expert: a shard boundary
 * never splits them. */
static void experts(void)
{
    static const double shares[] = {1, .55, .42, .3};
    setup reference = {
        .stages = 2, .chunks = 1, .replicas = 2, .experts = true};
    setup other = {.stages = 1,
                   .chunks = 2,
                   .replicas = 2,
                   .enqueue = "4,4",
                   .dequeue = "4,4",
                   .scatter = 3,
                   .forward = 2,
                   .backward = 2,
                   .experts = true};
    outcome want = run(&reference, "experts");
    for (uint32_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        char name[32];
        other.gradients = shares[i];
        other.parameters = i % 2 ? 0 : shares[i];
        snprintf(name, sizeof name, "experts-%.2f", shares[i]);
        check_near(&other, name, &want);
    }
    free(want.weights);
}

/* One level and recomputation per checkpoint, with validation in between, tied
 * embeddings and another pipeline: bitwise equal as long as all backward passes
 * are in one group. */
static void levels_change_at_checkpoints(void)
{
    static const double shares[][2] = {{0, 0}, {1, 1}, {.7, 0}, {1, .4}};
    setup reference = {.stages = 2,
                       .chunks = 1,
                       .replicas = 2,
                       .tied = true,
                       .validation = .1,
                       .checkpoint_every = 2,
                       .steps = 2};
    setup other = {.stages = 2,
                   .chunks = 2,
                   .replicas = 2,
                   .enqueue = "8",
                   .dequeue = "8",
                   .scatter = 3,
                   .forward = 2,
                   .backward = 2,
                   .tied = true,
                   .validation = .1,
                   .checkpoint_every = 2};
    char from[2][128];
    snprintf(from[0], sizeof from[0], "%s/tied", folder);
    snprintf(from[1], sizeof from[1], "%s/levels", folder);
    for (uint32_t i = 0; i < 4; i++) {
        reference.steps = other.steps = 2 * (i + 1);
        reference.resume = i ? from[0] : NULL;
        other.resume = i ? from[1] : NULL;
        other.gradients = shares[i][0];
        other.parameters = shares[i][1];
        other.again = i % 2 ? LH_PART_ALL : 0;
        other.stages = i % 2 ? 1 : 2;
        outcome a = run(&reference, "tied"), b = run(&other, "levels");
        CHECK_MSG(are_same(&a, &b), "after change %u: other weights", i);
        free(a.weights);
        free(b.weights);
    }
}

/* Another pass order launches the same operations, which must provide the data
 * that its passes need; otherwise it is rejected. */
static void other_pass_orders(void)
{
    static const struct {
        const char *groups, *method, *refused;
    } rows[] = {{"8", "gpipe", ""},
                {"4,4", "elastic", ""},
                {"4,4", "gpipe", "for the all-gather of chunk 0 that 2F3"},
                {"4,4", "steady", "deadlock"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setup s = {.stages = 2,
                   .chunks = 2,
                   .replicas = 2,
                   .enqueue = rows[i].groups,
                   .dequeue = rows[i].groups,
                   .gradients = 1,
                   .parameters = .5,
                   .scatter = 2,
                   .forward = 2,
                   .backward = 2};
        outcome want = run(&s, "stays");
        s.then = rows[i].method;
        check_same(&s, rows[i].method, &want);
        CHECK_MSG(
            rows[i].refused[0] ? strstr(switch_refused, rows[i].refused) != NULL
                               : !switch_refused[0],
            "%s, %s: '%s'", rows[i].groups, rows[i].method, switch_refused);
        free(want.weights);
    }
}

static uint32_t next_random(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % n;
}

/* Splits n into random groups, none below `least`. */
static void draw_groups(uint32_t *state, uint32_t n, uint32_t least, char *text)
{
    const char *between = "";
    for (; n > 0; between = ",") {
        uint32_t one = least + next_random(state, n);
        if (one > n || n - one < least)
            one = n;
        text += sprintf(text, "%s%u", between, one);
        n -= one;
    }
}

/* Random groups, shares, buckets, chunks, stages and replicas. */
static void random_plans(void)
{
    uint32_t state = 7;
    for (uint32_t i = 0; i < OF_CASES(12); i++) {
        char name[32], up[64] = "", down[64] = "";
        double weights, losses;
        setup s = {.stages = 1 + next_random(&state, 4),
                   .chunks = 1 + next_random(&state, 2),
                   .replicas = 1u << next_random(&state, 3),
                   .again = next_random(&state, 2) ? LH_PART_ALL : 0,
                   .steps = STEPS};
        uint32_t n = ALL_MICROBATCHES / s.replicas;
        const setup plainly = {
            .stages = 1, .chunks = 1, .replicas = s.replicas};
        if (n < s.stages)
            s.stages = 1;
        draw_groups(&state, n, s.stages, up);
        draw_groups(&state, n, s.stages, down);
        s.enqueue = up;
        s.dequeue = down;
        s.gradients = next_random(&state, 5) / 4.0;
        s.parameters = s.gradients * next_random(&state, 5) / 4.0;
        s.scatter = 1 + next_random(&state, 4);
        s.forward = 1 + next_random(&state, 4);
        s.backward = 1 + next_random(&state, 4);
        snprintf(name, sizeof name, "any%u", i);
        outcome a = run(&s, name), b = run(&plainly, "any-plainly");
        differences(&a, &b, &weights, &losses);
        CHECK_MSG(losses < 1e-6,
                  "%s: %u stages, %u chunks, %u replicas, %s up, %s down, %g, "
                  "%g: losses differ by %g",
                  name, s.stages, s.chunks, s.replicas, s.enqueue, s.dequeue,
                  s.gradients, s.parameters, losses);
        free(a.weights);
        free(b.weights);
    }
}

/* With tensor or expert parallelism or split experts in addition. */
static void with_other_degrees(void)
{
    static lh_model (*const models[])(uint32_t) = {
        tiny_mixtral, tiny_mixtral, tiny_qwen3, tiny_deepseek, tiny_mixtral};
    uint32_t state = 11;
    for (uint32_t i = 0; i < OF_CASES(5); i++) {
        char name[32], up[64] = "", down[64] = "";
        double weights, losses;
        setup s = {.stages = 1 + next_random(&state, 2),
                   .chunks = 1 + next_random(&state, 2),
                   .replicas = 2,
                   .model = models[i],
                   .tensor = i ? 2 : 1,
                   .expert = i == 4 ? 2 : 1,
                   .cut = i < 2 ? 2 : 1, /* across replicas, or like layers */
                   .again = next_random(&state, 2) ? LH_PART_ALL : 0,
                   /* validation gathers all weights */
                   .validation = i ? .1 : 0,
                   .checkpoint_every = 2,
                   .rate = 3e-4};
        setup plainly = s;
        plainly.stages = plainly.chunks = 1;
        plainly.tensor = plainly.expert = plainly.cut = 1;
        draw_groups(&state, ALL_MICROBATCHES / 2, s.stages, up);
        draw_groups(&state, ALL_MICROBATCHES / 2, s.stages, down);
        s.enqueue = up;
        s.dequeue = down;
        s.gradients = (1 + next_random(&state, 4)) / 4.0;
        s.parameters = s.gradients * next_random(&state, 5) / 4.0;
        s.scatter = 1 + next_random(&state, 4);
        s.forward = 1 + next_random(&state, 4);
        s.backward = 1 + next_random(&state, 4);
        snprintf(name, sizeof name, "degrees%u", i);
        outcome a = run(&s, name), b = run(&plainly, "degrees-plainly");
        differences(&a, &b, &weights, &losses);
        CHECK_MSG(a.weights && b.weights && losses < 1e-6 && weights < 1e-4,
                  "%s: tensor %u, expert %u, %u stages, %u chunks, %s up, %s "
                  "down, %g, %g: losses differ by %g, weights by %g",
                  name, s.tensor, s.expert, s.stages, s.chunks, s.enqueue,
                  s.dequeue, s.gradients, s.parameters, losses, weights);
        free(a.weights);
        free(b.weights);
    }
}

/* Less than half where model state dominates: four replicas, many chunks. */
static void memory_is_lower(void)
{
    const setup much = {.stages = 1,
                        .chunks = 8,
                        .replicas = 4,
                        .enqueue = "4",
                        .dequeue = "4",
                        .scatter = 1,
                        .forward = 1,
                        .backward = 1};
    setup least = much;
    least.gradients = least.parameters = 1;
    least.again = LH_PART_ALL;
    least.forward = least.backward = 2;
    outcome a = run(&much, "much"), b = run(&least, "least");
    CHECK(are_same(&a, &b));
    CHECK_MSG(b.most_bytes < .5 * a.most_bytes, "%.0f of %.0f bytes",
              b.most_bytes, a.most_bytes);
    free(a.weights);
    free(b.weights);
}

/* --- faults --------------------------------------------------------------- */

/* Two chunks on one stage; the second one has these operations. */
#define TWO_CHUNKS(operations)                                                 \
    {                                                                          \
        .stages = 1, .chunks = 2, .replicas = 2, .enqueue = "8",               \
        .gradients = 1,                                                        \
        .data = "data_parallel:\n  groups: {enqueue: [8], dequeue: [4, 4]}\n"  \
                "  chunks: [{chunk: 0, all_gather: 5, reduce_scatter: 5}]\n"   \
                "  operations:\n" operations                                   \
    }
#define AGO                                                                    \
    "  - {chunk: 1, all_gather: 5, kind: AGO, launch: 0F0, before: 1F0}\n"
#define RSG "  - {chunk: 1, reduce_scatter: 5, kind: RSG, launch: 0B0}\n"
#define RSG0 "  - {chunk: 0, reduce_scatter: 5, kind: RSG, launch: 1B4}\n"
#define RSO "  - {chunk: 1, reduce_scatter: 5, kind: RSO, launch: 0B4}\n"
#define BUCKET(b, launched)                                                    \
    "  - {chunk: 1, reduce_scatter: 5, kind: RSG, bucket: " b                  \
    ", launch: " launched "}\n"
#define GATHERED(b, launched, waits)                                           \
    "  - {chunk: 1, all_gather: 5, kind: AGB, bucket: " b                      \
    ", launch: " launched waits "}\n"

static void invalid_plans_are_rejected(void)
{
    static const struct {
        setup s;
        const char *says;
    } rows[] = {
        {{.stages = 2, .chunks = 1, .replicas = 2, .gradients = 1},
         "it needs data_parallel.groups"},
        {TWO_CHUNKS(AGO RSO),
         "the gradients of two groups are not scattered yet"},
        {TWO_CHUNKS(AGO RSG RSG0), "its gradients are not scattered"},
        {TWO_CHUNKS(RSG RSG0 RSO), "the updated parameters are not gathered"},
        {TWO_CHUNKS(AGO RSG0 "  - {chunk: 1, reduce_scatter: 5, kind: RSO, "
                             "launch: 0B0}\n"),
         "the last scatter precedes the last backward"},
        {TWO_CHUNKS(AGO BUCKET("1/2", "0B0") RSG0 RSO),
         "a bucket of its gradients is missing or duplicate"},
        {TWO_CHUNKS(AGO BUCKET("0/2", "0B0") BUCKET("0/2", "0B1") RSG0 RSO),
         "a bucket of its gradients is missing or duplicate"},
        {TWO_CHUNKS(AGO BUCKET("0/3", "0B0") BUCKET("1/2", "0B1") RSG0 RSO),
         "a bucket of its gradients is missing or duplicate"},
        {TWO_CHUNKS(AGO RSG RSG0 GATHERED("1/2", "0B1", ", before: 1B4") RSO),
         "a bucket of its parameters is missing or duplicate"},
        {TWO_CHUNKS(AGO RSG RSG0 "  - {chunk: 1, reduce_scatter: 5, kind: RSO, "
                                 "bucket: 0/2, launch: 0B4}\n"),
         "an operation that runs once per iteration has buckets"},
        {{.stages = 1,
          .chunks = 1,
          .replicas = 2,
          .gradients = .1,
          .parameters = .2},
         "that of parameters at most that of gradients"},
    };
    const setup there[] = {
        TWO_CHUNKS(AGO RSG RSG0 RSO),
        TWO_CHUNKS(AGO BUCKET("0/2", "0B0") BUCKET("1/2", "0B1") RSG0 RSO),
        TWO_CHUNKS(AGO RSG RSG0 GATHERED("0/2", "0B0", "")
                       GATHERED("1/2", "0B1", ", before: 1B4") RSO)};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        free(run(&there[i], "all-there").weights);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refused(&rows[i].s, rows[i].says);
}

/* While the other ranks wait in a gather or scatter. */
static void a_rank_is_killed(void)
{
    setup s = {.stages = 2,
               .chunks = 2,
               .replicas = 2,
               .enqueue = "4,4",
               .dequeue = "4,4",
               .gradients = 1,
               .parameters = 1,
               .scatter = 2,
               .forward = 2,
               .backward = 2,
               .transport = "local",
               .steps = 100000};
    check_killed(&s);
    s.delays = true;
    check_killed(&s);
}

int main(void)
{
    if (!folder_begin("sharded", 9000))
        return 1;
    RUN_VIRTUAL(one_group_equals_zero_1);
    RUN_VIRTUAL(groups);
    RUN_VIRTUAL(experts);
    RUN_VIRTUAL(levels_change_at_checkpoints);
    RUN_VIRTUAL(other_pass_orders);
    RUN_VIRTUAL(random_plans);
    RUN_VIRTUAL(with_other_degrees);
    RUN_VIRTUAL(memory_is_lower);
    RUN_VIRTUAL(invalid_plans_are_rejected);
    RUN_VIRTUAL(a_rank_is_killed);
    free(plain.weights);
    folder_end();
    return test_summary();
}
