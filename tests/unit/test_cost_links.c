/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, groups, collectives, messages. */
#include "model/groups.h"
#include "model/paths.h"
#include "test_cost.h"

static void rings(void)
{
    const lh_cost_path path = {.bytes_per_s = 100e9, .latency_ns = 5000};
    double transfer, latency;

    lh_cost_collective(LH_ALL_GATHER, 8, 1e9, &path, &transfer, &latency);
    CHECK_NEAR(transfer, 7.0 / 8 * 1e7, 1e-6);
    CHECK_NEAR(latency, 7 * 5000, 0);
    lh_cost_collective(LH_REDUCE_SCATTER, 8, 1e9, &path, &transfer, &latency);
    CHECK_NEAR(transfer, 7.0 / 8 * 1e7, 1e-6);
    lh_cost_collective(LH_ALL_REDUCE, 8, 1e9, &path, &transfer, &latency);
    CHECK_NEAR(transfer, 2 * 7.0 / 8 * 1e7, 1e-6);
    CHECK_NEAR(latency, 14 * 5000, 0);
    lh_cost_collective(LH_ALL_TO_ALL, 4, 1e9, &path, &transfer, &latency);
    CHECK_NEAR(transfer, 3.0 / 4 * 1e7, 1e-6);
    CHECK_NEAR(latency, 5000, 0);
    lh_cost_collective(LH_ALL_TO_ALL, 1, 1e9, &path, &transfer, &latency);
    CHECK_NEAR(transfer + latency, 0, 0);
    lh_cost_collective(LH_ALL_REDUCE, 1, 1e9, &path, &transfer, &latency);
    CHECK_NEAR(transfer + latency, 0, 0);
}

static lh_cost_path path_of(fixture *f, lh_cost_group group)
{
    lh_cost_path path = {0};

    CHECK_OK(lh_cost_group_path(&f->job, &group, &f->options, &path, &f->err),
             f->err);
    return path;
}

static void slowest_path_counts(void)
{
    fixture f;
    const lh_cost_constants *c = lh_cost_defaults();
    lh_cost_path p;

    fixture_init(&f, "llama3-8b");
    p = path_of(&f, (lh_cost_group){8, 8, 1024, 0, 1, 0, NULL, 0});
    CHECK_INT(p.kind, LH_PATH_NODE);
    CHECK_NEAR(p.bytes_per_s, c->node_efficiency * 450e9, 1);
    CHECK_NEAR(p.latency_ns, 3000, 0);
    /* One member per node: one network interface. */
    p = path_of(&f, (lh_cost_group){16, 1, 1024, 0, 1, 0, NULL, 0});
    CHECK_INT(p.kind, LH_PATH_FABRIC);
    CHECK_NEAR(p.bytes_per_s, c->fabric_efficiency * 50e9, 1);
    CHECK_NEAR(p.latency_ns, 8000, 0);
    /* Four members per node use four interfaces; eight are no faster than
     * inside the node. */
    p = path_of(&f, (lh_cost_group){16, 4, 1024, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, 4 * c->fabric_efficiency * 50e9, 1);
    p = path_of(&f, (lh_cost_group){16, 8, 1024, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, c->node_efficiency * 450e9, 1);
    /* Across both datacenters, on a link shared by 64. */
    p = path_of(&f, (lh_cost_group){16, 1, 8, 0, 64, 0, NULL, 0});
    CHECK_INT(p.kind, LH_PATH_WAN);
    CHECK_NEAR(p.bytes_per_s, 400e9 / 64, 1);
    CHECK_NEAR(p.latency_ns, 2e7, 0);
    /* Alone, a GPU is limited by its own interface. */
    p = path_of(&f, (lh_cost_group){2, 1, 1, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, c->fabric_efficiency * 50e9, 1);
    /* Loss and competing demand; the ring's worse direction counts. */
    f.wans[2].loss = 0.1;
    f.wans[2].oversubscription = 4;
    f.wans[1].latency_ns = 30000000;
    p = path_of(&f, (lh_cost_group){16, 1, 8, 0, 64, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, 400e9 * 0.9 / 4 / 64, 1);
    CHECK_NEAR(p.latency_ns, 3e7, 0);
}

/* A link's settings change the rates of messages and rings. */
static void settings_change_rates(void)
{
    fixture f;
    lh_cost_message m;
    lh_cost_path p;
    const double bytes = 8192.0 * 4096 * 2; /* 16 Ki packets */

    fixture_init(&f, "llama3-8b");
    f.wans[1] = f.wans[2] = (lh_wan){.bytes_per_s = 12.5e9,
                                     .latency_ns = 1000000,
                                     .loss = 2e-4,
                                     .oversubscription = 1};
    f.layout.pipeline = 2;
    f.wans[1].setting.recovery = LH_RECOVERY_GO_BACK_N;
    m = (lh_cost_message){0};
    CHECK_OK(lhi_cost_hop_message(&f.job, &f.layout,
                                  &(lh_cost_hop){0, 1, 0, 0, 0, 0, 0},
                                  &f.options, &m, &f.err),
             f.err);
    /* The loss of a last packet adds at most five round trips. */
    CHECK_NEAR((double)m.latency_ns, 1e6, 2e-4 * 10e6);
    CHECK_NEAR((double)(m.transfer_ns + m.latency_ns),
               lh_message_ns(LH_RECOVERY_GO_BACK_N, bytes,
                             &(lh_flow){12.5e9, 1e6, 2e-4}),
               2e-4 * 10e6);
    /* Selective repeat: 7.169 ms is the mean of 200 packet simulations
     * (longhaul packets), of which sending takes 5.370 ms. */
    f.wans[1].setting.recovery = LH_RECOVERY_SELECTIVE_REPEAT;
    CHECK_OK(lhi_cost_hop_message(&f.job, &f.layout,
                                  &(lh_cost_hop){0, 1, 0, 0, 0, 0, 0},
                                  &f.options, &m, &f.err),
             f.err);
    CHECK_NEAR((double)(m.transfer_ns + m.latency_ns), 7.169e6, 0.1e6);
    f.wans[1].setting.recovery = LH_RECOVERY_GO_BACK_N;
    /* A ring across both is as slow as its slower direction, where the windows
     * of sprayed packets are the limit. */
    f.wans[2].setting =
        (lh_link_setting){.balancing = LH_BALANCING_SPRAY, .queue_pairs = 2};
    p = path_of(&f, (lh_cost_group){2, 1, 1, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, 2 * LH_WINDOW_BYTES / 2e-3 * (1 - 2e-4), 1);
    /* Shared by eight, the windows are no limit. */
    f.wans[1].setting = f.wans[2].setting;
    p = path_of(&f, (lh_cost_group){16, 1, 8, 0, 8, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, 12.5e9 / 8 * (1 - 2e-4), 1);
    /* An interface slower than all other limits. */
    f.sites[0].fabric.bytes_per_s = f.sites[1].fabric.bytes_per_s = 1e9;
    p = path_of(&f, (lh_cost_group){16, 1, 8, 0, 8, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, 0.985e9 * (1 - 2e-4), 1);
}

/* Acknowledgements return in the other direction. */
static void ways_back_may_differ(void)
{
    fixture f;

    fixture_init(&f, "llama3-8b");
    for (int i = 1; i <= 2; i++)
        f.wans[i] = (lh_wan){.bytes_per_s = 12.5e9,
                             .latency_ns = i == 1 ? 1000000 : 3000000,
                             .oversubscription = 1,
                             .setting = {.balancing = LH_BALANCING_SPRAY}};
    lh_cost_path p = path_of(&f, (lh_cost_group){2, 1, 1, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.bytes_per_s, LH_WINDOW_BYTES / 4e-3, 1);
    CHECK_NEAR(p.latency_ns, 3e6, 0);
}

static void missing_networks(void)
{
    fixture f;
    lh_cost_group group = {16, 1, 1024, 0, 1, 0, NULL, 0};
    lh_cost_path path;

    fixture_init(&f, "llama3-8b");
    f.sites[0].fabric.bytes_per_s = 0;
    CHECK_INT(lh_cost_group_path(&f.job, &group, NULL, &path, &f.err),
              LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "west has no fabric");
    group = (lh_cost_group){16, 1, 8, 1, 1, 0, NULL, 0};
    CHECK_INT(lh_cost_group_path(&f.job, &group, NULL, &path, &f.err),
              LH_EINVAL);
    group = (lh_cost_group){0, 1, 8, 0, 1, 0, NULL, 0};
    CHECK_INT(lh_cost_group_path(&f.job, &group, NULL, &path, &f.err),
              LH_EINVAL);
    f.wans[1].bytes_per_s = 0;
    group = (lh_cost_group){16, 1, 8, 0, 1, 0, NULL, 0};
    CHECK_INT(lh_cost_group_path(&f.job, &group, NULL, &path, &f.err),
              LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "no link west>east");
}

static lh_cost_group group_of(fixture *f, lh_cost_dimension dimension)
{
    lh_cost_group group = {0};

    CHECK_OK(lhi_cost_find_group(&f->job, &f->layout, dimension, &f->slice,
                                 &group, &f->err),
             f->err);
    return group;
}

static void groups_lie_as_numbered(void)
{
    fixture f;
    lh_cost_group g;

    fixture_init(&f, "mixtral-8x7b");
    f.layout = (lh_layout){.tensor = 2,
                           .context = 2,
                           .expert = 4,
                           .pipeline = 4,
                           .data = 8,
                           .micro_batch = 4};
    g = group_of(&f, LH_COST_TENSOR);
    CHECK(g.size == 2 && g.per_node == 2);
    g = group_of(&f, LH_COST_CONTEXT);
    CHECK(g.size == 2 && g.per_node == 2);
    g = group_of(&f, LH_COST_EXPERT); /* members in one replica */
    CHECK(g.size == 4 && g.per_node == 4);
    g = group_of(&f, LH_COST_DATA); /* same position in each: four apart */
    CHECK(g.size == 8 && g.per_node == 2);
    g = group_of(&f, LH_COST_DATA_SHARED);
    CHECK(g.size == 16 && g.per_node == 4);
    f.layout.expert = 8; /* members in two replicas */
    g = group_of(&f, LH_COST_EXPERT);
    CHECK(g.size == 8 && g.per_node == 8);
    g = group_of(&f, LH_COST_DATA);
    CHECK(g.size == 4 && g.per_node == 1);
    f.layout.expert_tensor = 2; /* in four: every second */
    g = group_of(&f, LH_COST_EXPERT);
    CHECK(g.size == 8 && g.per_node == 4);
    g = group_of(&f, LH_COST_EXPERT_TENSOR);
    CHECK(g.size == 2 && g.per_node == 2);
    g = group_of(&f, LH_COST_DATA);
    CHECK(g.size == 2 && g.per_node == 1);
    f.layout.expert_tensor = 0;
    f.layout.tensor = f.layout.context = f.layout.expert = 1;
    g = group_of(&f, LH_COST_DATA); /* adjacent */
    CHECK(g.size == 8 && g.per_node == 8);
    f.layout.outermost = LH_OUTERMOST_DATA; /* pipeline ranks in between */
    g = group_of(&f, LH_COST_DATA);
    CHECK(g.size == 8 && g.per_node == 2 && g.per_datacenter == 8);
    f.slice.data_datacenters = 2;
    g = group_of(&f, LH_COST_DATA);
    CHECK(g.size == 8 && g.per_datacenter == 4 && g.concurrent == 16);
    f.layout.tensor = 16; /* more than a node */
    g = group_of(&f, LH_COST_TENSOR);
    CHECK(g.size == 16 && g.per_node == 8);
    f.layout.data = 3;
    CHECK_INT(lhi_cost_find_group(&f.job, &f.layout, LH_COST_DATA, &f.slice, &g,
                                  &f.err),
              LH_EUNSUPPORTED);
}

/* Tensor groups of six GPUs on nodes of eight: the only replica in the first
 * datacenter has GPUs 0-5. Of four replicas in the second one, GPUs 6-11 and
 * 12-17 are on two nodes, with two GPUs on one of them. */
static void each_datacenter_has_its_own_replicas(void)
{
    const lh_cost_site sites[] = {{0, 1}, {1, 4}};
    fixture f;
    lh_cost_group g;

    fixture_init(&f, "llama3-8b");
    f.layout.tensor = 6;
    f.layout.data = 5;
    f.slice.n_sites = 2;
    f.slice.sites = sites;
    g = group_of(&f, LH_COST_TENSOR);
    CHECK(g.size == 6 && g.per_node == 6 && g.nodes == 1);
    f.slice.datacenter = 1;
    g = group_of(&f, LH_COST_TENSOR);
    CHECK(g.size == 6 && g.per_node == 2 && g.nodes == 2);
}

/* Four GPUs of a node with six, without a network between nodes: the group
 * cannot be on two nodes, and the lower bound equals the cost. */
static void a_bound_needs_no_network_between_nodes(void)
{
    fixture f;
    lh_cost bound;
    lhi_ecmp_cache known = {0};

    fixture_init(&f, "llama3-8b");
    f.sites[0].gpus_per_node = 6;
    f.sites[0].fabric.bytes_per_s = 0;
    f.layout.tensor = 4;
    COST(&f);
    CHECK(f.cost.f.communication_ns > 0);
    CHECK_OK(lhi_chunk_cost_lower_bound(&f.job, &f.layout, &f.slice, &f.options,
                                        &known, &bound, &f.err),
             f.err);
    CHECK_INT(bound.f.communication_ns, f.cost.f.communication_ns);
    CHECK_INT(bound.d.communication_ns, f.cost.d.communication_ns);
}

static lh_cost_message message(fixture *f, lh_cost_hop hop)
{
    lh_cost_message m = {0};

    CHECK_OK(lhi_cost_hop_message(&f->job, &f->layout, &hop, &f->options, &m,
                                  &f->err),
             f->err);
    return m;
}

static void messages(void)
{
    fixture f;
    const lh_cost_constants *c = lh_cost_defaults();
    lh_cost_message m;
    double bytes = 8192.0 * 8192 * 2;

    fixture_init(&f, "llama3-70b");
    f.layout.tensor = 8;
    f.layout.data = 4;
    f.layout.pipeline = 8;
    CHECK_INT(lhi_cost_message_bytes(&f.job, &f.layout), bytes);
    /* Each of eight GPUs sends an eighth over its own interface. */
    m = message(&f, (lh_cost_hop){0, 0, 0, 32, 0, 0, 0});
    CHECK_INT(m.bytes, bytes);
    CHECK_INT(m.kind, LH_PATH_FABRIC);
    CHECK_NEAR((double)m.transfer_ns, bytes / 8 / (c->fabric_efficiency * 50),
               1);
    CHECK_INT(m.latency_ns, 8000);
    f.layout.tensor = 4;
    m = message(&f, (lh_cost_hop){0, 0, 0, 4, 0, 0, 0});
    CHECK_INT(m.kind, LH_PATH_NODE);
    /* Of two replicas the second sends to another node. */
    m = message(&f, (lh_cost_hop){0, 0, 0, 4, 0, 2, 4});
    CHECK_INT(m.kind, LH_PATH_FABRIC);
    f.layout.tensor = 8;
    /* Between datacenters four replicas share 400 GB/s. */
    m = message(&f, (lh_cost_hop){0, 1, 0, 0, 0, 0, 0});
    CHECK_INT(m.kind, LH_PATH_WAN);
    CHECK_NEAR((double)m.transfer_ns, 4 * bytes / 400, 1);
    CHECK_INT(m.latency_ns, 20000000);
    f.options.unsplit_messages = true;
    m = message(&f, (lh_cost_hop){0, 1, 0, 0, 0, 0, 0});
    CHECK_NEAR((double)m.transfer_ns, 8 * 4 * bytes / 400, 1);
}

/* Returns the longest latency of all GPU pairs of a hop, one by one: `near`
 * within a node of `per_node` GPUs, `far` between nodes. */
static int64_t find_longest_latency(const lh_cost_hop *hop, uint32_t size,
                                    uint32_t per_node, int64_t near,
                                    int64_t far)
{
    int64_t longest = 0;

    for (uint32_t r = 0; r < hop->peers; r++)
        for (uint32_t i = 0; i < size; i++) {
            const uint32_t at = r * hop->stride + i;
            const bool same = (hop->from_gpu + at) / per_node ==
                              (hop->to_gpu + at) / per_node;
            const int64_t ns = same ? near : far;
            longest = longest > ns ? longest : ns;
        }
    return longest;
}

/* On nodes of 1 to 12 GPUs, inside which a message takes longer than between
 * them. */
static void the_slowest_pair_of_a_hop_counts(void)
{
    uint32_t n_mixed = 0;
    fixture f;

    fixture_init(&f, "gpt3-175b");
    f.sites[0].node_link.latency_ns = 20000;
    for (uint32_t i = 0; i < 12 * 4 * 200; i++) {
        const uint32_t per_node = 1 + i % 12, size = 1 + i / 12 % 4;
        const uint32_t low = i * 7 % 23, far = size + i * 5 % 17;
        lh_cost_hop hop = {0, 0, low, low + far, 0, 1 + i * 3 % 5, 2 * size};

        f.sites[0].gpus_per_node = per_node;
        f.layout.tensor = size;
        hop.stride += i * 11 % 13;
        const int64_t want =
            find_longest_latency(&hop, size, per_node, 20000, 8000);
        CHECK_INT(message(&f, hop).latency_ns, want);
        n_mixed += want == 20000 && per_node > 1;
    }
    CHECK(n_mixed > 1000 && n_mixed < 8800);
}

/* CrossPipe appendix E: data parallelism across two datacenters takes 2 alpha +
 * 2 N beta for N parameters in two bytes, after the reduction inside each. */
static void data_parallel_across(void)
{
    fixture f;
    double n;

    fixture_init(&f, "llama3-70b");
    f.job.training.zero = 1;
    f.options.gradient_wire_bytes = 2;
    f.layout.data = 2;
    f.slice.data_datacenters = 2;
    f.wans[1].bytes_per_s = f.wans[2].bytes_per_s = 4e9;
    COST(&f);
    n = (double)f.cost.params;
    CHECK_NEAR((double)(f.cost.all_gather_ns + f.cost.reduce_scatter_ns),
               2 * n / 4, 2);
    CHECK_INT(f.cost.data_latency_ns, 20000000);
    /* With more replicas inside, the link carries the same bytes, and the long
     * latency counts once. */
    f.layout.data = 64;
    COST(&f);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               n / 4 + 31.0 / 32 * 2 * n / fixture_node_rate(), n / 1e3);
    CHECK(f.cost.data_latency_ns < 20000000 + 32 * 8000);
}

/* Datacenters in sequence, or as an explicit list. */
static void sites_can_be_listed(void)
{
    for (uint32_t data = 2; data <= 64; data *= 2)
        for (uint32_t zero = 0; zero < 4; zero++) {
            fixture f;
            lh_cost_site sites[] = {{0, data / 2}, {1, data / 2}};
            lh_cost spread;

            fixture_init(&f, data % 4 ? "llama3-8b" : "mixtral-8x7b");
            f.job.training.zero = zero;
            f.layout = (lh_layout){.tensor = 2,
                                   .context = data % 3 ? 1 : 2,
                                   .expert = data % 4 ? 1 : 2,
                                   .pipeline = 4,
                                   .data = data,
                                   .micro_batch = 2,
                                   .outermost = LH_OUTERMOST_DATA};
            f.slice.data_datacenters = 2;
            COST(&f);
            spread = f.cost;
            f.slice.data_datacenters = 0;
            f.slice.n_sites = 2;
            f.slice.sites = sites;
            COST(&f);
            CHECK(memcmp(&f.cost, &spread, sizeof spread) == 0);
        }
}

/* Three replicas in one datacenter, one in another, on a 4 GB/s link: the three
 * have an inner ring, and the single one's whole gradient crosses both ways. */
static void unequal_replicas(void)
{
    fixture f;
    lh_cost_site sites[] = {{1, 1}, {0, 3}};
    double n;

    fixture_init(&f, "llama3-70b");
    f.job.training.zero = 1;
    f.layout.data = 4;
    f.slice.n_sites = 2;
    f.slice.sites = sites;
    f.wans[1].bytes_per_s = f.wans[2].bytes_per_s = 4e9;
    COST(&f);
    n = (double)f.cost.params;
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               4 * n / 2 / 4 + 2.0 / 3 * 4 * n / fixture_node_rate(), n / 1e3);
    CHECK_INT(f.cost.data_latency_ns, 20000000 + 2 * 3000);
    /* Two of four pipeline ranks use the link. */
    f.layout.pipeline = 4;
    f.slice.n_sharing_ranks = 2;
    COST(&f);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               2 * 4 * n / 2 / 4 + 2.0 / 3 * 4 * n / fixture_node_rate(),
               n / 1e3);
    sites[1].replicas = 4;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
    CHECK_HAS(f.err.text, "5 replicas in all datacenters, but data is 4");
}

static void data_parallel_inside(void)
{
    fixture f;
    double n, compute;

    fixture_init(&f, "llama3-70b");
    f.layout.data = 8;
    f.layout.tensor = 8;
    f.job.training.zero = 0;
    COST(&f);
    n = (double)f.cost.params;
    CHECK_INT(f.cost.all_gather_ns, 0);
    CHECK_INT(f.cost.gather_bytes, 0);
    CHECK_INT(f.cost.reduce_bytes, 4 * f.cost.params);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               2 * 7.0 / 8 * 4 * n / (0.985 * 50), 2);
    CHECK_INT(f.cost.data_latency_ns, 14 * 8000);
    f.job.training.zero = 1;
    COST(&f);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns, 7.0 / 8 * 4 * n / (0.985 * 50),
               2);
    CHECK_NEAR((double)f.cost.all_gather_ns, 7.0 / 8 * 2 * n / (0.985 * 50), 2);
    CHECK_INT(f.cost.data_latency_ns, 7 * 8000);
    compute = (double)f.cost.f.total_ns;
    /* ZeRO 3 moves both into the passes. */
    f.job.training.zero = 3;
    COST(&f);
    CHECK_INT(f.cost.all_gather_ns + f.cost.reduce_scatter_ns, 0);
    f.sites[0].fabric.bytes_per_s = 1e9;
    COST(&f);
    /* A single layer starts when its weights have arrived. */
    CHECK_NEAR((double)f.cost.f.total_ns,
               7.0 / 8 * 2 * n / 0.985 + 7 * 8000 + compute, 2);
}

/* Expert weights have fewer replicas than the rest of a layer. */
static void experts_reduce_apart(void)
{
    fixture f;
    double experts, shared;

    fixture_init(&f, "mixtral-8x7b");
    f.layout.expert = 8;
    f.layout.data = 32;
    f.job.training.zero = 1;
    COST(&f);
    experts = (double)f.cost.expert_params;
    shared = (double)f.cost.params - experts;
    CHECK_NEAR(experts, 3 * 4096.0 * 14336, 0);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * (experts / 4 + shared / 32),
               1);
    /* Shared weights: 32 GPUs, eight on a node; experts: four GPUs on four
     * nodes. */
    CHECK_NEAR((double)f.cost.all_gather_ns,
               31.0 / 32 * 2 * shared / fixture_node_rate() +
                   3.0 / 4 * 2 * experts / (0.985 * 50),
               2);
}

static void tied_embedding(void)
{
    fixture f;
    lh_cost_hop ends = {0, 0, 0, 32, 0, 0, 0};
    int64_t ns;

    fixture_init(&f, "llama3-8b");
    f.layout.pipeline = 4;
    CHECK_OK(
        lhi_cost_tied_embedding(&f.job, &f.layout, &ends, NULL, &ns, &f.err),
        f.err);
    CHECK_INT(ns, 0);
    fixture_init(&f, "gpt3-175b");
    f.layout.tensor = 8;
    CHECK_OK(
        lhi_cost_tied_embedding(&f.job, &f.layout, &ends, NULL, &ns, &f.err),
        f.err);
    CHECK_INT(ns, 0); /* one pipeline rank */
    f.layout.pipeline = 4;
    CHECK_OK(
        lhi_cost_tied_embedding(&f.job, &f.layout, &ends, NULL, &ns, &f.err),
        f.err);
    CHECK_NEAR((double)ns, 6283.0 * 12288 * 4 / (0.985 * 50) + 16000, 2);
}

int main(void)
{
    RUN(rings);
    RUN(slowest_path_counts);
    RUN(settings_change_rates);
    RUN(ways_back_may_differ);
    RUN(missing_networks);
    RUN(groups_lie_as_numbered);
    RUN(each_datacenter_has_its_own_replicas);
    RUN(a_bound_needs_no_network_between_nodes);
    RUN(messages);
    RUN(the_slowest_pair_of_a_hop_counts);
    RUN(data_parallel_across);
    RUN(sites_can_be_listed);
    RUN(unequal_replicas);
    RUN(data_parallel_inside);
    RUN(experts_reduce_apart);
    RUN(tied_embedding);
    return test_summary();
}
