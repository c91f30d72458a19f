/* SPDX-License-Identifier: Apache-2.0 */
/* The optical simulation in cases computed by hand, exact to the nanosecond. */
#include "nsfnet.h"
#include "test.h"

#include "network/optical/device_placement.h"
#include "network/optical/simulation.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>

#include <stdlib.h>

#define STAGES 8

static lhi_network *network(const lh_topology *t, bool shared)
{
    lhi_reach any = {INT64_MAX, 75000};
    lhi_network *n = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_network_make(t, 5, 80, shared, &any, 1, &n, &err), err);
    return n;
}

/* --- spectrum ------------------------------------------------------------- */

static uint64_t slots_of(const char *text)
{
    uint64_t word = 0;
    for (uint32_t i = 0; text[i]; i++)
        word |= (uint64_t)(text[i] == '1') << i;
    return word;
}

static void contiguity(void)
{
    /* Transitions from a free slot to a used one: before slots 4 and 8, among
     * nine pairs of neighbours; before slot 4, among the five pairs from 2 to
     * 7; nowhere. */
    uint64_t busy = slots_of("1100100010");
    CHECK_NEAR(lhi_spectrum_contiguity(&busy, 0, 9), 1 - 2.0 / 9, 0);
    CHECK_NEAR(lhi_spectrum_contiguity(&busy, 2, 7), 1 - 1.0 / 5, 1e-15);
    CHECK_NEAR(lhi_spectrum_contiguity(&busy, 5, 7), 1, 0);
}

static void fitness(void)
{
    uint64_t busy[4] = {slots_of("1100001000"), slots_of("1000000010"),
                        slots_of("0000110000"), slots_of("0000000000")};
    lhi_spectrum s = {.n_fibres = 4, .slots = 10, .n_words = 1, .busy = busy};
    uint32_t a_fibres[] = {0, 1}, b_fibres[] = {2, 3};
    lhi_path paths[] = {
        {.length_m = 1500000, .mbps = 75000, .hops = 2, .fibres = a_fibres},
        {.length_m = 1700000,
         .mbps = 75000,
         .hops = 2,
         .index = 1,
         .fibres = b_fibres}};
    uint64_t starts;
    CHECK(lhi_path_starts(&s, &paths[0], 2, &starts));
    CHECK_INT(starts, slots_of("0011100000"));
    /* Blocks at 2, 3 and 4, on two fibres with nine pairs of neighbours: the
     * transitions on the first fibre are 1, 2 and 1, on the second 2 each. 15
     * out of 20 slots are free. */
    CHECK_NEAR(
        lhi_assignment_fitness(&s, &lhi_cba_defaults, &paths[0], 2, &starts),
        (1.0 - 10.0 / 54) / (1500 * 0.75), 0);
    CHECK_INT(lhi_assignment_best_block(&s, &paths[0], 2, &starts), 2);
    CHECK(lhi_path_starts(&s, &paths[1], 2, &starts));
    CHECK_INT(starts, slots_of("1110001110"));
    /* Six blocks, at 0, 1, 2, 6, 7 and 8: the transitions on the first fibre
     * are 1, 2, 1, 1, 2 and 2, on the empty one 0 at 0 and 1 elsewhere. */
    CHECK_NEAR(
        lhi_assignment_fitness(&s, &lhi_cba_defaults, &paths[1], 2, &starts),
        (1.0 - (9.0 + 5) / 108) / (1700 * 0.9), 0);
    CHECK_INT(lhi_assignment_best_block(&s, &paths[1], 2, &starts), 0);
    lhi_policy cba = {.assignment = LH_CBA, .request_slots = 2};
    lhi_paths both = {2, paths};
    lhi_request r = {.paths = &both, .policy = &cba, .slots = 2, .bits = 1};
    lhi_circuit_grant g = {0};
    CHECK(lhi_assignment_choose(&s, &r, &g));
    CHECK(g.path == &paths[0]);
    CHECK_INT(g.first, 2);
    /* The other readings of the paper: delta as a factor prefers b; the index
     * of the block alone is 1, and its first block is taken. */
    lhi_cba_rules rules = lhi_cba_defaults;
    rules.free_share_factor = true;
    cba.cba = &rules;
    CHECK_NEAR(lhi_assignment_fitness(&s, &rules, &paths[1], 2, &starts),
               (1.0 - 14.0 / 108) * 0.9 / 1700, 1e-19);
    CHECK(lhi_assignment_choose(&s, &r, &g));
    CHECK(g.path == &paths[1]);
    rules = lhi_cba_defaults;
    rules.block_contiguity = true;
    CHECK_NEAR(lhi_assignment_fitness(&s, &rules, &paths[1], 2, &starts),
               1 / (1700 * 0.9), 0);
    busy[0] = slots_of("1100001100");
    busy[1] = slots_of("1000000100");
    CHECK(lhi_assignment_choose(&s, &r, &g));
    CHECK(g.path == &paths[0]);
    CHECK_INT(g.first, 2);
    cba.cba = NULL;
    CHECK(lhi_assignment_choose(&s, &r, &g));
    CHECK(g.path == &paths[0]);
    CHECK_INT(g.first, 8);
    /* A guard slot needs a third free slot, and is occupied. */
    s.guard = 1;
    CHECK(lhi_assignment_first_fit(&s, &both, 2, 2, &g));
    CHECK_INT(g.first, 2);
    CHECK_INT(g.slots, 3);
    CHECK(lhi_assignment_choose(&s, &r, &g));
    CHECK_INT(g.slots, 3);
}

/* Blocks, fitness and best block compared with the definition, slot by slot. */
static bool free_block(const lhi_spectrum *s, const lhi_path *p, uint32_t b,
                       uint32_t n)
{
    for (uint32_t h = 0; h < p->hops; h++)
        for (uint32_t j = b; j < b + n; j++)
            if (j >= s->slots ||
                lhi_slot_is_occupied(lhi_fibre(s, p->fibres[h]), j))
                return false;
    return true;
}

static int64_t steps_with(const lhi_spectrum *s, uint32_t fibre, uint32_t b,
                          uint32_t n)
{
    const uint64_t *busy = lhi_fibre(s, fibre);
    int64_t steps = 0;
    bool before = true;
    for (uint32_t j = 0; j < s->slots; j++) {
        bool held = lhi_slot_is_occupied(busy, j) || (j >= b && j < b + n);
        steps += held && !before;
        before = held;
    }
    return steps;
}

static void spectrum_by_definition(void)
{
    lhi_random r = {.state = 7};
    for (int round = 0; round < 2000; round++) {
        uint64_t busy[3 * LHI_MAX_WORDS] = {0};
        lhi_spectrum s = {.n_fibres = 3, .busy = busy};
        s.slots = 2 + lhi_random_below(&r, 200);
        s.n_words = (s.slots + 63) / 64;
        uint32_t density = lhi_random_below(&r, 60);
        for (uint32_t f = 0; f < 3; f++)
            for (uint32_t j = 0; j < s.slots; j++)
                if (lhi_random_below(&r, 100) < density)
                    lhi_fibre(&s, f)[j / 64] |= UINT64_C(1) << j % 64;
        uint32_t fibres[] = {0, 1, 2};
        lhi_path p = {.length_m = 1000000,
                      .hops = 1 + lhi_random_below(&r, 3),
                      .fibres = fibres};
        uint32_t n = 1 + lhi_random_below(&r, 20), best = 0;
        uint64_t starts[LHI_MAX_WORDS];
        bool any = lhi_path_starts(&s, &p, n, starts);
        int64_t total = 0, blocks = 0, least = INT64_MAX;
        for (uint32_t b = 0; b < s.slots; b++) {
            bool fits = free_block(&s, &p, b, n);
            if (n <= s.slots)
                CHECK_INT(lhi_slot_is_occupied(starts, b), fits);
            if (!fits)
                continue;
            int64_t steps = 0;
            for (uint32_t h = 0; h < p.hops; h++)
                steps += steps_with(&s, h, b, n);
            total += steps;
            blocks++;
            if (steps < least) {
                least = steps;
                best = b;
            }
        }
        CHECK_INT(any, blocks > 0);
        if (!any)
            continue;
        double delta = 1.0 - (double)lhi_path_count_occupied(&s, &p) /
                                 (double)(p.hops * s.slots);
        double index =
            1.0 - (double)total / (double)(blocks * p.hops * (s.slots - 1));
        CHECK(lhi_assignment_fitness(&s, &lhi_cba_defaults, &p, n, starts) ==
              index / (1000.0 * delta));
        CHECK_INT(lhi_assignment_best_block(&s, &p, n, starts), best);
    }
}

static void messages(void)
{
    /* Mbit/s are bits per 1000 ns; started units count fully. */
    for (int64_t bits = 1; bits < INT64_C(1) << 40; bits = bits * 5 + 3)
        for (int64_t slots = 1; slots <= 16; slots++) {
            const int64_t per_us = 75000 * slots;
            CHECK_INT(lhi_serialisation_ns(bits, 75000, (uint32_t)slots),
                      (bits * 1000 + per_us - 1) / per_us);
        }
}

/* --- whole runs ----------------------------------------------------------- */

enum { ITERATIONS = 11 };

/* Results of a run. */
typedef struct outcome {
    int64_t ns[ITERATIONS];
    uint32_t labels[ITERATIONS], requested[ITERATIONS], refused[ITERATIONS];
    uint32_t blocked;
} outcome;

static outcome run_job(lhi_policy policy, const lhi_chain *chain,
                       const uint32_t *sites, double erlang, uint64_t seed)
{
    outcome o = {0};
    lh_error err = {0};
    lh_topology *t = nsfnet();
    lhi_network *n = network(t, false);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_program program;
    CHECK_OK(lhi_program_build_chain(chain, mem, &program, &err), err);
    CHECK_INT(program.bound_ns,
              (int64_t)(chain->microbatches + chain->stages - 1) *
                  (chain->forward_ns + chain->backward_ns));
    uint32_t drawn[STAGES];
    if (!sites) {
        lhi_random r = {.state = seed};
        CHECK_OK(lhi_device_placement_random(&r, NODES, 6, STAGES, drawn, &err),
                 err);
        sites = drawn;
    }
    lhi_optical_job_output job_out = {.iteration_ns = o.ns,
                                      .labels = o.labels,
                                      .requested = o.requested,
                                      .refused = o.refused};
    lhi_optical_run_output out = {.jobs = &job_out};
    lhi_background b = {
        .erlang = erlang, .holding_ns = 1e9, .slots_min = 1, .slots_max = 8};
    lhi_optical_run_job job = {
        .policy = &policy, .program = &program, .sites = sites};
    lhi_optical_run_input in = {.network = n,
                                .background = &b,
                                .jobs = &job,
                                .n_jobs = 1,
                                .retry_ns = 5000000,
                                .iterations = ITERATIONS - 1,
                                .seed = seed};
    CHECK_OK(lhi_optical_simulate(&in, &out, &err), err);
    for (int i = 0; i < ITERATIONS; i++)
        o.blocked += o.refused[i];
    lhi_arena_free(mem);
    lhi_network_free(n);
    lh_topology_free(t);
    return o;
}

static lhi_chain chain8b(uint32_t microbatches, lhi_program_order order)
{
    return (lhi_chain){.stages = STAGES,
                       .microbatches = microbatches,
                       .forward_ns = 10000000,
                       .backward_ns = 17700000,
                       .bits = 4294967296,
                       .order = order,
                       .warm_up_factor = 1};
}

/* Creates the chain as a pipeline whose links take the messages' time: 5000 ns
 * of light per metres after the sending time. */
static lh_pipeline *chain_pipeline(const lhi_chain *chain,
                                   const uint32_t *sites, uint32_t slots)
{
    char text[4096];
    int64_t metres[NODES][NODES];
    lh_topology *t = nsfnet();
    lh_pipeline *p = NULL;
    lh_error err = {0};
    const int64_t sent_ns = lhi_serialisation_ns(chain->bits, 75000, slots);
    all_distances(t, metres);
    lh_topology_free(t);
    int n = snprintf(text, sizeof text,
                     "longhaul: pipeline/1\ntime_unit: ns\n"
                     "microbatches: %" PRIu32 "\ndevices: %d\n"
                     "backward: joint\nchunks:\n",
                     chain->microbatches, STAGES);
    for (uint32_t s = 0; s < STAGES; s++)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "  - {device: %" PRIu32 ", F: %" PRId64 ", D: %" PRId64
                      ", W: 0}\n",
                      s, chain->forward_ns, chain->backward_ns);
    n += snprintf(text + n, sizeof text - (size_t)n, "links:\n");
    for (uint32_t s = 0; s + 1 < STAGES; s++)
        for (uint32_t back = 0; back < 2; back++)
            if (sites[s] != sites[s + 1])
                n +=
                    snprintf(text + n, sizeof text - (size_t)n,
                             "  - {from: %" PRIu32 ", to: %" PRIu32
                             ", latency: %" PRId64 ", transfer: %" PRId64 "}\n",
                             s + back, s + 1 - back,
                             5 * metres[sites[s]][sites[s + 1]], sent_ns);
    CHECK_OK(lh_pipeline_parse(text, (size_t)n, "chain", &p, &err), err);
    return p;
}

/* Counts passes that waited for a message from another site on a free device.
 */
static uint32_t count_bound(const lh_timeline *t, const uint32_t *sites)
{
    uint32_t n_bound = 0;
    for (uint32_t d = 0; d < STAGES; d++) {
        uint32_t n;
        const lh_timeline_run *run = lh_timeline_runs(t, d, &n);
        for (uint32_t i = 0; i < n; i++)
            if (run[i].message != LH_NONE) {
                const uint32_t from = run[i].pass.kind == LH_F ? d - 1 : d + 1;
                n_bound += sites[from] != sites[d] &&
                           run[i].start_ns > (i > 0 ? run[i - 1].end_ns : 0);
            }
    }
    return n_bound;
}

/* With capacity for all messages on the shortest paths, the network equals
 * separate links: every iteration takes the pipeline simulator's time, and as
 * many passes wait. The capacity suffices: with five microbatches and seven
 * pairs of neighbours at most 70 messages are in flight, and there are 80
 * slots. */
static void as_a_pipeline(void)
{
    static const char *const methods[] = {"gpipe", "1f1b"};
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (int i = 0; i < 2; i++) {
            lhi_chain chain = chain8b(5, i ? LHI_1F1B : LHI_GPIPE);
            lhi_policy policy = {.assignment = seed % 2 ? LH_KSP_FF : LH_SD_FF,
                                 .request_slots = 1};
            uint32_t sites[STAGES];
            lhi_random r = {.state = seed};
            lh_error err = {0};
            lh_schedule *s = NULL;
            lh_timeline *t = NULL;
            CHECK_OK(
                lhi_device_placement_random(&r, NODES, 6, STAGES, sites, &err),
                err);
            lh_pipeline *p = chain_pipeline(&chain, sites, 1);
            CHECK_OK(lh_method_run(methods[i], p, NULL, &s, NULL, &err), err);
            CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
            outcome o = run_job(policy, &chain, sites, 0, seed);
            for (int k = 0; k < ITERATIONS; k++) {
                CHECK_INT(o.ns[k], lh_timeline_makespan(t));
                CHECK_INT(o.labels[k], count_bound(t, sites));
            }
            CHECK_INT(o.blocked, 0);
            lh_timeline_free(t);
            lh_schedule_free(s);
            lh_pipeline_free(p);
        }
}

/* Under every policy and with much other traffic: the same seed gives the same
 * result, no iteration is below the bound, and rejections never exceed
 * requests. */
static void same_again(void)
{
    static const lhi_policy policies[] = {
        {.assignment = LH_SD_FF, .request_slots = 2},
        {.assignment = LH_KSP_FF, .request_slots = 2},
        {.assignment = LH_CBA, .request_slots = 2},
        {.assignment = LH_CBA,
         .request_slots = 2,
         .ladder = true,
         .keep_labels = true},
        {.assignment = LH_SLACK, .request_slots = 2, .ask_late = true},
    };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (int order = 0; order < 2; order++) {
            lhi_chain chain = chain8b(16, order ? LHI_1F1B : LHI_GPIPE);
            outcome a = run_job(policies[i], &chain, NULL, 150, 1);
            outcome b = run_job(policies[i], &chain, NULL, 150, 1);
            CHECK(memcmp(&a, &b, sizeof a) == 0);
            for (int k = 0; k < ITERATIONS; k++) {
                CHECK(a.ns[k] >= (16 + STAGES - 1) * INT64_C(27700000));
                CHECK(a.refused[k] <= a.requested[k]);
            }
        }
}

/* One microbatch: one message in flight, a closed form. */
static void one_microbatch(void)
{
    lhi_chain chain = chain8b(1, LHI_1F1B);
    lh_topology *t = nsfnet();
    lh_error err = {0};
    uint32_t sites[STAGES], n_messages = 0;
    int64_t metres = 0;
    lhi_random r = {.state = 1};
    CHECK_OK(lhi_device_placement_random(&r, NODES, 6, STAGES, sites, &err),
             err);
    CHECK_OK(lhi_device_placement_length(t, sites, STAGES, &metres, &err), err);
    lh_topology_free(t);
    for (uint32_t i = 0; i + 1 < STAGES; i++)
        n_messages += sites[i] != sites[i + 1];
    /* All passes, and all messages in both directions. */
    const int64_t passes_ns = STAGES * (chain.forward_ns + chain.backward_ns);
    int64_t want[41];
    for (uint32_t n = 1; n <= 40; n++)
        want[n] = passes_ns +
                  2 * (5 * metres +
                       n_messages * lhi_serialisation_ns(chain.bits, 75000, n));
    for (uint32_t n0 = 1; n0 <= 40; n0++) {
        lhi_policy p = {.assignment = LH_KSP_FF, .request_slots = n0};
        outcome o = run_job(p, &chain, NULL, 0, 1);
        CHECK_INT(o.ns[0], want[n0]);
        CHECK_INT(o.ns[10], want[n0]);
        CHECK_INT(o.blocked, 0);
    }
    lhi_policy sd = {.assignment = LH_SD_FF, .request_slots = 2};
    lhi_policy cba = {.assignment = LH_CBA, .request_slots = 2};
    CHECK_INT(run_job(sd, &chain, NULL, 0, 1).ns[3], want[2]);
    /* After the first iteration every message has twice the slots. */
    outcome o = run_job(cba, &chain, NULL, 0, 1);
    CHECK_INT(o.ns[0], want[2]);
    CHECK_INT(o.ns[1], want[4]);
    CHECK_INT(o.ns[2], want[4]);
}

/* Two microbatches on two stages. The second forward F1 waits for both
 * messages, because the port sends sequentially. So does the second backward,
 * B1, on the first stage, if sending takes longer than a pass. */
static void two_stages(void)
{
    lhi_chain chain = chain8b(2, LHI_GPIPE);
    chain.stages = 2;
    uint32_t sites[] = {7, 4}; /* nodes 8 and 5, via 7: 1350 metres */
    const int64_t light = 5000 * 1350;
    const int64_t f = chain.forward_ns, b = chain.backward_ns;
    const int64_t two = lhi_serialisation_ns(chain.bits, 75000, 2);
    const int64_t four = lhi_serialisation_ns(chain.bits, 75000, 4);
    lhi_policy ksp = {.assignment = LH_KSP_FF, .request_slots = 2};
    lhi_policy cba = {.assignment = LH_CBA, .request_slots = 2};
    CHECK(four > f && four < b && b < two);
    outcome o = run_job(ksp, &chain, sites, 0, 1);
    for (int i = 0; i < ITERATIONS; i++)
        CHECK_INT(o.ns[i], f + 2 * two + light + f + b + 2 * two + light + b);
    CHECK_INT(o.labels[0], 4);
    o = run_job(cba, &chain, sites, 0, 1);
    CHECK_INT(o.ns[0], f + 2 * two + light + f + b + 2 * two + light + b);
    /* All four waited and have four slots: now the gradient from B1 leaves when
     * B1 ends, and arrives as the first stage ends B0. */
    CHECK_INT(o.labels[0], 4);
    CHECK_INT(o.ns[1], f + 2 * four + light + f + 2 * b + four + light + b);
    CHECK_INT(o.labels[1], 3);
    /* So its message has two slots again. */
    CHECK_INT(o.ns[2], f + 2 * four + light + f + 2 * b + two + light + b);
}

/* Weight gradients run while the next gradient is in flight, if they end before
 * it arrives. Nodes 9 and 12 are 1.5 ms of light apart, a message occupies the
 * port for 1 ms. F1 arrives at 3.6 ms; the gradients leave the second device at
 * 3.8 and 4.8, and arrive at 6.3 and 7.3. */
static int64_t iteration_with_weights(int weight_us, bool fill)
{
    static const char orders[] = "0F0,0F1,0I0,0I1,0W0,0W1\n"
                                 "1F0,1F1,1I0,1I1,1W0,1W1\n";
    char text[512];
    lh_error err = {0};
    lh_pipeline *pipeline = NULL;
    lh_schedule *schedule = NULL;
    int len = snprintf(text, sizeof text,
                       "longhaul: pipeline/1\ntime_unit: us\n"
                       "microbatches: 2\ndevices: 2\nbackward: split\n"
                       "chunks:\n- {device: 0, F: 100, D: 100, W: %d}\n"
                       "- {device: 1, F: 100, D: 100, W: 0}\n",
                       weight_us);
    CHECK_OK(lh_pipeline_parse(text, (size_t)len, "p", &pipeline, &err), err);
    CHECK_OK(lh_schedule_parse(orders, sizeof orders - 1, "s", &schedule, &err),
             err);
    lh_topology *t = nsfnet();
    lhi_network *n = network(t, false);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_program program;
    CHECK_OK(lhi_program_build_schedule(pipeline, schedule, 75000000, mem,
                                        &program, &err),
             err);
    uint32_t sites[] = {8, 11};
    outcome o = {0};
    lhi_optical_job_output job_out = {.iteration_ns = o.ns,
                                      .labels = o.labels,
                                      .requested = o.requested,
                                      .refused = o.refused};
    lhi_optical_run_output out = {.jobs = &job_out};
    lhi_policy policy = {
        .assignment = LH_KSP_FF, .request_slots = 1, .fill_idle = fill};
    lhi_background none = {.holding_ns = 1e9, .slots_min = 1, .slots_max = 1};
    lhi_optical_run_job job = {
        .policy = &policy, .program = &program, .sites = sites};
    lhi_optical_run_input in = {.network = n,
                                .background = &none,
                                .jobs = &job,
                                .n_jobs = 1,
                                .retry_ns = 5000000,
                                .iterations = 1,
                                .seed = 1};
    CHECK_OK(lhi_optical_simulate(&in, &out, &err), err);
    /* A pass that follows a filled gap did not wait. */
    CHECK_INT(o.labels[0], fill && weight_us == 900 ? 3 : 4);
    lhi_arena_free(mem);
    lhi_network_free(n);
    lh_topology_free(t);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    return o.ns[1];
}

/* The first device has I0 from 6.3 to 6.4 ms and I1 from 7.3 to 7.4. */
static void weights_fill_idle_time(void)
{
    const int us = 1000;
    /* Both W after I1. */
    CHECK_INT(iteration_with_weights(500, false), (7400 + 2 * 500) * us);
    /* W0 between the two, where 900 us are free. */
    CHECK_INT(iteration_with_weights(500, true), (7400 + 500) * us);
    CHECK_INT(iteration_with_weights(900, true), (7400 + 900) * us);
    /* Too long for that. */
    CHECK_INT(iteration_with_weights(901, true), (7400 + 2 * 901) * us);
    CHECK_INT(iteration_with_weights(2000, true), (7400 + 2 * 2000) * us);
}

/* Both directions share one spectrum if configured. */
static void shared_fibres(void)
{
    lh_topology *t = nsfnet();
    lhi_network *own = network(t, false), *shared = network(t, true);
    CHECK_INT(lhi_network_n_fibres(own), 2 * t->n_cables);
    CHECK_INT(lhi_network_n_fibres(shared), t->n_cables);
    uint32_t there = lhi_network_paths(own, 0, 1)->paths[0].fibres[0];
    uint32_t back = lhi_network_paths(own, 1, 0)->paths[0].fibres[0];
    CHECK(there != back);
    CHECK_INT(lhi_network_paths(shared, 0, 1)->paths[0].fibres[0],
              lhi_network_paths(shared, 1, 0)->paths[0].fibres[0]);
    lhi_network_free(own);
    lhi_network_free(shared);
    lh_topology_free(t);
}

int main(void)
{
    RUN(contiguity);
    RUN(fitness);
    RUN(spectrum_by_definition);
    RUN(messages);
    RUN(as_a_pipeline);
    RUN(same_again);
    RUN(one_microbatch);
    RUN(two_stages);
    RUN(weights_fill_idle_time);
    RUN(shared_fibres);
    return test_summary();
}
