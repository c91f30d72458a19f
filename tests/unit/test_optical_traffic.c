/* SPDX-License-Identifier: Apache-2.0 */
/* Background traffic in cases with known results: Erlang's loss formula for one
 * link and for two routes between one pair, and the exact Markov chain of first
 * fit with contiguous slots on one fibre. */
#include "network/optical/load_gsnr.h"
#include "network/optical/simulation.h"
#include "nsfnet.h"
#include "test.h"

#include <longhaul/experimental/optical.h>

#include <stdlib.h>

static lh_topology *topology(const char *links)
{
    char text[512];
    lh_topology *t = NULL;
    lh_error err = {0};
    snprintf(text, sizeof text,
             "nodes: [{id: 1}, {id: 2}, {id: 3}]\nlinks: [%s]\n", links);
    CHECK_OK(lhi_topology_parse(text, strlen(text), "t.yaml", &t, &err), err);
    return t;
}

static double erlang_b(double load, uint32_t servers)
{
    double blocking = 1;
    for (uint32_t n = 1; n <= servers; n++)
        blocking = load * blocking / (n + load * blocking);
    return blocking;
}

/* Standard error of the rejected share among n, as if independent; neighbouring
 * requests are correlated, so tests allow five of these times 3. */
static double allowed_error(double share, double n)
{
    return 15 * sqrt(share * (1 - share) / n);
}

#define REQUESTS 1000000

static double refused_share(const lh_topology *t, lh_traffic load,
                            uint64_t seed)
{
    lh_traffic_result r = {0};
    lh_error err = {0};
    load.size = sizeof load;
    load.holding_s = 1;
    CHECK_OK(lh_traffic_run(t, &load, seed, 10000, REQUESTS, &r, &err), err);
    CHECK_INT(r.requests, REQUESTS);
    return (double)r.refused / (double)r.requests;
}

static void one_link(void)
{
    static const struct {
        double load;
        uint32_t slots;
    } cases[] = {{70, 80}, {85, 80}, {3, 4}, {0.5, 1}, {190, 200}};
    lh_topology *t = topology("{a: 1, b: 2, km: 10}, {a: 2, b: 3, km: 10}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_traffic load = {.erlang = cases[i].load,
                           .slots = cases[i].slots,
                           .slots_min = 1,
                           .slots_max = 1,
                           .k = 1,
                           .from = 0,
                           .to = 1};
        double want = erlang_b(cases[i].load, cases[i].slots);
        CHECK_NEAR(refused_share(t, load, i + 1), want,
                   allowed_error(want, REQUESTS));
    }
    lh_topology_free(t);
}

/* A direct route with S slots and a detour with S more: rejected only when all
 * 2 S are used, for any order of trying. */
static void two_routes(void)
{
    lh_topology *t = topology("{a: 1, b: 2, km: 10}, {a: 2, b: 3, km: 10}, "
                              "{a: 1, b: 3, km: 10}");
    lh_traffic load = {.erlang = 15,
                       .slots = 10,
                       .slots_min = 1,
                       .slots_max = 1,
                       .k = 2,
                       .from = 0,
                       .to = 2};
    double want = erlang_b(15, 20);
    CHECK_NEAR(refused_share(t, load, 1), want, allowed_error(want, REQUESTS));
    load.k = 1;
    want = erlang_b(15, 10);
    CHECK_NEAR(refused_share(t, load, 2), want, allowed_error(want, REQUESTS));
    lh_topology_free(t);
}

/* One fibre with SLOTS slots, blocks of 1..WIDEST: a state has four bits per
 * slot, the width of the block that starts there or 0, and 15 inside a block.
 */
enum { SLOTS = 7, WIDEST = 3, MAX_STATES = 4096 };

/* The Markov chain. */
typedef struct chain {
    uint32_t n;
    uint32_t states[MAX_STATES];
    double share[MAX_STATES], next[MAX_STATES];
} chain;

static uint32_t slot_at(uint32_t state, uint32_t slot)
{
    return state >> (4 * slot) & 15;
}

static uint32_t put_block(uint32_t state, uint32_t first, uint32_t width)
{
    for (uint32_t j = 0; j < width; j++)
        state |= (j == 0 ? width : 15u) << (4 * (first + j));
    return state;
}

/* Returns the first fitting slot; UINT32_MAX: none. */
static uint32_t first_fit(uint32_t state, uint32_t width)
{
    for (uint32_t b = 0; b + width <= SLOTS; b++) {
        bool free = true;
        for (uint32_t j = b; j < b + width; j++)
            free &= slot_at(state, j) == 0;
        if (free)
            return put_block(state, b, width);
    }
    return UINT32_MAX;
}

static uint32_t state_index(chain *c, uint32_t state)
{
    uint32_t i = 0;
    while (i < c->n && c->states[i] != state)
        i++;
    if (i == c->n && c->n < MAX_STATES)
        c->states[c->n++] = state;
    return i;
}

static uint32_t without(uint32_t state, uint32_t first)
{
    uint32_t width = slot_at(state, first);
    for (uint32_t j = first; j < first + width; j++)
        state &= ~(15u << (4 * j));
    return state;
}

/* State transitions, computed once. */
typedef struct moves {
    uint32_t arrive[MAX_STATES][WIDEST + 1], leave[MAX_STATES][SLOTS];
} moves;

static void explore(chain *c, moves *m)
{
    c->n = 0;
    state_index(c, 0);
    for (uint32_t i = 0; i < c->n; i++) {
        for (uint32_t w = 1; w <= WIDEST; w++) {
            uint32_t to = first_fit(c->states[i], w);
            m->arrive[i][w] = to == UINT32_MAX ? i : state_index(c, to);
        }
        for (uint32_t s = 0; s < SLOTS; s++) {
            uint32_t w = slot_at(c->states[i], s);
            m->leave[i][s] = w == 0 || w == 15
                                 ? UINT32_MAX
                                 : state_index(c, without(c->states[i], s));
        }
    }
}

/* Equilibrium share of rejected requests, by uniformisation: power iteration of
 * the chain that steps at the highest total rate. */
static double exact_blocking(double load)
{
    chain *c = calloc(1, sizeof *c);
    moves *m = calloc(1, sizeof *m);
    double refused = -1, rate = load + SLOTS;
    if (!c || !m)
        goto out;
    explore(c, m);
    CHECK(c->n < MAX_STATES);
    c->share[0] = 1;
    for (int step = 0; step < 4000; step++) {
        memset(c->next, 0, sizeof c->next);
        for (uint32_t i = 0; i < c->n; i++) {
            double stay = rate - load;
            for (uint32_t w = 1; w <= WIDEST; w++)
                c->next[m->arrive[i][w]] += c->share[i] * load / WIDEST / rate;
            for (uint32_t s = 0; s < SLOTS; s++)
                if (m->leave[i][s] != UINT32_MAX) {
                    c->next[m->leave[i][s]] += c->share[i] / rate;
                    stay -= 1;
                }
            c->next[i] += c->share[i] * stay / rate;
        }
        memcpy(c->share, c->next, sizeof c->share);
    }
    refused = 0;
    for (uint32_t i = 0; i < c->n; i++)
        for (uint32_t w = 1; w <= WIDEST; w++)
            if (m->arrive[i][w] == i)
                refused += c->share[i] / WIDEST;
out:
    free(c);
    free(m);
    return refused;
}

static void adjacent_blocks(void)
{
    static const double loads[] = {0.5, 2, 5};
    lh_topology *t = topology("{a: 1, b: 2, km: 10}, {a: 2, b: 3, km: 10}");
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        lh_traffic load = {.erlang = loads[i],
                           .slots = SLOTS,
                           .slots_min = 1,
                           .slots_max = WIDEST,
                           .k = 1,
                           .from = 0,
                           .to = 1};
        double want = exact_blocking(loads[i]);
        double got = refused_share(t, load, i + 1);
        CHECK(want > 0 && want < 1);
        CHECK_NEAR(got, want, allowed_error(want, REQUESTS));
    }
    lh_topology_free(t);
}

/* Without contention, the carried load is the load times mean width times hops.
 */
static void carried(void)
{
    lh_topology *t = topology("{a: 1, b: 2, km: 10}, {a: 2, b: 3, km: 10}");
    lh_traffic load = {.size = sizeof load,
                       .erlang = 20,
                       .holding_s = 0.5,
                       .slots = 1000,
                       .slots_min = 2,
                       .slots_max = 6,
                       .k = 1,
                       .from = 0,
                       .to = 2};
    lh_traffic_result r = {0};
    lh_error err = {0};
    CHECK_OK(lh_traffic_run(t, &load, 1, 10000, 500000, &r, &err), err);
    CHECK_INT(r.refused, 0);
    CHECK_NEAR(r.carried_slots, 20 * 4 * 2, 2);
    lh_topology_free(t);
}

/* Requests by rate on 700 km (8QAM, 37.5 Gb/s per slot): 70 to 75 Gb/s take two
 * slots and the guard slot. */
static void carried_rates(void)
{
    lh_topology *t = topology("{a: 1, b: 2, km: 400}, {a: 2, b: 3, km: 300}");
    lh_traffic load = {.size = sizeof load,
                       .erlang = 20,
                       .holding_s = 0.5,
                       .slots = 1000,
                       .gbps_min = 70,
                       .gbps_max = 75,
                       .guard_slots = 1,
                       .adaptive = true,
                       .k = 1,
                       .from = 0,
                       .to = 2};
    lh_traffic_result r = {0};
    lh_error err = {0};
    CHECK_OK(lh_traffic_run(t, &load, 1, 10000, 300000, &r, &err), err);
    CHECK_INT(r.refused, 0);
    CHECK_NEAR(r.carried_slots, 20 * 3 * 2, 2);
    lh_topology_free(t);
}

/* Blocking of SP-FF and KSP-FF in the setting of DeepRMSA (X. Chen et al., J.
 * Lightwave Technol. 37(16), 2019): within the 95 % confidence interval of four
 * runs of its program (docs/optical.md, "Speed"). */
static void deep_rmsa(void)
{
    static const struct {
        uint32_t k;
        double share, half_width;
    } peers[] = {{1, 0.0518, 0.0063}, {5, 0.0102, 0.0019}};
    lh_topology *t = NULL;
    lh_error err = {0};
    CHECK_OK(lh_topology_read(TEST_DATA "/../../data/topologies/nsfnet.yaml",
                              &t, &err),
             err);
    for (int i = 0; t && i < 2; i++) {
        lh_traffic_result r = {0};
        lh_traffic load = {.size = sizeof load,
                           .erlang = 12 * 14 * (1 - 2 / (exp(2) - 1)),
                           .holding_s = 1,
                           .slots = 100,
                           .k = peers[i].k,
                           .gbps_min = 25,
                           .gbps_max = 100,
                           .guard_slots = 1,
                           .adaptive = true};
        CHECK_OK(lh_traffic_run(t, &load, 1, 3000, 400000, &r, &err), err);
        CHECK_NEAR((double)r.refused / (double)r.requests, peers[i].share,
                   peers[i].half_width);
    }
    lh_topology_free(t);
}

/* Noise of a circuit by its definition: emission, and interference slot by slot
 * from the slots that circuits use, without guard slots. */
static int64_t noise_by_definition(const lhi_load_gsnr *g,
                                   const lhi_circuits *circuits,
                                   const lhi_load_circuit *c)
{
    const uint32_t middle = (c->first + c->end - 1) / 2;
    const uint32_t slots = circuits->spectrum.slots;
    int64_t noise = 0;
    for (uint32_t h = 0; h < c->path->hops; h++) {
        const uint32_t fibre = c->path->fibres[h];
        const int64_t *sums = g->sums + (size_t)(fibre / 2) * slots;
        noise += g->emitted[fibre / 2];
        for (uint32_t i = 0; i < circuits->count; i++) {
            const lhi_circuit *o = &circuits->items[i];
            const uint32_t end = o->first + o->slots;
            bool meets = false;
            for (uint32_t f = 0; o->slots > 0 && f < o->path->hops; f++)
                meets |= o->path->fibres[f] == fibre;
            for (uint32_t k = o->first;
                 meets && k < end - circuits->spectrum.guard; k++) {
                const uint32_t d = k > middle ? k - middle : middle - k;
                noise += sums[d] - (d > 0 ? sums[d - 1] : 0);
            }
        }
    }
    return noise;
}

/* Requests a circuit by rate, or for a number of slots under one of the
 * policies. */
static bool request(const lhi_spectrum *s, const lhi_paths *paths,
                    lhi_random *random, lhi_circuit_grant *out)
{
    static const lh_assignment kinds[] = {LH_SD_FF, LH_KSP_FF, LH_CBA, LH_SLACK,
                                          LH_CRITICAL};
    uint32_t kind = lhi_random_below(random, 8);
    lhi_policy policy = {.assignment = kinds[kind % 5], .ladder = true};
    lhi_request r = {.paths = paths,
                     .policy = &policy,
                     .slots = 1 + lhi_random_below(random, 8),
                     .bits = 1000000000,
                     .deadline_ns = lhi_random_below(random, 40000000)};
    if (kind < 5)
        return lhi_assignment_choose(s, &r, out);
    return lhi_assignment_first_fit_rate(
        s, paths, 25 + lhi_random_below(random, 200), out);
}

/* Circuits begin and end at random: the noise of each equals its definition and
 * is below the limit of its format; some requests are refused because of the
 * noise of circuits in use. */
static void noise_of_load(void)
{
    enum { WIDTH = 100, STEPS = 20000 };
    static const lhi_reach any = {INT64_MAX, 1000};
    lh_topology *t = nsfnet();
    lhi_network *n = NULL;
    lhi_circuits circuits = {0};
    lhi_random random = {.state = 7};
    lh_error err = {0};
    uint32_t n_refused = 0, n_tight = 0, n_slower = 0;
    CHECK_OK(lhi_network_make(t, 5, WIDTH, false, &any, 1, &n, &err), err);
    n->guard_slots = 1;
    CHECK_OK(lhi_network_rate_by_load(n, &err), err);
    CHECK_OK(lhi_circuits_make(n, &circuits, &err), err);
    const lhi_load_gsnr *g = circuits.spectrum.load;
    for (int step = 0; step < STEPS; step++) {
        uint32_t a = lhi_random_below(&random, NODES);
        uint32_t b = (a + 1 + lhi_random_below(&random, NODES - 1)) % NODES;
        uint32_t at = lhi_random_below(&random, 300);
        const lhi_paths *paths = lhi_network_paths(n, a, b);
        lhi_circuit_grant grant;
        if (at < circuits.count && circuits.items[at].slots > 0)
            lhi_circuits_release(&circuits, at);
        if (request(&circuits.spectrum, paths, &random, &grant)) {
            at = lhi_circuits_allocate(&circuits, &grant);
            CHECK(at != LH_NONE);
            CHECK(grant.mbps > 0 && grant.mbps <= grant.path->mbps);
            n_slower += grant.mbps < grant.path->mbps;
        } else {
            n_refused++;
        }
        for (uint32_t i = 0; step % 1000 == 999 && i < circuits.count; i++) {
            const lhi_load_circuit *o = &g->circuits[i];
            const lhi_circuit *c = &circuits.items[i];
            if (c->slots == 0)
                continue;
            CHECK_INT(o->end - o->first, c->slots - 1);
            CHECK_INT(o->noise, noise_by_definition(g, &circuits, o));
            CHECK(o->noise <= o->most);
            const double snr = -lhi_gn_to_db(LHI_LOAD_UNIT * (double)o->noise);
            for (uint32_t m = 0; m < LHI_N_LOAD_FORMATS; m++)
                CHECK(lhi_load_formats[m].mbps != c->mbps ||
                      snr >= lhi_load_formats[m].snr_db - 1e-6);
            n_tight += o->noise * 10 > o->most * 9;
        }
    }
    CHECK(n_refused > 0 && n_refused < STEPS);
    CHECK(n_tight > 0);
    CHECK(n_slower > 0);
    lhi_circuits_fini(&circuits);
    lhi_network_free(n);
    lh_topology_free(t);
}

/* A span of 80 km with all slots in use, one circuit each: the noise of the
 * middle slot is that of the GN model for the whole comb, up to the change of
 * dispersion and frequency over its 1.25 THz. */
static void noise_of_comb(void)
{
    enum { WIDTH = 100, MIDDLE = 50 };
    static const lhi_reach any = {INT64_MAX, 1000};
    lh_topology *t = topology("{a: 1, b: 2, km: 80}, {a: 2, b: 3, km: 1}");
    lhi_network *n = NULL;
    lhi_load_gsnr g = {0};
    lhi_gn_signal *signal = calloc(1, sizeof *signal);
    lh_error err = {0};
    CHECK_OK(lhi_network_make(t, 1, WIDTH, false, &any, 1, &n, &err), err);
    CHECK_OK(lhi_load_gsnr_init(n, &g, &err), err);
    const lhi_gn_comb comb = {WIDTH, 193.41e12 - MIDDLE * 12.5e9, 12.5e9,
                              12.5e9};
    const lhi_gn_fibre fibre = lhi_load_gsnr_fibre(80e3);
    const lhi_gn_amplifier amplifier = {.gain_db = 16,
                                        .gain_max_db = 16,
                                        .power_max_dbm = 99,
                                        .nf1_db = 5,
                                        .nf2_db = -INFINITY};
    for (uint32_t i = 0; signal && i < WIDTH; i++) {
        signal->power_w[i] = g.launch_w;
        signal->share[i] = 1;
    }
    if (signal) {
        lhi_gn_propagate(&comb, &fibre, signal);
        lhi_gn_amplify(&comb, &amplifier, signal);
        const double want = (1 - signal->share[MIDDLE]) / signal->share[MIDDLE];
        const double ours =
            LHI_LOAD_UNIT * (double)(g.emitted[0] + g.sums[MIDDLE] +
                                     g.sums[WIDTH - 1 - MIDDLE] - g.sums[0]);
        CHECK_NEAR(ours / want, 1, 0.01);
        /* Interference is a third of the noise at the launch power, which is
         * the best one for 100 km. */
        CHECK((double)g.emitted[0] * LHI_LOAD_UNIT < 0.67 * want);
    }
    free(signal);
    lhi_load_gsnr_fini(&g);
    lhi_network_free(n);
    lh_topology_free(t);
}

static void refusals(void)
{
    lh_topology *t = topology("{a: 1, b: 2, km: 10}, {a: 2, b: 3, km: 10}");
    lh_traffic good = {.size = sizeof good,
                       .erlang = 1,
                       .holding_s = 1,
                       .slots = 8,
                       .slots_min = 1,
                       .slots_max = 8,
                       .k = 1};
    lh_traffic bad[7] = {good, good, good, good, good, good, good};
    lh_traffic_result r;
    lh_error err = {0};
    bad[0].erlang = 0;
    bad[1].slots_max = 9;
    bad[2].k = 0;
    bad[3].to = 3;
    bad[4].guard_slots = 1;
    bad[5].gbps_max = 5;
    bad[6].by_gsnr = true;
    CHECK_OK(lh_traffic_run(t, &good, 1, 0, 10, &r, &err), err);
    for (int i = 0; i < 7; i++)
        CHECK_INT(lh_traffic_run(t, &bad[i], 1, 0, 10, &r, &err), LH_EINVAL);
    lh_topology_free(t);
    /* The lines of a network of GNPy have their own noise. */
    static const char lines[] =
        "gnpy: {network: network.json, equipment: equipment.json}\n";
    lh_topology *gnpy = NULL;
    CHECK_OK(lhi_topology_parse(lines, sizeof lines - 1,
                                TEST_DATA "/optical/gnpy/t.yaml", &gnpy, &err),
             err);
    if (!gnpy)
        return;
    lh_traffic by_load = good;
    by_load.gbps_min = by_load.gbps_max = 5;
    by_load.by_gsnr = true;
    CHECK_INT(lh_traffic_run(gnpy, &by_load, 1, 0, 10, &r, &err), LH_EINVAL);
    CHECK(strstr(err.text, "standard fibre") != NULL);
    lh_topology_free(gnpy);
}

int main(void)
{
    RUN(one_link);
    RUN(two_routes);
    RUN(adjacent_blocks);
    RUN(carried);
    RUN(carried_rates);
    RUN(deep_rmsa);
    RUN(noise_of_load);
    RUN(noise_of_comb);
    RUN(refusals);
    return test_summary();
}
