/* SPDX-License-Identifier: Apache-2.0 */
/* The optical simulation on cases worked by hand and to the nanosecond. */
#include "test.h"

#include "optical/optical_place.h"
#include "optical/traffic_run.h"

#include <stdlib.h>

#define NODES 14

static lh_topology *nsfnet(void)
{
    lh_topology *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_topology_read(TEST_DATA "/../../data/topologies/nsfnet.yaml",
                              &t, &err),
             err);
    return t;
}

static lhi_network *network(const lh_topology *t, bool shared)
{
    lhi_reach any = {INT64_MAX, 75000};
    lhi_network *n = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_network_make(t, 5, 80, shared, &any, 1, &n, &err), err);
    return n;
}

/* --- random numbers and places ---------------------------------------------
 */

static void random_numbers(void)
{
    lhi_random r = {.state = 1};
    CHECK(lhi_random_next(&r) == UINT64_C(0x910a2dec89025cc1));
    CHECK(lhi_random_next(&r) == UINT64_C(0xbeeb8da1658eec67));
    CHECK(lhi_random_next(&r) == UINT64_C(0xf893a2eefb32555e));
}

static void placements(void)
{
    static const struct {
        uint32_t ids[8];
        int64_t km;
        uint32_t ordered[8];
        int64_t ordered_km;
    } want[] = {
        {{12, 8, 9, 11, 1, 1, 12, 14},
         10200,
         {1, 1, 8, 9, 14, 12, 12, 11},
         4500},
        {{9, 12, 11, 8, 8, 8, 1, 10}, 8850, {1, 8, 8, 8, 9, 10, 12, 11}, 5550},
        {{2, 10, 1, 11, 1, 7, 2, 4}, 20400, {1, 1, 2, 2, 4, 7, 10, 11}, 6000},
        {{7, 2, 11, 2, 11, 8, 9, 13}, 12750, {2, 2, 7, 8, 9, 13, 11, 11}, 4500},
        {{9, 9, 11, 3, 6, 5, 1, 3}, 11100, {1, 3, 3, 5, 6, 9, 9, 11}, 7350},
    };
    lh_topology *t = nsfnet();
    lh_error err = {0};
    for (uint32_t seed = 1; seed <= 5; seed++) {
        uint32_t sites[8];
        int64_t km;
        lhi_random r = {.state = seed};
        CHECK_OK(lhi_place_random(&r, NODES, 6, 8, sites, &err), err);
        for (uint32_t i = 0; i < 8; i++)
            CHECK_INT(lh_topology_node_id(t, sites[i]), want[seed - 1].ids[i]);
        CHECK_OK(lhi_place_km(t, sites, 8, &km, &err), err);
        CHECK_INT(km, want[seed - 1].km);
        CHECK_OK(lhi_place_chain(t, sites, 8, &err), err);
        for (uint32_t i = 0; i < 8; i++)
            CHECK_INT(lh_topology_node_id(t, sites[i]),
                      want[seed - 1].ordered[i]);
        CHECK_OK(lhi_place_km(t, sites, 8, &km, &err), err);
        CHECK_INT(km, want[seed - 1].ordered_km);
    }
    lh_topology_free(t);
}

static void route_text(const lh_topology *t, const lh_route *r, char *out)
{
    int n = sprintf(out, "%" PRId64 ":", r->km);
    for (uint32_t i = 0; i < r->n_nodes; i++)
        n += sprintf(out + n, " %" PRId64, lh_topology_node_id(t, r->nodes[i]));
}

static void routes(void)
{
    static const struct {
        uint32_t from, to;
        const char *routes[5];
    } want[] = {
        {1,
         14,
         {"3600: 1 8 9 13 14", "3750: 1 8 9 12 14", "4650: 1 2 4 11 12 14",
          "4650: 1 2 4 11 13 14", "4950: 1 8 9 12 11 13 14"}},
        {2,
         9,
         {"3450: 2 4 5 7 8 9", "3600: 2 4 11 12 9", "3750: 2 4 11 13 9",
          "4050: 2 4 5 7 10 9", "4050: 2 4 11 12 14 13 9"}},
        {6,
         11,
         {"2700: 6 14 12 11", "2700: 6 14 13 11", "2700: 6 10 9 12 11",
          "2850: 6 10 9 13 11", "3150: 6 14 13 9 12 11"}},
        {8,
         5,
         {"1350: 8 7 5", "3450: 8 9 10 7 5", "3750: 8 9 10 6 5",
          "4200: 8 9 12 11 4 5", "4200: 8 9 13 14 6 5"}},
    };
    lh_topology *t = nsfnet();
    lh_error err = {0};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        lh_route *got = NULL;
        uint32_t n = 0;
        CHECK_OK(lh_topology_routes(t, lh_topology_find(t, want[i].from),
                                    lh_topology_find(t, want[i].to), 5, &got,
                                    &n, &err),
                 err);
        CHECK_INT(n, 5);
        for (uint32_t k = 0; k < n; k++) {
            char text[128];
            route_text(t, &got[k], text);
            CHECK_STR(text, want[i].routes[k]);
        }
        lh_routes_free(got);
    }
    lh_topology_free(t);
}

/* Every loop-free route of a small network, by depth-first search. */
typedef struct all_routes {
    const lh_topology *t;
    uint32_t to, n;
    lhi_fibre_route found[2048];
    uint32_t nodes[2048][NODES];
} all_routes;

static void search(all_routes *a, uint32_t *nodes, uint32_t hops, int64_t km)
{
    uint32_t at = nodes[hops];
    if (at == a->to) {
        if (a->n == 2048)
            return;
        memcpy(a->nodes[a->n], nodes, (hops + 1) * sizeof *nodes);
        a->found[a->n] = (lhi_fibre_route){km, hops, a->nodes[a->n]};
        a->n++;
        return;
    }
    for (uint32_t w = a->t->first_way[at]; w < a->t->first_way[at + 1]; w++) {
        bool used = false;
        for (uint32_t i = 0; i <= hops; i++)
            used |= nodes[i] == a->t->ways[w].node;
        if (used)
            continue;
        nodes[hops + 1] = a->t->ways[w].node;
        search(a, nodes, hops + 1, km + a->t->cables[a->t->ways[w].cable].km);
    }
}

static int by_rule(const void *x, const void *y)
{
    const lhi_fibre_route *a = x, *b = y;
    if (a->km != b->km)
        return a->km < b->km ? -1 : 1;
    if (a->hops != b->hops)
        return a->hops < b->hops ? -1 : 1;
    for (uint32_t i = 0; i <= a->hops; i++)
        if (a->nodes[i] != b->nodes[i])
            return a->nodes[i] < b->nodes[i] ? -1 : 1;
    return 0;
}

/* The 40 best of every pair are those that looking at all routes gives. */
static void routes_are_all(void)
{
    lh_topology *t = nsfnet();
    all_routes *a = calloc(1, sizeof *a);
    lh_error err = {0};
    for (uint32_t pair = 0; a && pair < NODES * NODES; pair++) {
        uint32_t from = pair / NODES, to = pair % NODES, n = 0;
        uint32_t nodes[NODES + 1] = {from};
        lh_route *got = NULL;
        if (from == to)
            continue;
        a->t = t;
        a->to = to;
        a->n = 0;
        search(a, nodes, 0, 0);
        qsort(a->found, a->n, sizeof *a->found, by_rule);
        CHECK_OK(lh_topology_routes(t, from, to, 40, &got, &n, &err), err);
        CHECK_INT(n, a->n < 40 ? a->n : 40);
        for (uint32_t k = 0; k < n; k++) {
            CHECK_INT(got[k].km, a->found[k].km);
            CHECK_INT(got[k].n_nodes, a->found[k].hops + 1);
            CHECK(memcmp(got[k].nodes, a->found[k].nodes,
                         got[k].n_nodes * sizeof *nodes) == 0);
        }
        lh_routes_free(got);
    }
    free(a);
    lh_topology_free(t);
}

/* --- spectrum
 * ----------------------------------------------------------------- */

static uint64_t slots_of(const char *text)
{
    uint64_t word = 0;
    for (uint32_t i = 0; text[i]; i++)
        word |= (uint64_t)(text[i] == '1') << i;
    return word;
}

static void contiguity(void)
{
    uint64_t busy = slots_of("1100100010");
    CHECK_NEAR(lhi_contiguity(&busy, 0, 9), 1 - 2.0 / 9, 0);
    CHECK_NEAR(lhi_contiguity(&busy, 2, 7), 0.8, 1e-15);
    CHECK_NEAR(lhi_contiguity(&busy, 5, 7), 1, 0);
}

static void fitness(void)
{
    uint64_t busy[4] = {slots_of("1100001000"), slots_of("1000000010"),
                        slots_of("0000110000"), slots_of("0000000000")};
    lhi_spectrum s = {.n_fibres = 4, .slots = 10, .n_words = 1, .busy = busy};
    uint32_t a_fibres[] = {0, 1}, b_fibres[] = {2, 3};
    lhi_path paths[] = {
        {.km = 1500, .mbps = 75000, .hops = 2, .fibres = a_fibres},
        {.km = 1700, .mbps = 75000, .hops = 2, .index = 1, .fibres = b_fibres}};
    uint64_t starts;
    CHECK(lhi_path_starts(&s, &paths[0], 2, &starts));
    CHECK_INT(starts, slots_of("0011100000"));
    CHECK_NEAR(lhi_fitness(&s, &paths[0], 2, &starts), 7.24280e-4, 5e-10);
    CHECK_NEAR(lhi_fitness(&s, &paths[0], 2, &starts),
               (1.0 - 10.0 / 54) / (1500 * 0.75), 0);
    CHECK_INT(lhi_best_block(&s, &paths[0], 2, &starts), 2);
    CHECK(lhi_path_starts(&s, &paths[1], 2, &starts));
    CHECK_INT(starts, slots_of("1110001110"));
    CHECK_NEAR(lhi_fitness(&s, &paths[1], 2, &starts), 5.68870e-4, 5e-10);
    CHECK_INT(lhi_best_block(&s, &paths[1], 2, &starts), 0);
    lhi_policy cba = {.assignment = LH_CBA, .request_slots = 2};
    lhi_paths both = {2, paths};
    lhi_request r = {.paths = &both, .policy = &cba, .slots = 2, .bits = 1};
    lhi_circuit_grant g = {0};
    CHECK(lhi_choose(&s, &r, &g));
    CHECK(g.path == &paths[0]);
    CHECK_INT(g.first, 2);
}

/* Blocks, fitness and best block against the definition, slot by slot. */
static bool free_block(const lhi_spectrum *s, const lhi_path *p, uint32_t b,
                       uint32_t n)
{
    for (uint32_t h = 0; h < p->hops; h++)
        for (uint32_t j = b; j < b + n; j++)
            if (j >= s->slots || lhi_slot_held(lhi_fibre(s, p->fibres[h]), j))
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
        bool held = lhi_slot_held(busy, j) || (j >= b && j < b + n);
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
        lhi_path p = {
            .km = 1000, .hops = 1 + lhi_random_below(&r, 3), .fibres = fibres};
        uint32_t n = 1 + lhi_random_below(&r, 20), best = 0;
        uint64_t starts[LHI_MAX_WORDS];
        bool any = lhi_path_starts(&s, &p, n, starts);
        int64_t total = 0, blocks = 0, least = INT64_MAX;
        for (uint32_t b = 0; b < s.slots; b++) {
            bool fits = free_block(&s, &p, b, n);
            if (n <= s.slots)
                CHECK_INT(lhi_slot_held(starts, b), fits);
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
        double delta =
            1.0 - (double)lhi_path_held(&s, &p) / (double)(p.hops * s.slots);
        double index =
            1.0 - (double)total / (double)(blocks * p.hops * (s.slots - 1));
        CHECK(lhi_fitness(&s, &p, n, starts) == index / (1000.0 * delta));
        CHECK_INT(lhi_best_block(&s, &p, n, starts), best);
    }
}

static void messages(void)
{
    static const int64_t b8[] = {57266231, 28633116, 14316558, 7158279,
                                 3579140};
    for (int i = 0; i < 5; i++) {
        CHECK_INT(lhi_serialise(4294967296, 75000, 1u << i), b8[i]);
        CHECK_INT(lhi_serialise(8589934592, 75000, 1u << i),
                  i == 0 ? 114532462 : b8[i - 1]);
    }
}

/* --- whole runs
 * --------------------------------------------------------------- */

enum { ITERATIONS = 11 };

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
    CHECK_OK(lhi_program_chain(chain, mem, &program, &err), err);
    CHECK_INT(program.bound_ns,
              (int64_t)(chain->microbatches + chain->stages - 1) *
                  (chain->forward_ns + chain->backward_ns));
    uint32_t drawn[8];
    if (!sites) {
        lhi_random r = {.state = seed};
        CHECK_OK(lhi_place_random(&r, NODES, 6, 8, drawn, &err), err);
        sites = drawn;
    }
    lhi_run_job_output job_out = {.iteration_ns = o.ns,
                                  .labels = o.labels,
                                  .requested = o.requested,
                                  .refused = o.refused};
    lhi_run_output out = {.jobs = &job_out};
    lhi_background b = {
        .erlang = erlang, .holding_ns = 1e9, .slots_min = 1, .slots_max = 8};
    lhi_run_job job = {.program = &program, .sites = sites};
    lhi_run_input in = {.network = n,
                        .policy = &policy,
                        .background = &b,
                        .jobs = &job,
                        .n_jobs = 1,
                        .retry_ns = 5000000,
                        .iterations = ITERATIONS - 1,
                        .seed = seed};
    CHECK_OK(lhi_run(&in, &out, &err), err);
    for (int i = 0; i < ITERATIONS; i++)
        o.blocked += o.refused[i];
    lhi_arena_free(mem);
    lhi_network_free(n);
    lh_topology_free(t);
    return o;
}

static lhi_chain chain8b(uint32_t microbatches, lhi_program_order order)
{
    return (lhi_chain){.stages = 8,
                       .microbatches = microbatches,
                       .forward_ns = 10000000,
                       .backward_ns = 17700000,
                       .bits = 4294967296,
                       .order = order,
                       .warm_up_factor = 1};
}

static void to_the_nanosecond(void)
{
    static const struct {
        lhi_policy policy;
        lhi_program_order order;
        double erlang;
        int64_t ns[4];
        uint32_t labels[4], blocked;
    } want[] = {
        {{.assignment = LH_KSP_FF, .request_slots = 2},
         LHI_1F1B,
         0,
         {1916625944, 1916625944, 1916625944, 1916625944},
         {170, 170, 170, 170},
         0},
        {{.assignment = LH_CBA, .request_slots = 2},
         LHI_GPIPE,
         0,
         {1527690872, 977147066, 1216110038, 977147066},
         {192, 102, 192, 102},
         0},
        {{.assignment = LH_CBA, .request_slots = 2},
         LHI_1F1B,
         0,
         {1916625944, 1458496088, 1520511994, 1615978226},
         {170, 169, 151, 150},
         0},
        {{.assignment = LH_SD_FF, .request_slots = 2},
         LHI_GPIPE,
         150,
         {1874788252, 1736622677, 1554823987, 1583457102},
         {192, 192, 192, 192},
         37},
        {{.assignment = LH_KSP_FF, .request_slots = 2},
         LHI_GPIPE,
         150,
         {1526190872, 1526190872, 1538940872, 1526190872},
         {192, 192, 192, 192},
         2},
        {{.assignment = LH_CBA, .request_slots = 2},
         LHI_GPIPE,
         150,
         {1535190872, 1043913298, 1642223332, 1034846740},
         {192, 102, 192, 111},
         24},
        {{.assignment = LH_CBA,
          .request_slots = 2,
          .ladder = true,
          .keep_labels = true},
         LHI_GPIPE,
         150,
         {1535190872, 1072729856, 1351325614, 989963624},
         {192, 115, 113, 101},
         0},
        {{.assignment = LH_SLACK, .request_slots = 2, .ask_late = true},
         LHI_GPIPE,
         150,
         {929076859, 998579857, 1035279205, 965113951},
         {65, 85, 84, 97},
         0},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        lhi_chain chain = chain8b(16, want[i].order);
        outcome o = run_job(want[i].policy, &chain, NULL, want[i].erlang, 1);
        for (int k = 0; k < 4; k++) {
            CHECK_INT(o.ns[k], want[i].ns[k]);
            CHECK_INT(o.labels[k], want[i].labels[k]);
        }
        CHECK_INT(o.blocked, want[i].blocked);
    }
}

/* One micro-batch: one message in flight, a closed form. */
static void one_microbatch(void)
{
    lhi_chain chain = chain8b(1, LHI_1F1B);
    for (uint32_t n0 = 1; n0 <= 40; n0++) {
        lhi_policy p = {.assignment = LH_KSP_FF, .request_slots = n0};
        int64_t ser = lhi_serialise(chain.bits, 75000, n0);
        outcome o = run_job(p, &chain, NULL, 0, 1);
        CHECK_INT(o.ns[0], 221600000 + 2 * (51000000 + 6 * ser));
        CHECK_INT(o.ns[10], o.ns[0]);
        CHECK_INT(o.blocked, 0);
    }
    lhi_policy sd = {.assignment = LH_SD_FF, .request_slots = 2};
    lhi_policy cba = {.assignment = LH_CBA, .request_slots = 2};
    CHECK_INT(run_job(sd, &chain, NULL, 0, 1).ns[3], 667197392);
    outcome o = run_job(cba, &chain, NULL, 0, 1);
    CHECK_INT(o.ns[0], 667197392);
    CHECK_INT(o.ns[1], 495398696);
    CHECK_INT(o.ns[2], 495398696);
}

static void two_stages(void)
{
    lhi_chain chain = chain8b(2, LHI_GPIPE);
    chain.stages = 2;
    uint32_t sites[] = {7, 4}; /* nodes 8 and 5 */
    lhi_policy ksp = {.assignment = LH_KSP_FF, .request_slots = 2};
    lhi_policy cba = {.assignment = LH_CBA, .request_slots = 2};
    outcome o = run_job(ksp, &chain, sites, 0, 1);
    for (int i = 0; i < ITERATIONS; i++)
        CHECK_INT(o.ns[i], 183432464);
    CHECK_INT(o.labels[0], 4);
    o = run_job(cba, &chain, sites, 0, 1);
    CHECK_INT(o.ns[0], 183432464);
    CHECK_INT(o.ns[1], 129549674);
    CHECK_INT(o.ns[2], 143866232);
    CHECK_INT(o.labels[0], 4);
    CHECK_INT(o.labels[1], 3);
}

/* Weight gradients run while the next gradient is on its way, if they end by
 * the time at which it arrives. Nodes 9 and 12 are 1.5 ms of light apart, a
 * message occupies the port for 1 ms. F1 is there at 3.6 ms; the gradients
 * leave the second device at 3.8 and 4.8, and are back at 6.3 and 7.3. */
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
    CHECK_OK(
        lhi_program_schedule(pipeline, schedule, 75000000, mem, &program, &err),
        err);
    uint32_t sites[] = {8, 11};
    outcome o = {0};
    lhi_run_job_output job_out = {.iteration_ns = o.ns,
                                  .labels = o.labels,
                                  .requested = o.requested,
                                  .refused = o.refused};
    lhi_run_output out = {.jobs = &job_out};
    lhi_policy policy = {
        .assignment = LH_KSP_FF, .request_slots = 1, .fill_idle = fill};
    lhi_background none = {.holding_ns = 1e9, .slots_min = 1, .slots_max = 1};
    lhi_run_job job = {.program = &program, .sites = sites};
    lhi_run_input in = {.network = n,
                        .policy = &policy,
                        .background = &none,
                        .jobs = &job,
                        .n_jobs = 1,
                        .retry_ns = 5000000,
                        .iterations = 1,
                        .seed = 1};
    CHECK_OK(lhi_run(&in, &out, &err), err);
    /* A pass that a filled gap ends on is not held up. */
    CHECK_INT(o.labels[0], fill && weight_us == 900 ? 3 : 4);
    lhi_arena_free(mem);
    lhi_network_free(n);
    lh_topology_free(t);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    return o.ns[1];
}

static void weights_fill_idle_time(void)
{
    CHECK_INT(iteration_with_weights(500, false), 8400000);
    CHECK_INT(iteration_with_weights(500, true), 7900000);
    CHECK_INT(iteration_with_weights(900, true), 8300000);
    CHECK_INT(iteration_with_weights(901, true), 9202000);
    CHECK_INT(iteration_with_weights(2000, true), 11400000);
}

/* Both directions share one spectrum where that is asked for. */
static void shared_fibres(void)
{
    lh_topology *t = nsfnet();
    lhi_network *own = network(t, false), *shared = network(t, true);
    CHECK_INT(lhi_network_n_fibres(own), 44);
    CHECK_INT(lhi_network_n_fibres(shared), 22);
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
    RUN(random_numbers);
    RUN(placements);
    RUN(routes);
    RUN(routes_are_all);
    RUN(contiguity);
    RUN(fitness);
    RUN(spectrum_by_definition);
    RUN(messages);
    RUN(to_the_nanosecond);
    RUN(one_microbatch);
    RUN(two_stages);
    RUN(weights_fill_idle_time);
    RUN(shared_fibres);
    return test_summary();
}
