/* SPDX-License-Identifier: Apache-2.0 */
/* Expert groups within a pipeline stage: groups listed rank by rank, traffic
 * and memory by hand, and random layouts compared with an enumeration over all
 * ranks. */
#include "test_cost.h"

#include "base/random.h"
#include "model/group_layout.h"
#include "model/groups.h"
#include "model/shape.h"

#include <math.h>

enum { CASES = 3000, MOST_RANKS = 512, MOST_SITES = 3 };

/* --- by hand -------------------------------------------------------------- */

/* Mixtral on four nodes with eight GPUs: tensor 2, pipeline 2, data 8, expert
 * 8. The first stage has the first two nodes. */
static void four_nodes(fixture *f)
{
    fixture_init(f, "mixtral-8x7b");
    f->sites[0].nodes = 4;
    f->sites[0].gpus = 32;
    f->job.n_datacenters = 1;
    f->job.n_gpus = 32;
    f->job.training.zero = 1;
    f->layout.tensor = 2;
    f->layout.pipeline = 2;
    f->layout.data = 8;
    f->layout.expert = 8;
}

/* GPUs in that stage's groups. */
static const uint32_t tensor_groups[8][2] = {
    {0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}};
static const uint32_t data_groups[2][8] = {{0, 2, 4, 6, 8, 10, 12, 14},
                                           {1, 3, 5, 7, 9, 11, 13, 15}};
static const uint32_t expert_groups[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7},
                                             {8, 9, 10, 11, 12, 13, 14, 15}};
static const uint32_t copy_groups[8][2] = {{0, 8},  {1, 9},  {2, 10}, {3, 11},
                                           {4, 12}, {5, 13}, {6, 14}, {7, 15}};

/* Checks the number of groups with `size` members, and their members per node.
 */
static void check_group(fixture *f, lh_cost_dimension dimension,
                        const uint32_t *gpus, uint32_t groups, uint32_t size)
{
    lh_cost_group g = {0};
    bool seen[16] = {false};

    CHECK_OK(lhi_cost_find_group(&f->job, &f->layout, dimension, &f->slice, &g,
                                 &f->err),
             f->err);
    CHECK_INT(g.size, size);
    CHECK_INT(groups * size, 16);
    for (uint32_t i = 0; i < groups; i++) {
        uint32_t on[2] = {0, 0};

        for (uint32_t k = 0; k < size; k++) {
            on[gpus[i * size + k] / 8]++;
            CHECK(!seen[gpus[i * size + k]]);
            seen[gpus[i * size + k]] = true;
        }
        CHECK(on[0] == g.per_node || on[0] == 0);
        CHECK(on[1] == g.per_node || on[1] == 0);
    }
}

static void groups_are_those_listed(void)
{
    fixture f;

    four_nodes(&f);
    check_group(&f, LH_COST_TENSOR, tensor_groups[0], 8, 2);
    check_group(&f, LH_COST_DATA_SHARED, data_groups[0], 2, 8);
    check_group(&f, LH_COST_EXPERT, expert_groups[0], 2, 8);
    check_group(&f, LH_COST_DATA, copy_groups[0], 8, 2);
}

/* A layer on one of these GPUs. */
static const double expert = 3 * 4096.0 * 14336; /* one of eight */
static const double rest = (2 * 4096.0 * 4096 + 2 * 4096.0 * 1024) / 2 +
                           2 * 4096 + 4096 * 8; /* halved; norms; router */

static void bytes_and_times_by_hand(void)
{
    fixture f;
    double tokens = 8192.0 * 4096 * 2, node = fixture_node_rate();
    double fabric = 0.985 * 50, late = FIXTURE_NODE_LATENCY;

    four_nodes(&f);
    COST(&f);
    CHECK_INT(f.cost.expert_params, expert);
    CHECK_INT(f.cost.params, expert + rest);
    /* Two all-to-alls: half the tokens, two experts each, seven of eight on
     * other GPUs in the node. Also attention's all-gather and reduce-scatter
     * between two GPUs, with all tokens. */
    CHECK_NEAR((double)f.cost.f.communication_ns,
               2 * (tokens / 2 * 2 * 7 / 8 / node + late) +
                   2 * (tokens / 2 / node + late),
               3);
    CHECK_INT(f.cost.d.communication_ns, f.cost.f.communication_ns);
    /* Gradients: eight ranks, four on each of two nodes, and two on two nodes.
     */
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               7.0 / 8 * 4 * rest / (4 * fabric) + 0.5 * 4 * expert / fabric,
               2);
    CHECK_NEAR((double)f.cost.all_gather_ns,
               7.0 / 8 * 2 * rest / (4 * fabric) + 0.5 * 2 * expert / fabric,
               2);
    CHECK_INT(f.cost.reduce_bytes, 4 * (expert + rest));
    /* Complete weights and gradients, optimizer state in eight and two shards.
     */
    CHECK_INT(f.cost.weight_bytes, 2 * (expert + rest));
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * (expert / 2 + rest / 8), 1);
    /* Each of 16 GPUs has an eighth of the experts: two copies, 8 / 8. */
    f.layout.data = 4; /* then one copy, nothing to reduce */
    COST(&f);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns, 3.0 / 4 * 4 * rest / node, 2);
    CHECK_INT(f.cost.reduce_bytes, 4 * rest);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * (expert + rest / 4), 1);
}

/* Each expert on two GPUs: the stage's sixteen GPUs have every expert once. */
static void experts_can_be_cut(void)
{
    fixture f;
    double tokens = 8192.0 * 4096 * 2, node = fixture_node_rate();
    double fabric = 0.985 * 50, late = FIXTURE_NODE_LATENCY;
    double moved = tokens / 2 * 2;
    lh_cost whole;

    four_nodes(&f);
    COST(&f);
    whole = f.cost;
    f.layout.expert_tensor = 2;
    COST(&f);
    CHECK_INT(f.cost.expert_params, expert / 2);
    CHECK_NEAR(f.cost.f.flops, whole.f.flops, 1);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * (expert / 2 + rest / 8), 1);
    /* Groups of eight, every second GPU on two nodes: four go to the other
     * node. The two GPUs that share an expert gather both inputs. */
    CHECK_NEAR((double)f.cost.f.communication_ns,
               2 * (moved * 4 / 8 / fabric + 8000) +
                   2 * (2 * moved / 2 / node + late) +
                   2 * (tokens / 2 / node + late),
               3);
    /* Expert activations: twice as many tokens, half as wide, stored. */
    CHECK_INT(f.cost.activation_bytes - whole.activation_bytes, moved);
    /* Without expert parallelism, experts are split like attention. */
    f.layout.expert = 1;
    f.layout.expert_tensor = 0;
    COST(&f);
    whole = f.cost;
    f.layout.expert_tensor = 2;
    COST(&f);
    CHECK(memcmp(&f.cost, &whole, sizeof whole) == 0);
    CHECK_NEAR((double)f.cost.f.communication_ns,
               4 * (tokens / 2 / node + late), 3);
    CHECK_INT(f.cost.expert_params, 4 * expert);
    /* Complete experts on every GPU: no tokens are sent. */
    f.layout.expert_tensor = 1;
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns,
               2 * (tokens / 2 / node + late), 3);
    CHECK_NEAR((double)f.cost.optimizer_bytes,
               12 * (8 * expert / 16 + rest / 8), 1);
    /* Of one replica, too: its two GPUs reduce the experts alone. */
    f.layout.data = 1;
    COST(&f);
    CHECK_INT(f.cost.reduce_bytes, 4 * 8 * expert);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns, 0.5 * 4 * 8 * expert / node,
               2);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * (8 * expert / 2 + rest), 1);
}

/* Sixteen GPUs on four nodes, 32 experts. A token goes to another node if any
 * of its four (eight) experts is among the node's eight: all are elsewhere in
 * C(24, 4) of C(32, 4) cases (C(24, 8) of C(32, 8)). With an all-to-all it
 * would be three out of four copies. */
static void once_per_node(void)
{
    fixture f;
    lhi_exchange exchange = {LH_DISPATCHER_DEEPEP, 4, 32, 0, 0};
    lhi_group_members m = {16, 1, {{0, 16, 4, 4, 1}}};
    lh_cost_options options;
    lhi_exchange_time t;
    lhi_ecmp_cache known = {0};

    fixture_init(&f, "mixtral-8x7b");
    CHECK_OK(lhi_complete_cost_options(&f.job, &f.options, &options, &f.err),
             f.err);
    for (int k = 4; k <= 8; k += 4) {
        double once =
            3 * (1 - (k == 4 ? 10626.0 / 35960 : 735471.0 / 10518300)) / k;

        exchange.copies = k;
        CHECK_OK(lhi_all_to_all_compute_time(&f.job, &m, &exchange, &options,
                                             &known, &t, &f.err),
                 f.err);
        CHECK_NEAR(t.ns_per_byte, once / (0.985 * 50), 1e-12);
        /* To another node, then to another GPU on it. */
        CHECK_NEAR(t.latency_ns, 8000 + 3000, 0);
    }
    exchange.dispatcher = LH_DISPATCHER_ALL_TO_ALL;
    CHECK_OK(lhi_all_to_all_compute_time(&f.job, &m, &exchange, &options,
                                         &known, &t, &f.err),
             f.err);
    CHECK_NEAR(t.ns_per_byte, 12.0 / 16 / (0.985 * 50), 1e-12);
    CHECK_NEAR(t.latency_ns, 8000, 0);
    lhi_exchange_paths paths;
    CHECK_OK(lhi_all_to_all_compute_path_times(&f.job, &m, &options, &known,
                                               &paths, &f.err),
             f.err);
    CHECK_NEAR(paths.far_ns_per_byte, 1 / (0.985 * 50), 1e-12);
    CHECK_NEAR(paths.near_ns_per_byte, 1 / fixture_node_rate(), 1e-12);
    CHECK_NEAR(paths.far_latency_ns, 8000, 0);
    CHECK_NEAR(paths.near_latency_ns, 3000, 0);
    m.at[0].fewest_per_node = 16; /* one node */
    CHECK_OK(lhi_all_to_all_compute_path_times(&f.job, &m, &options, &known,
                                               &paths, &f.err),
             f.err);
    CHECK(paths.far_ns_per_byte == 0 && paths.far_latency_ns == 0);
}

/* Expert 16 within data 16, tensor 1, pipeline 8 on 128 GPUs. */
static void within_data(void)
{
    fixture f;

    fixture_init(&f, "mixtral-8x7b");
    lh_model m = *f.job.model;
    m.experts = 128;
    m.experts_per_token = 8;
    f.job.model = &m;
    f.layout.pipeline = 8;
    f.layout.data = 16;
    f.layout.expert = 16;
    COST(&f);
    CHECK_INT(f.cost.expert_params, 8 * expert);
}

/* Eight replicas of one GPU, four experts in a group: the first four replicas
 * are on one node, the others on four nodes. The second group is slower: three
 * of four members are on other nodes. */
static void groups_of_all_runs_of_replicas_count(void)
{
    const lh_cost_run runs[] = {{0, 0, 4, 1}, {0, 8, 4, 8}};
    const uint32_t nodes[] = {1, 4};
    double moved = 8192.0 * 4096 * 2 * 2, fabric = 0.985 * 50;
    lhi_group_layout groups;
    lhi_group_members m;
    fixture f;

    fixture_init(&f, "mixtral-8x7b");
    f.layout.data = 8;
    f.layout.expert = 4;
    f.slice.n_runs = 2;
    f.slice.runs = runs;
    CHECK_OK(
        lhi_group_layout_build(&f.job, &f.layout, &f.slice, &groups, &f.err),
        f.err);
    for (uint32_t i = 0; i < 2; i++) {
        CHECK(lhi_group_layout_find_dispatch_group(&groups, 0, i, &m));
        CHECK(m.n == 1 && m.at[0].members == 4);
        CHECK(m.at[0].nodes == nodes[i]);
        CHECK(m.at[0].fewest_per_node == 4.0 / nodes[i]);
    }
    CHECK(!lhi_group_layout_find_dispatch_group(&groups, 0, 2, &m));
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns,
               2 * (moved * 3 / 4 / fabric + 8000), 3);
}

/* Members that are all on different nodes or in different datacenters: their
 * messages take at least the shortest latency from the datacenter, whatever
 * other datacenters' links have. */
static void a_bound_counts_the_links_of_its_datacenter(void)
{
    const lhi_exchange exchange = {LH_DISPATCHER_ALL_TO_ALL, 1, 0, 0, 0};
    const int64_t latency_ns[3][3] = {
        {0, 4000, 1000}, {5000, 0, 7000}, {2000, 3000, 0}};
    const double shortest[] = {1000, 5000, 2000}; /* the fabric has 8000 */
    lh_datacenter datacenters[3];
    lh_wan wans[9];
    lh_cost_options options;
    lhi_exchange_time least;
    fixture f;

    fixture_init(&f, "mixtral-8x7b");
    for (int i = 0; i < 9; i++) {
        datacenters[i / 3] = f.sites[0];
        wans[i] = f.wans[1];
        wans[i].latency_ns = latency_ns[i / 3][i % 3];
    }
    f.job.n_datacenters = 3;
    f.job.datacenters = datacenters;
    f.job.wans = wans;
    CHECK_OK(lhi_complete_cost_options(&f.job, &f.options, &options, &f.err),
             f.err);
    for (uint32_t dc = 0; dc < 3; dc++) {
        CHECK_OK(lhi_all_to_all_compute_lower_bound(
                     &f.job, dc, 16, 1, &exchange, &options, &least, &f.err),
                 f.err);
        CHECK_NEAR(least.latency_ns, shortest[dc], 0);
    }
}

/* Four experts, each on sixteen GPUs, so that every node has at most one member
 * of a group. A token has two of the four experts: it is sent to each of the
 * three other members in 2/4 of the cases, as one of two copies. */
static void a_bound_counts_members_on_no_more_than_one_node(void)
{
    const lhi_exchange exchange = {LH_DISPATCHER_DEEPEP, 2, 4, 0, 0};
    lh_cost_options options;
    lhi_exchange_time least;
    fixture f;

    fixture_init(&f, "mixtral-8x7b");
    CHECK_OK(lhi_complete_cost_options(&f.job, &f.options, &options, &f.err),
             f.err);
    CHECK_OK(lhi_all_to_all_compute_lower_bound(&f.job, 0, 4, 16, &exchange,
                                                &options, &least, &f.err),
             f.err);
    CHECK_NEAR(least.ns_per_byte, 3 * (2.0 / 4) / 2 / (0.985 * 50), 1e-12);
}

/* --- all ranks ------------------------------------------------------------ */

/* Location of a rank. */
typedef struct where {
    uint32_t datacenter, node;
} where;

/* A random stage: its ranks, network and group sizes. */
typedef struct stage_memory {
    fixture f;
    lh_cost_site sites[MOST_SITES];
    lh_datacenter datacenters[MOST_SITES];
    lh_wan wans[MOST_SITES * MOST_SITES];
    where ranks[MOST_RANKS];
    uint32_t n, block, expert, tensor;
    double sharing;
} stage;

/* Lists ranks in numbering order: in each datacenter adjacent replicas, or a
 * replica's stages. */
static void list_ranks(stage *s)
{
    const lh_layout *l = &s->f.layout;
    uint32_t group = l->tensor * l->context;
    uint32_t step =
        l->outermost == LH_OUTERMOST_DATA ? group * l->pipeline : group;

    s->n = 0;
    for (uint32_t dc = 0; dc < MOST_SITES; dc++)
        for (uint32_t i = 0; i < s->f.slice.n_sites; i++)
            for (uint32_t k = 0; s->sites[i].datacenter == dc &&
                                 k < s->sites[i].replicas * group;
                 k++)
                s->ranks[s->n++] =
                    (where){dc, (k / group * step + k % group) /
                                    s->datacenters[dc].gpus_per_node};
}

static uint32_t pick(lhi_random *r, uint32_t least, uint32_t most)
{
    return least + lhi_random_below(r, most - least + 1);
}

/* Draws a random stage; false: the layout is impossible. */
static bool random_stage(lhi_random *r, stage *s)
{
    static const uint32_t node[] = {1, 2, 4, 6, 8, 12};
    static const uint32_t experts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 48};
    lh_layout *l = &s->f.layout;
    uint32_t n = pick(r, 1, MOST_SITES), per_node = node[pick(r, 0, 5)];

    fixture_init(&s->f, "mixtral-8x7b");
    for (uint32_t i = 0; i < MOST_SITES; i++) {
        s->datacenters[i] = s->f.sites[0];
        s->datacenters[i].gpus_per_node = per_node;
    }
    for (uint32_t i = 0; i < MOST_SITES * MOST_SITES; i++) {
        s->wans[i] = s->f.wans[1];
        s->wans[i].bytes_per_s = pick(r, 1, 9) * 1e9;
        s->wans[i].latency_ns = pick(r, 1, 9) * 2000;
    }
    s->f.job.n_datacenters = MOST_SITES;
    s->f.job.datacenters = s->datacenters;
    s->f.job.wans = s->wans;
    l->tensor = 1u << pick(r, 0, 2);
    l->context = pick(r, 1, 2);
    l->pipeline = pick(r, 1, 3);
    l->outermost = pick(r, 0, 1) ? LH_OUTERMOST_DATA : LH_OUTERMOST_PIPELINE;
    l->data = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->sites[i] = (lh_cost_site){(i + 1) % MOST_SITES, pick(r, 1, 12)};
        l->data += s->sites[i].replicas;
    }
    l->expert = experts[pick(r, 0, 9)];
    l->expert_tensor = pick(r, 0, 2) ? 0 : 1u << pick(r, 0, 1);
    s->f.slice.datacenter = s->sites[0].datacenter;
    s->f.slice.n_sites = n;
    s->f.slice.sites = s->sites;
    s->f.slice.n_sharing_ranks = pick(r, 1, 2);
    s->sharing = s->f.slice.n_sharing_ranks;
    s->expert = l->expert;
    s->tensor = lh_layout_expert_tensor(l);
    s->block = s->expert * s->tensor;
    list_ranks(s);
    return s->n % s->block == 0 && s->n <= MOST_RANKS &&
           l->tensor * l->context % s->tensor == 0 && per_node % s->tensor == 0;
}

/* Time to send one GPU's byte to the other GPUs with its block and slot. */
static lhi_exchange_time naive_member(const stage *s, uint32_t rank)
{
    const where *me = &s->ranks[rank];
    uint32_t first = rank - rank % s->block, here = 0;
    double node = 0, away = 0, late = 0;

    for (uint32_t r = first; r < first + s->block; r++)
        here += s->ranks[r].datacenter == me->datacenter;
    for (uint32_t r = first + rank % s->tensor; r < first + s->block;
         r += s->tensor) {
        const where *to = &s->ranks[r];
        const lh_wan *wan =
            &s->wans[me->datacenter * MOST_SITES + to->datacenter];

        if (r == rank)
            continue;
        if (to->datacenter != me->datacenter) {
            away += fmax(here * s->sharing / (wan->bytes_per_s / 1e9),
                         1 / (0.985 * 50));
            late = fmax(late, (double)wan->latency_ns);
        } else if (to->node != me->node) {
            away += 1 / (0.985 * 50);
            late = fmax(late, 8000);
        } else {
            node += 1 / fixture_node_rate();
            late = fmax(late, 3000);
        }
    }
    return (lhi_exchange_time){fmax(node, away) / s->expert, late,
                               away / s->expert};
}

/* Slowest over all GPUs whose block reaches into the datacenter. */
static lhi_exchange_time naive_exchange(const stage *s, uint32_t dc)
{
    lhi_exchange_time worst = {0};

    for (uint32_t first = 0; first < s->n; first += s->block) {
        bool reaches = false;

        for (uint32_t r = first; r < first + s->block; r++)
            reaches = reaches || s->ranks[r].datacenter == dc;
        for (uint32_t r = first; reaches && r < first + s->block; r++) {
            lhi_exchange_time here = naive_member(s, r);

            worst.ns_per_byte = fmax(worst.ns_per_byte, here.ns_per_byte);
            worst.latency_ns = fmax(worst.latency_ns, here.latency_ns);
        }
    }
    return worst;
}

/* Returns the slowest exchange over all groups with members in a datacenter;
 * checks that none is below the claimed lower bound. */
static lhi_exchange_time slowest_exchange(const stage *s,
                                          const lhi_group_layout *fold,
                                          uint32_t dc,
                                          const lhi_exchange *exchange)
{
    lhi_exchange_time got = {0}, least;
    lhi_ecmp_cache known = {0};
    lh_cost_options options;
    lhi_group_members m;
    lh_error err;

    CHECK_OK(
        lhi_complete_cost_options(&s->f.job, &s->f.options, &options, &err),
        err);
    for (uint32_t i = 0; lhi_group_layout_find_dispatch_group(fold, dc, i, &m);
         i++) {
        lhi_exchange_time t;

        CHECK_OK(lhi_all_to_all_compute_time(&s->f.job, &m, exchange, &options,
                                             &known, &t, &err),
                 err);
        got.ns_per_byte = fmax(got.ns_per_byte, t.ns_per_byte);
        got.latency_ns = fmax(got.latency_ns, t.latency_ns);
    }
    CHECK_OK(lhi_all_to_all_compute_lower_bound(&s->f.job, dc, s->expert,
                                                s->tensor, exchange, &options,
                                                &least, &err),
             err);
    CHECK(least.ns_per_byte <= got.ns_per_byte * (1 + 1e-12) &&
          least.latency_ns <= got.latency_ns + 1e-6);
    return got;
}

/* Ranks are numbered from each datacenter's first. */
static void check_nodes(const stage *s, const lhi_group_layout *fold)
{
    uint32_t n[MOST_SITES] = {0};
    for (uint32_t r = 0; r < s->n; r++) {
        uint32_t dc = s->ranks[r].datacenter;
        CHECK_INT(lhi_group_layout_find_node(fold, dc, n[dc]++),
                  s->ranks[r].node);
    }
}

static void check_senders(const stage *s, const lhi_group_layout *fold,
                          uint32_t site)
{
    static const lhi_exchange plain = {LH_DISPATCHER_ALL_TO_ALL, 1, 0, 0, 0};
    static const lhi_exchange deepep = {LH_DISPATCHER_DEEPEP, 4, 64, 0, 0};
    uint32_t dc = s->sites[site].datacenter;
    lhi_exchange_time want = naive_exchange(s, dc);
    lhi_exchange_time got = slowest_exchange(s, fold, dc, &plain);

    CHECK_NEAR(got.ns_per_byte, want.ns_per_byte, 1e-9 * want.ns_per_byte);
    CHECK_NEAR(got.latency_ns, want.latency_ns, 1e-6);
    slowest_exchange(s, fold, dc, &deepep);
}

/* Counts the GPUs per datacenter with the same experts as this position in a
 * block. */
static void count_place(const stage *s, uint32_t place, uint32_t *counts)
{
    memset(counts, 0, MOST_SITES * sizeof *counts);
    for (uint32_t r = place; r < s->n; r += s->block)
        counts[s->ranks[r].datacenter]++;
}

static bool is_kind(const lhi_expert_replicas *c, const uint32_t *counts)
{
    uint32_t n = c->group.n_sites > 1 ? c->group.n_sites : 1, used = 0;

    for (uint32_t dc = 0; dc < MOST_SITES; dc++) {
        if (!counts[dc])
            continue;
        if (used >= n || c->sites[used].datacenter != dc ||
            c->sites[used].replicas != counts[dc])
            return false;
        used++;
    }
    return used == n;
}

static void check_copies(const stage *s, const lhi_group_layout *fold)
{
    uint32_t counts[MOST_SITES];
    double rings = 0, places = 0, across = -1;
    lhi_expert_replicas c;

    for (uint32_t place = 0; place < s->block; place++) {
        uint64_t alike = 0;
        uint32_t other[MOST_SITES], least = UINT32_MAX, n = 0;

        count_place(s, place, counts);
        for (uint32_t k = 0; k < s->block; k++) {
            count_place(s, k, other);
            alike += memcmp(counts, other, sizeof counts) == 0;
        }
        for (uint32_t i = 0; i < MOST_SITES; i++) {
            n += counts[i] > 0;
            if (counts[i] && counts[i] < least)
                least = counts[i];
        }
        rings += n > 1 ? least * s->sharing : 0;
        for (uint32_t i = 0; lhi_group_layout_find_replicas(fold, i, &c); i++)
            if (c.n && is_kind(&c, counts)) {
                alike -= c.n;
                CHECK_INT(c.group.size, s->n / s->block);
                CHECK_INT(c.group.per_datacenter, least);
            }
        CHECK_INT(alike, 0);
    }
    for (uint32_t i = 0; lhi_group_layout_find_replicas(fold, i, &c); i++) {
        places += (double)c.n;
        if (c.n && c.group.n_sites > 1)
            across = c.group.concurrent;
    }
    CHECK_NEAR(places, s->block, 0);
    if (across >= 0)
        CHECK_NEAR(across, rings, 0);
}

/* Checks the blocks that span datacenters, each listed once. */
static void check_across(const stage *s, const lhi_group_layout *fold)
{
    uint32_t want = 0, got = 0;
    lhi_group_members m;

    for (uint32_t first = 0; first < s->n; first += s->block)
        want += s->ranks[first].datacenter !=
                s->ranks[first + s->block - 1].datacenter;
    while (lhi_group_layout_find_spanning_group(fold, got, &m)) {
        double sum = 0;

        for (uint32_t i = 0; i < m.n; i++)
            sum += m.at[i].members;
        CHECK(m.n > 1);
        CHECK_NEAR(sum, s->expert, 1e-9);
        got++;
    }
    CHECK_INT(got, want);
}

static void every_rank_is_where_it_is_listed(void)
{
    lhi_random r = {7};
    uint32_t made = 0;

    for (uint32_t i = 0; i < CASES; i++) {
        stage s;
        lhi_group_layout fold;
        lh_error err;

        if (!random_stage(&r, &s))
            continue;
        made++;
        CHECK_OK(lhi_group_layout_build(&s.f.job, &s.f.layout, &s.f.slice,
                                        &fold, &err),
                 err);
        for (uint32_t site = 0; site < s.f.slice.n_sites; site++)
            check_senders(&s, &fold, site);
        check_nodes(&s, &fold);
        check_copies(&s, &fold);
        check_across(&s, &fold);
        if (test_state.bad) {
            fprintf(stderr, "case %u\n", i);
            return;
        }
    }
    CHECK(made > CASES / 4);
}

int main(void)
{
    RUN(groups_are_those_listed);
    RUN(bytes_and_times_by_hand);
    RUN(experts_can_be_cut);
    RUN(once_per_node);
    RUN(within_data);
    RUN(groups_of_all_runs_of_replicas_count);
    RUN(a_bound_counts_the_links_of_its_datacenter);
    RUN(a_bound_counts_members_on_no_more_than_one_node);
    RUN(every_rank_is_where_it_is_listed);
    return test_summary();
}
