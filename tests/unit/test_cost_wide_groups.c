/* SPDX-License-Identifier: Apache-2.0 */
/* GPU groups beyond a node and beyond a datacenter, and the volumes and times
 * of ScaleAcross Explorer's two models. */
#include "model/all_to_all.h"
#include "model/collective.h"
#include "model/flop_count.h"
#include "model/groups.h"
#include "test_cost.h"

#include <longhaul/experimental/network_model.h>

/* dense-17B and MoE-40B: the paper gives width, layers and degrees; the rest
 * follows from its parameter counts. Ungated MLPs would have two matrices,
 * these have three. Sequence 8192. */
static const lh_model dense = {.name = "dense-17b",
                               .layers = 48,
                               .hidden = 5120,
                               .ffn = 16384,
                               .vocab = 32000,
                               .heads = 40,
                               .kv_heads = 40,
                               .head_dim = 128,
                               .gated = true};

static lh_model mixture(uint32_t experts)
{
    return (lh_model){.name = "moe-40b",
                      .layers = 48,
                      .hidden = 2048,
                      .vocab = 32000,
                      .heads = 16,
                      .kv_heads = 16,
                      .head_dim = 128,
                      .gated = true,
                      .experts = experts,
                      .experts_per_token = 8,
                      .expert_ffn = 1024,
                      .moe_interval = 1};
}

static void dense_fixture(fixture *f)
{
    fixture_init(f, "llama3-8b");
    f->job.model = &dense;
    f->layout.tensor = 8;
    f->layout.pipeline = 2;
    f->layout.data = 4;
    f->layout.micro_batch = 4;
}

static void dense_volumes(void)
{
    fixture f;
    lh_cost_message m;
    double linear, attention;

    dense_fixture(&f);
    COST(&f);
    /* 4H^2 + 3HF divided by eight, and two norms with H on each. */
    CHECK_INT(f.cost.params, 44564480 + 2 * 5120);
    lhi_cost_layer_flops(&dense, 0, 8192, &linear, &attention);
    CHECK_NEAR(4 * (linear + attention), 26113401159680.0, 0);
    /* Each GPU's share of an activation: 2 (H/TP) (S/CP) m. */
    CHECK_INT(lhi_cost_message_bytes(&f.job, &f.layout) / 8, 41943040);
    f.layout.context = 2;
    CHECK_INT(lhi_cost_message_bytes(&f.job, &f.layout) / 16, 41943040 / 2);
    f.layout.context = 1;
    /* 400 Gb/s per GPU between the buildings, 1:1 and 1:16, while all 32 GPUs
     * of a rank's replicas send. */
    f.wans[1].bytes_per_s = 32 * 50e9;
    f.sites[0].fabric.bytes_per_s = 0;
    for (int i = 0; i < 2; i++) {
        f.wans[1].oversubscription = i ? 16 : 1;
        m = (lh_cost_message){0};
        CHECK_OK(lhi_cost_hop_message(&f.job, &f.layout,
                                      &(lh_cost_hop){0, 1, 0, 0, 0, 0, 0},
                                      &f.options, &m, &f.err),
                 f.err);
        CHECK_NEAR((double)m.transfer_ns / 1e6, i ? 13.42 : 0.839,
                   i ? 5e-3 : 5e-4);
    }
    /* 7.022 ms a layer at 0.47 of 989 TFLOP/s. */
    CHECK_NEAR(4 * (linear + attention) / 8 / (0.47 * 989e12) * 1e3, 7.022,
               5e-4);
}

/* The formula divides experts by expert and tensor degrees. With data 16 on 128
 * GPUs all 64 GPUs of a stage share them, without copies. */
static void mixture_volumes(void)
{
    static const struct {
        uint32_t experts;
        int64_t volume;
    } cases[] = {{128, 16777216}, {16, 5767168}};

    for (int i = 0; i < 2; i++) {
        lh_model model = mixture(cases[i].experts);
        int64_t whole = 2 * 2048 + (int64_t)cases[i].experts * 2048;
        fixture f;

        fixture_init(&f, "llama3-8b");
        f.job.model = &model;
        f.layout.tensor = 4;
        f.layout.expert = 16;
        f.layout.expert_tensor = 4;
        f.layout.pipeline = 2;
        f.layout.data = 16;
        COST(&f);
        /* Also: two norms, and the router. */
        CHECK_INT(f.cost.params, cases[i].volume + whole);
        CHECK_INT(lhi_cost_message_bytes(&f.job, &f.layout) / 4, 8388608);
        /* Whole experts: four copies of each. */
        f.layout.expert_tensor = 0;
        COST(&f);
        CHECK_INT(f.cost.expert_params,
                  (int64_t)3 * 2048 * 1024 * cases[i].experts / 16);
        f.options.expert_divisor = 32;
        COST(&f);
        CHECK_INT(f.cost.expert_params,
                  (int64_t)3 * 2048 * 1024 * cases[i].experts / 32);
    }
}

/* Two tokens: 2 x 2 FLOPs for each of 4 x 2 x 2 parameters of attention and 2 x
 * 2 of the MLP, and attention's two products of two columns with one visible
 * token on average. */
static void attention_is_a_sixth_of_the_smallest_model(void)
{
    static const lh_model smallest = {.layers = 3,
                                      .hidden = 2,
                                      .ffn = 1,
                                      .vocab = 9,
                                      .heads = 1,
                                      .kv_heads = 1,
                                      .head_dim = 2};
    const double linear = 2 * 2 * (16 + 4), attention = 2 * 2 * 2 * 2;
    fixture f;

    fixture_init(&f, "llama3-8b");
    f.job.model = &smallest;
    f.job.training.sequence = 2;
    CHECK(lhi_find_slice_attention(&f.job) == 0); /* no slices */
    f.job.layout.slices = 2;
    CHECK_NEAR(lhi_find_slice_attention(&f.job),
               attention / (linear + attention), 1e-15);
}

static lh_cost_path path_of(fixture *f, lh_cost_group group)
{
    lh_cost_path path = {0};

    CHECK_OK(lh_cost_group_path(&f->job, &group, &f->options, &path, &f->err),
             f->err);
    return path;
}

/* In lockstep, each step takes the longest hop; in a pipelined ring, pieces
 * cross every hop once. */
static void rings(void)
{
    fixture f;
    lh_cost_path p = {
        .bytes_per_s = 6.25e9, .latency_ns = 50e3, .ring_latency_ns = 2 * 50e3};
    double transfer, latency;

    lhi_cost_collective_ring(LH_RING_LOCKSTEP, LH_ALL_GATHER, 4, 100e6, &p,
                             &transfer, &latency);
    CHECK_NEAR((transfer + latency) / 1e6, 12.15, 1e-9);
    lhi_cost_collective_ring(LH_RING_PIPELINED, LH_ALL_GATHER, 4, 100e6, &p,
                             &transfer, &latency);
    CHECK_NEAR((transfer + latency) / 1e6, 12.10, 1e-9);
    lhi_cost_collective_ring(LH_RING_PIPELINED, LH_ALL_REDUCE, 4, 100e6, &p,
                             &transfer, &latency);
    CHECK_NEAR((transfer + latency) / 1e6, 24.20, 1e-9);
    lhi_cost_collective_ring(LH_RING_PIPELINED, LH_ALL_TO_ALL, 4, 0, &p,
                             &transfer, &latency);
    CHECK_NEAR(latency, 50e3, 0);
    /* All messages of an all-to-all are in flight at once, also of two GPUs. */
    lhi_cost_collective_ring(LH_RING_PIPELINED, LH_ALL_TO_ALL, 2, 0, &p,
                             &transfer, &latency);
    CHECK_NEAR(latency, 50e3, 0);
    /* One GPU sends nothing. */
    lhi_cost_collective_ring(LH_RING_PIPELINED, LH_ALL_REDUCE, 1, 100e6, &p,
                             &transfer, &latency);
    CHECK(transfer == 0 && latency == 0);
    /* Without a known latency of the whole ring, every step takes one hop. */
    p.ring_latency_ns = 0;
    lhi_cost_collective_ring(LH_RING_PIPELINED, LH_ALL_GATHER, 4, 0, &p,
                             &transfer, &latency);
    CHECK_NEAR(latency, 3 * 50e3, 0);
    fixture_init(&f, "llama3-8b");
    /* Four nodes with four members: four hops of 8 us and twelve of 3, minus
     * one. */
    p = path_of(&f, (lh_cost_group){16, 4, 1024, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.ring_latency_ns, 4 * 8000 + 11 * 3000, 0);
    p = path_of(&f, (lh_cost_group){8, 8, 1024, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.ring_latency_ns, 7 * 3000, 0);
    p = path_of(&f, (lh_cost_group){16, 1, 1024, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.ring_latency_ns, 15 * 8000, 0);
    /* 20 ms forward, 30 ms back: the shorter counts. */
    f.wans[2].latency_ns = 30000000;
    p = path_of(&f, (lh_cost_group){2, 1, 1, 0, 1, 0, NULL, 0});
    CHECK_NEAR(p.ring_latency_ns, 3e7, 0);
    CHECK_NEAR(p.latency_ns, 3e7, 0);
}

/* The ring kind comes from the job or from the caller. */
static void rings_of_a_job(void)
{
    fixture f;
    int64_t lockstep;

    fixture_init(&f, "llama3-70b");
    f.job.training.zero = 1;
    f.layout.tensor = 2;
    f.layout.data = 32;
    COST(&f);
    lockstep = f.cost.data_latency_ns;
    CHECK_INT(lockstep, 31 * 8000); /* eight nodes, four replicas on each */
    f.options.rings = LH_RING_PIPELINED;
    COST(&f);
    CHECK_INT(f.cost.data_latency_ns, 8 * 8000 + 23 * 3000);
    f.options.rings = LH_RING_LOCKSTEP;
    f.job.training.rings = LH_RING_PIPELINED;
    COST(&f);
    CHECK_INT(f.cost.data_latency_ns, 8 * 8000 + 23 * 3000);
}

static void experts_beyond_a_node(void)
{
    fixture f;
    double tokens = 8192.0 * 4096 * 2, moved = tokens / 2 * 2;
    double latency, node, fabric;
    lh_cost_group g;

    fixture_init(&f, "mixtral-8x7b");
    /* Replicas with two GPUs; every second GPU on a node belongs to this stage:
     * four of eight members on a node. */
    f.layout.tensor = 2;
    f.layout.expert = 8;
    f.layout.data = 4;
    f.layout.pipeline = 2;
    f.layout.outermost = LH_OUTERMOST_DATA;
    CHECK_OK(lhi_cost_find_group(&f.job, &f.layout, LH_COST_EXPERT, &f.slice,
                                 &g, &f.err),
             f.err);
    CHECK(g.size == 8 && g.per_node == 4 && g.per_datacenter == 8);
    f.sites[0].node_link.latency_ns = 0;
    COST(&f);
    latency = 2 * 8000; /* dispatch and combine */
    node = 2 * moved * 3 / 8 / fixture_node_rate();
    fabric = 2 * moved * 4 / 8 / (0.985 * 50);
    CHECK(fabric > node);
    /* Plus attention's gather and scatter. */
    CHECK_NEAR((double)f.cost.f.communication_ns,
               fabric + latency + 2 * tokens / 2 / fixture_node_rate(), 3);
}

/* Four members in each of two datacenters; all four stages share the link. */
static void experts_beyond_a_datacenter(void)
{
    fixture f;
    lh_cost_group g;
    double transfer, latency;

    fixture_init(&f, "mixtral-8x7b");
    f.layout.expert = 8;
    f.layout.data = 8;
    f.layout.pipeline = 4;
    f.slice.data_datacenters = 2;
    CHECK_OK(lhi_cost_find_group(&f.job, &f.layout, LH_COST_EXPERT, &f.slice,
                                 &g, &f.err),
             f.err);
    CHECK(g.size == 8 && g.per_node == 4 && g.per_datacenter == 4);
    CHECK_INT(g.concurrent, 16);
    CHECK_OK(lhi_cost_all_to_all(&f.job, &g, 8e9, &f.options, &transfer,
                                 &latency, &f.err),
             f.err);
    CHECK_NEAR(transfer, 4 * 1e9 / (400.0 / 16), 1);
    CHECK_NEAR(latency, 2e7, 0);
    COST(&f);
    CHECK_NEAR((double)f.cost.f.communication_ns,
               2 * (2 * 8192.0 * 4096 * 2 / 2 / (400.0 / 16) + latency), 3);
    /* Eight members on each of two nodes per datacenter: the interface sends to
     * eight on the other node, then to sixteen in the other datacenter. */
    g = (lh_cost_group){32, 8, 16, 0, 1, 0, NULL, 0};
    CHECK_OK(lhi_cost_all_to_all(&f.job, &g, 32e6, &f.options, &transfer,
                                 &latency, &f.err),
             f.err);
    CHECK_NEAR(transfer, 24e6 / (0.985 * 50), 1);
    CHECK_NEAR(latency, 2e7, 0);
    f.slice.data_datacenters = 3;
    CHECK_INT(fixture_cost(&f), LH_EINVAL);
    g.per_node = 0;
    CHECK_INT(
        lhi_cost_all_to_all(&f.job, &g, 1, NULL, &transfer, &latency, &f.err),
        LH_EINVAL);
}

/* Keys and values for a share of the sequence, c - 1 times, from GPU to GPU. */
static void context_beyond_a_node(void)
{
    fixture f;
    const double bytes = 2.0 * 8 / 4 * 128 * 4096 * 2; /* K and V, two heads */
    int64_t with, without;

    fixture_init(&f, "llama3-8b");
    f.job.training.sequence = 4096 * 16;
    f.layout.tensor = 4; /* two ring members on a node, one interface */
    f.layout.context = 16;
    f.sites[0].fabric.bytes_per_s = 1e8;
    COST(&f);
    with = f.cost.f.communication_ns;
    CHECK_INT(f.cost.f.communication_ns < f.cost.d.communication_ns, 1);
    f.sites[0].fabric.bytes_per_s = 50e9;
    COST(&f);
    without = f.cost.f.communication_ns; /* overlapped with attention */
    CHECK_NEAR((double)(with - without) / (15 * bytes / (0.985 * 0.1)), 1,
               0.02);
    /* Buffers for arriving data: K, V and their gradients, twice as many. */
    CHECK_INT(f.cost.workspace_bytes, 4 * bytes);
    /* Two pieces per member. */
    f.job.training.sequence = 16 * 1023;
    CHECK_INT(fixture_cost(&f), LH_EUNSUPPORTED);
    CHECK_HAS(f.err.text, "twice context");
}

static void gathered_twice(void)
{
    fixture f;
    lh_cost once;

    fixture_init(&f, "llama3-70b");
    f.job.training.zero = 1;
    f.layout.data = 8;
    COST(&f);
    once = f.cost;
    f.options.regather_parameters = true;
    COST(&f);
    CHECK_INT(f.cost.gather_bytes, 2 * once.gather_bytes);
    CHECK_NEAR((double)f.cost.all_gather_ns, 2.0 * (double)once.all_gather_ns,
               2);
    CHECK_INT(f.cost.reduce_scatter_ns, once.reduce_scatter_ns);
    f.job.training.zero = 3;
    COST(&f);
    CHECK_INT(f.cost.gather_bytes, once.gather_bytes);
}

int main(void)
{
    RUN(dense_volumes);
    RUN(mixture_volumes);
    RUN(attention_is_a_sixth_of_the_smallest_model);
    RUN(rings);
    RUN(rings_of_a_job);
    RUN(experts_beyond_a_node);
    RUN(experts_beyond_a_datacenter);
    RUN(context_beyond_a_node);
    RUN(gathered_twice);
    return test_summary();
}
