/* SPDX-License-Identifier: Apache-2.0 */
/* Rank reassignment: hosts that exchange their placement. */
#include "resilience/placement/placement.h"
#include "resilience/placement/placement_internal.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/host_placement.h>
#include <longhaul/experimental/methods.h>

enum { MS = 1000000, MOST_HOSTS = 16 };

/* Two stages; a message takes 1 ms and 2 more. A replica's data take 20
 * messages to gather and 30 to scatter. */
static const uniform two = {
    .placement = "ud",
    .devices = 2,
    .microbatches = 4,
    .f = 10,
    .d = 10,
    .w = 10,
    .more = "links:\n"
            "  - {from: 0, to: 1, latency: 2, transfer: 1}\n"
            "  - {from: 1, to: 0, latency: 2, transfer: 1}\n"
            "data_parallel:\n"
            "  - {chunk: 0, all_gather: 20, reduce_scatter: 30, latency: 2}\n"
            "  - {chunk: 1, all_gather: 20, reduce_scatter: 30, latency: 2}\n"};

static const uniform four = {
    .placement = "ud",
    .devices = 4,
    .microbatches = 8,
    .f = 10,
    .d = 10,
    .w = 10,
    .more = "links:\n"
            "  - {from: 0, to: 1, latency: 1, transfer: 1}\n"
            "  - {from: 1, to: 0, latency: 1, transfer: 1}\n"
            "  - {from: 1, to: 2, latency: 1, transfer: 1}\n"
            "  - {from: 2, to: 1, latency: 1, transfer: 1}\n"
            "  - {from: 2, to: 3, latency: 1, transfer: 1}\n"
            "  - {from: 3, to: 2, latency: 1, transfer: 1}\n"
            "data_parallel:\n"
            "  - {chunk: 0, all_gather: 5, reduce_scatter: 5}\n"
            "  - {chunk: 1, all_gather: 5, reduce_scatter: 5}\n"
            "  - {chunk: 2, all_gather: 5, reduce_scatter: 5}\n"
            "  - {chunk: 3, all_gather: 5, reduce_scatter: 5}\n"};

/* The placement under test and its pipeline. */
typedef struct setting {
    lh_pipeline *quiet;
    lh_host_placement *places;
    lh_schedule *schedule;
} setting;

static setting set_up(uniform u, uint32_t replicas, const int64_t *state_ns)
{
    lh_error err = {0};
    setting t = {.quiet = uniform_make(u)};
    const lh_host_placement_options o = {
        .size = sizeof o, .n_replicas = replicas, .state_ns = state_ns};
    CHECK_OK(lh_host_placement_make(t.quiet, &o, &t.places, &err), err);
    CHECK_OK(lh_method_run("1f1b", t.quiet, NULL, &t.schedule, NULL, &err),
             err);
    return t;
}

static void tear_down(setting *t)
{
    lh_schedule_free(t->schedule);
    lh_host_placement_free(t->places);
    lh_pipeline_free(t->quiet);
}

static lh_pipeline *pipeline_of(const setting *t, const lh_host_slowdowns *now,
                                const uint32_t *hosts)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    CHECK_OK(lh_host_placement_pipeline(t->places, now, hosts, &p, &err), err);
    return p;
}

static int64_t makespan(const setting *t, const lh_host_slowdowns *now,
                        const uint32_t *hosts)
{
    lh_error err = {0};
    lh_timeline *line = NULL;
    lh_pipeline *p = pipeline_of(t, now, hosts);
    CHECK_OK(lh_simulate(p, t->schedule, NULL, &line, &err), err);
    int64_t ns = lh_timeline_makespan(line);
    lh_timeline_free(line);
    lh_pipeline_free(p);
    return ns;
}

static lh_host_exchange *exchange(const setting *t,
                                  const lh_host_slowdowns *now,
                                  const lh_host_exchange_options *o)
{
    lh_error err = {0};
    lh_host_exchange *x = NULL;
    CHECK_OK(lh_host_placement_find_exchange(t->places, now, t->schedule, o, &x,
                                             &err),
             err);
    return x;
}

/* Both directions between hosts 0 and 2, which have device 0 of both replicas.
 */
static const lh_host_link_delay slow_ring[] = {{0, 2, 4 * MS, 3 * MS},
                                               {2, 0, 4 * MS, 3 * MS}};
static const lh_host_slowdowns ring_now = {
    .size = sizeof ring_now, .n_links = 2, .links = slow_ring};

static void a_slow_link_matters_by_what_it_carries(void)
{
    setting t = set_up(two, 2, NULL);
    CHECK_INT(lhi_host_placement_n_hosts(t.places), 4);
    CHECK_INT(lhi_host_placement_nominal_link(t.places, 0, 1).latency_ns,
              2 * MS);
    CHECK_INT(lhi_host_placement_nominal_link(t.places, 0, 3).transfer_ns,
              1 * MS);

    /* Data: 20 and 30 messages with 3 ms more each, one step with 4 ms more. */
    lh_pipeline *p = pipeline_of(&t, &ring_now, NULL);
    const lh_chunk *k = lh_pipeline_chunk(p, 0);
    CHECK_INT(k->all_gather_ns, (20 + 60) * MS);
    CHECK_INT(k->reduce_scatter_ns, (30 + 90) * MS);
    CHECK_INT(k->dp_latency_ns, (2 + 4) * MS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->all_gather_ns, 20 * MS);
    CHECK_INT(lh_pipeline_link(p, 0)->transfer_ns, 1 * MS);
    lh_pipeline_free(p);

    /* Messages, with hosts 1 and 2 exchanged. */
    const uint32_t crossed[] = {0, 2, 1, 3};
    p = pipeline_of(&t, &ring_now, crossed);
    CHECK_INT(lh_pipeline_chunk(p, 0)->all_gather_ns, 20 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 0)->dp_latency_ns, 2 * MS);
    CHECK_INT(lh_pipeline_link(p, 0)->transfer_ns, (1 + 3) * MS);
    CHECK_INT(lh_pipeline_link(p, 1)->latency_ns, (2 + 4) * MS);
    lh_pipeline_free(p);

    /* No effect with hosts 2 and 3 exchanged: device 0 here and 1 there. */
    const uint32_t diagonal[] = {0, 1, 3, 2};
    CHECK_INT(makespan(&t, &ring_now, diagonal), makespan(&t, NULL, NULL));
    tear_down(&t);
}

static void a_slow_host_is_slow_where_it_is(void)
{
    setting t = set_up(two, 2, NULL);
    const double slower[] = {1, 1, 1, 1.5};
    const lh_host_slowdowns now = {.size = sizeof now, .pass_factors = slower};
    lh_pipeline *p = pipeline_of(&t, &now, NULL);
    CHECK_INT(lh_pipeline_chunk(p, 0)->f_ns, 10 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->f_ns, 15 * MS);
    lh_pipeline_free(p);
    const uint32_t other[] = {3, 1, 2, 0};
    p = pipeline_of(&t, &now, other);
    CHECK_INT(lh_pipeline_chunk(p, 0)->w_ns, 15 * MS);
    CHECK_INT(lh_pipeline_chunk(p, 1)->w_ns, 10 * MS);
    lh_pipeline_free(p);
    tear_down(&t);
}

/* A ring of three takes two steps. */
static void longer_rings_take_more_steps(void)
{
    setting t = set_up(two, 3, NULL);
    lh_host_link_delay one = {2, 4, 4 * MS, 0};
    const lh_host_slowdowns now = {
        .size = sizeof now, .n_links = 1, .links = &one};
    lh_pipeline *p = pipeline_of(&t, &now, NULL);
    CHECK_INT(lh_pipeline_chunk(p, 0)->dp_latency_ns, (2 + 2 * 4) * MS);
    CHECK_INT(lh_pipeline_chunk(p, 0)->all_gather_ns, 20 * MS);
    lh_pipeline_free(p);
    /* In reverse, the link is unused. */
    one = (lh_host_link_delay){4, 2, 4 * MS, 0};
    CHECK_INT(makespan(&t, &now, NULL), makespan(&t, NULL, NULL));
    tear_down(&t);
}

/* --- choice --------------------------------------------------------------- */

/* The slow link then carries nothing; state of 50 ms each moves over another
 * link: hosts 2 and 3, concurrently. */
static void the_exchange_is_worked_out(void)
{
    const int64_t state[] = {50 * MS, 50 * MS};
    setting t = set_up(two, 2, state);
    const lh_host_exchange_options o = {.size = sizeof o, .benefit_steps = 10};
    lh_host_exchange *x = exchange(&t, &ring_now, &o);
    CHECK(x->is_exchange && x->is_exhaustive);
    CHECK_INT(x->n_evaluated, 24);
    CHECK(x->n_simulated < 10);
    CHECK_INT(x->current_ns, makespan(&t, &ring_now, NULL));
    CHECK_INT(x->predicted_ns, makespan(&t, NULL, NULL));
    CHECK_INT(x->n_moves, 2);
    CHECK_INT(x->move_ns, (50 + 2) * MS);
    CHECK_INT(x->predicted_ns, makespan(&t, &ring_now, x->hosts));
    CHECK_HAS(x->why, "the slow link between hosts 0 and 2 carries the "
                      "data-parallel communication of device 0");
    CHECK_HAS(x->why, "52 ms once and has an effect for 10 iterations");
    CHECK_HAS(x->why, "carries nothing");
    lh_host_exchange_free(x);
    tear_down(&t);
}

static void it_has_to_pay(void)
{
    const int64_t state[] = {1000 * MS, 1000 * MS};
    setting t = set_up(two, 2, state);
    int64_t saved = makespan(&t, &ring_now, NULL) - makespan(&t, NULL, NULL);
    CHECK(saved > 0);
    double pays = 1002.0 * MS / (double)saved;
    lh_host_exchange_options o = {.size = sizeof o,
                                  .benefit_steps = 0.99 * pays};
    lh_host_exchange *x = exchange(&t, &ring_now, &o);
    CHECK(!x->is_exchange);
    CHECK_INT(x->move_ns, 0);
    CHECK_INT(x->predicted_ns, x->current_ns);
    for (uint32_t i = 0; i < 4; i++)
        CHECK_INT(x->hosts[i], i);
    CHECK_HAS(x->why, "worth its migration cost");
    lh_host_exchange_free(x);
    o.benefit_steps = 1.01 * pays;
    x = exchange(&t, &ring_now, &o);
    CHECK(x->is_exchange);
    lh_host_exchange_free(x);
    tear_down(&t);
}

static uint32_t next(uint32_t *seed)
{
    return (*seed = *seed * 1664525 + 1013904223) >> 8;
}

/* Time to move one device's state over one link, in the pipeline `two`. */
static int64_t hop_ns(const lh_host_slowdowns *now, int64_t state_ns,
                      uint32_t from, uint32_t to)
{
    int64_t ns = state_ns + 2 * MS;
    for (uint32_t i = 0; i < now->n_links; i++)
        if (now->links[i].from == from && now->links[i].to == to)
            ns += now->links[i].latency_ns +
                  state_ns / MS * now->links[i].transfer_ns;
    return ns;
}

/* A host's transfer, sent or received, and its time. */
typedef struct use {
    uint32_t host;
    bool sends;
    int64_t start_ns, end_ns;
} use;

static void add_hop(use *uses, uint32_t *n, uint32_t from, uint32_t to,
                    int64_t start_ns, int64_t end_ns)
{
    uses[(*n)++] = (use){from, true, start_ns, end_ns};
    uses[(*n)++] = (use){to, false, start_ns, end_ns};
}

/* Checks that no host sends or receives two transfers at once. */
static void check_uses(const use *uses, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            CHECK(uses[i].host != uses[k].host ||
                  uses[i].sends != uses[k].sends ||
                  uses[i].start_ns >= uses[k].end_ns ||
                  uses[k].start_ns >= uses[i].end_ns);
}

/* The same routes take as long, and others no less. */
static void check_ways(const setting *t, const lh_host_slowdowns *now,
                       const lh_host_exchange *x)
{
    lh_error err;
    uint32_t ways[6], straight[6], i;
    int64_t ns = 0;
    CHECK_OK(lhi_host_placement_migration(t->places, now, NULL, x->hosts, NULL,
                                          ways, &ns, &err),
             err);
    CHECK_INT(ns, x->move_ns);
    for (i = 0; i < 6; i++)
        straight[i] = LH_NONE;
    for (i = 0; i < x->n_moves; i++) {
        CHECK_INT(ways[x->moves[i].place], x->moves[i].relay);
        ways[x->moves[i].place] = LH_NONE;
    }
    CHECK(memcmp(ways, straight, sizeof ways) == 0);
    for (i = 0; i < x->n_moves; i++)
        ways[x->moves[i].place] = x->moves[i].relay;
    CHECK_OK(lhi_host_placement_migration(t->places, now, NULL, x->hosts, ways,
                                          NULL, &ns, &err),
             err);
    CHECK_INT(ns, x->move_ns);
}

/* Slow links of all kinds: transfers take their links' time, one at a time, and
 * a third host forwards where that is faster. */
static void moves_can_be_kept_to(void)
{
    uint32_t n_via = 0, n_direct = 0;
    const int64_t state[] = {50 * MS, 70 * MS};
    for (uint32_t seed = 1; seed <= 60; seed++) {
        uint32_t r = seed;
        setting t = set_up(two, 3, state);
        lh_host_link_delay links[12];
        for (uint32_t i = 0; i < 12; i++) {
            links[i].from = next(&r) % 6;
            links[i].to = (links[i].from + 1 + next(&r) % 5) % 6;
            links[i].latency_ns = next(&r) % 20 * MS;
            links[i].transfer_ns = next(&r) % 5 * MS;
        }
        const lh_host_slowdowns now = {
            .size = sizeof now, .n_links = 12, .links = links};
        lh_host_exchange *x = exchange(&t, &now, NULL);
        int64_t last = 0;
        use uses[4 * 6];
        uint32_t n_uses = 0;
        for (uint32_t i = 0; i < x->n_moves; i++) {
            const lh_host_move *m = &x->moves[i];
            int64_t kept = state[m->place % 2], took = m->end_ns - m->start_ns,
                    direct = hop_ns(&now, kept, m->from, m->to);
            last = m->end_ns > last ? m->end_ns : last;
            CHECK(x->hosts[m->place] == m->to && m->from == m->place);
            if (m->relay == LH_NONE) {
                n_direct++;
                CHECK_INT(took, direct);
                add_hop(uses, &n_uses, m->from, m->to, m->start_ns, m->end_ns);
                continue;
            }
            n_via++;
            int64_t first = hop_ns(&now, kept, m->from, m->relay),
                    second = hop_ns(&now, kept, m->relay, m->to);
            CHECK(took >= first + second);
            add_hop(uses, &n_uses, m->from, m->relay, m->start_ns,
                    m->start_ns + first);
            add_hop(uses, &n_uses, m->relay, m->to, m->end_ns - second,
                    m->end_ns);
        }
        check_uses(uses, n_uses);
        CHECK_INT(x->move_ns, last);
        check_ways(&t, &now, x);
        lh_host_exchange_free(x);
        tear_down(&t);
    }
    CHECK(n_via > 5 && n_direct > 50);
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t c = *a;
    *a = *b;
    *b = c;
}

/* Tries every permutation of the hosts from placement k on. */
static void least(const setting *t, const lh_host_slowdowns *now,
                  uint32_t *hosts, uint32_t k, uint32_t n, int64_t *best)
{
    if (k == n) {
        int64_t ns = makespan(t, now, hosts);
        *best = ns < *best ? ns : *best;
    }
    for (uint32_t i = k; i < n; i++) {
        swap(&hosts[k], &hosts[i]);
        least(t, now, hosts, k + 1, n, best);
        swap(&hosts[k], &hosts[i]);
    }
}

/* Compared with trying every permutation. */
static void the_best_of_all_is_found(void)
{
    for (uint32_t seed = 1; seed <= 20; seed++) {
        uint32_t r = seed, hosts[6] = {0, 1, 2, 3, 4, 5};
        const uint32_t replicas = 1 + seed % 3, n = 2 * replicas;
        setting t = set_up(two, replicas, NULL);
        lh_host_link_delay links[4];
        double slower[6];
        for (uint32_t i = 0; i < 4; i++) {
            links[i].from = next(&r) % n;
            links[i].to = (links[i].from + 1 + next(&r) % (n - 1)) % n;
            links[i].latency_ns = next(&r) % 20 * MS;
            links[i].transfer_ns = next(&r) % 5 * MS;
        }
        for (uint32_t h = 0; h < n; h++)
            slower[h] = next(&r) % 3 ? 1 : 1.5;
        const lh_host_slowdowns now = {.size = sizeof now,
                                       .n_links = 4,
                                       .links = links,
                                       .pass_factors = slower};
        int64_t best = INT64_MAX;
        least(&t, &now, hosts, 0, n, &best);
        lh_host_exchange *x = exchange(&t, &now, NULL);
        CHECK_MSG(x->predicted_ns == best, "seed %" PRIu32, seed);
        CHECK_INT(makespan(&t, &now, x->hosts), x->predicted_ns);
        lh_host_exchange_free(x);
        tear_down(&t);
    }
}

/* Sixteen hosts: one exchange at a time (hill climbing). The ring of device 0
 * avoids its slow link. */
static void many_hosts_go_downhill(void)
{
    setting t = set_up(four, 4, NULL);
    const lh_host_link_delay links[] = {{0, 4, 0, 20 * MS},
                                        {9, 13, 0, 20 * MS}};
    const lh_host_slowdowns now = {
        .size = sizeof now, .n_links = 2, .links = links};
    lh_host_exchange *x = exchange(&t, &now, NULL);
    CHECK(!x->is_exhaustive && x->is_exchange);
    CHECK_INT(x->predicted_ns, makespan(&t, NULL, NULL));
    CHECK_INT(x->predicted_ns, makespan(&t, &now, x->hosts));
    CHECK_HAS(x->why, "hosts 9 and 13 carries nothing");
    lh_host_exchange_free(x);
    /* A small case by hill climbing: never worse than unchanged. */
    const lh_host_exchange_options o = {.size = sizeof o,
                                        .max_exhaustive_hosts = 1};
    setting s = set_up(two, 2, NULL);
    x = exchange(&s, &ring_now, &o);
    CHECK(!x->is_exhaustive);
    CHECK_INT(x->predicted_ns, makespan(&s, NULL, NULL));
    lh_host_exchange_free(x);
    tear_down(&s);
    tear_down(&t);
}

/* --- rejected ------------------------------------------------------------- */

static void refuse(uniform u, uint32_t replicas, lh_status want,
                   const char *says)
{
    lh_error err = {0};
    lh_host_placement *places = NULL;
    lh_pipeline *p = uniform_make(u);
    const lh_host_placement_options o = {.size = sizeof o,
                                         .n_replicas = replicas};
    CHECK_INT(lh_host_placement_make(p, &o, &places, &err), want);
    CHECK(!places);
    CHECK_HAS(err.text, says);
    lh_pipeline_free(p);
}

static void what_is_shared_is_refused(void)
{
    uniform u = four;
    u.more = NULL;
    u.placement = "loop";
    u.datacenters = 2;
    u.latency = 3;
    refuse(u, 2, LH_EUNSUPPORTED,
           "some links of the pipeline share a resource");
    refuse(two, 513, LH_EINVAL, "exceed 1024 hosts");
}

/* A slow link between hosts 0 and 1, which have different devices: those of
 * replica 0 end up in different replicas. */
static void what_differs_stays_at_its_device(void)
{
    static const char *const unlike[] = {
        "links:\n"
        "  - {from: 0, to: 1, latency: 2, transfer: 1}\n"
        "  - {from: 1, to: 0, latency: 30, transfer: 4}\n",
        "memory_limit: [30, 40]\nlinks:\n"
        "  - {from: 0, to: 1, latency: 2, transfer: 1}\n"
        "  - {from: 1, to: 0, latency: 2, transfer: 1}\n"};
    static const lh_host_link_delay slow[] = {{0, 1, 40 * MS, 3 * MS}};
    const lh_host_slowdowns now = {
        .size = sizeof now, .n_links = 1, .links = slow};
    for (int i = 0; i < 2; i++) {
        uniform u = two;
        u.more = unlike[i];
        setting t = set_up(u, 4, NULL);
        lh_pipeline *p = pipeline_of(&t, &now, NULL);
        int64_t back = i == 0 ? 30 * MS : 2 * MS;
        CHECK_INT(lh_pipeline_link(p, 0)->latency_ns, 42 * MS);
        CHECK_INT(lh_pipeline_link(p, 0)->transfer_ns, 4 * MS);
        CHECK_INT(lh_pipeline_link(p, 1)->latency_ns, back);
        lh_pipeline_free(p);
        CHECK_INT(lhi_host_placement_nominal_link(t.places, 1, 2).latency_ns,
                  back);
        CHECK_INT(lhi_host_placement_nominal_link(t.places, 0, 2).latency_ns,
                  i == 0 ? 0 : 2 * MS);
        lh_host_exchange *x = exchange(&t, &now, NULL);
        CHECK(x->is_exchange && x->predicted_ns == makespan(&t, NULL, NULL));
        CHECK(x->current_ns > x->predicted_ns);
        uint32_t at[8];
        for (uint32_t k = 0; k < x->n_hosts; k++) {
            CHECK_INT(x->hosts[k] % 2, k % 2);
            at[x->hosts[k]] = k;
        }
        CHECK(at[0] / 2 != at[1] / 2);
        lh_host_exchange_free(x);
        const uint32_t others[] = {1, 0, 2, 3, 4, 5, 6, 7};
        lh_error err = {0};
        CHECK_INT(lh_host_placement_pipeline(t.places, &now, others, &p, &err),
                  LH_EUNSUPPORTED);
        CHECK_HAS(err.text, "host 1 cannot take a place of device 0");
        tear_down(&t);
    }
}

static void wrong_numbers_are_refused(void)
{
    lh_error err = {0};
    setting t = set_up(two, 2, NULL);
    lh_pipeline *p = NULL;
    const uint32_t twice[] = {0, 1, 2, 2};
    CHECK_INT(lh_host_placement_pipeline(t.places, NULL, twice, &p, &err),
              LH_EINVAL);
    CHECK_HAS(err.text, "host 2");
    const lh_host_link_delay none = {0, 4, 1, 1}, back = {0, 1, -1, 0};
    lh_host_slowdowns now = {.size = sizeof now, .n_links = 1, .links = &none};
    CHECK_INT(lh_host_placement_pipeline(t.places, &now, NULL, &p, &err),
              LH_EINVAL);
    now.links = &back;
    CHECK_INT(lh_host_placement_pipeline(t.places, &now, NULL, &p, &err),
              LH_EINVAL);
    const double faster[] = {1, 1, 0.5, 1};
    now = (lh_host_slowdowns){.size = sizeof now, .pass_factors = faster};
    CHECK_INT(lh_host_placement_pipeline(t.places, &now, NULL, &p, &err),
              LH_EINVAL);
    CHECK(!p);
    tear_down(&t);
    /* With zero-time messages, the data's size in messages is unknown. */
    uniform u = two;
    u.more = "data_parallel:\n"
             "  - {chunk: 0, all_gather: 20, reduce_scatter: 30, latency: 2}\n";
    t = set_up(u, 2, NULL);
    CHECK_INT(lh_host_placement_pipeline(t.places, &ring_now, NULL, &p, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "chunk 0");
    tear_down(&t);
}

int main(void)
{
    RUN(a_slow_link_matters_by_what_it_carries);
    RUN(a_slow_host_is_slow_where_it_is);
    RUN(longer_rings_take_more_steps);
    RUN(the_exchange_is_worked_out);
    RUN(it_has_to_pay);
    RUN(moves_can_be_kept_to);
    RUN(the_best_of_all_is_found);
    RUN(many_hosts_go_downhill);
    RUN(what_is_shared_is_refused);
    RUN(what_differs_stays_at_its_device);
    RUN(wrong_numbers_are_refused);
    return test_summary();
}
