/* SPDX-License-Identifier: Apache-2.0 */
/* State sharded over all replicas, or over those in a datacenter. */
#include "test_cost.h"

#include <longhaul/experimental/network_model.h>

/* Sixteen replicas of a Llama 3 70B layer on eight GPUs each, half in each
 * datacenter: 64 GPUs send concurrently over 400 GB/s. */
static void start(fixture *f, lh_sharding sharding, uint32_t zero)
{
    static const lh_cost_site halves[] = {{0, 8}, {1, 8}};

    fixture_init(f, "llama3-70b");
    f->job.training.zero = zero;
    f->layout.tensor = 8;
    f->layout.data = 16;
    f->layout.outermost = LH_OUTERMOST_DATA;
    f->layout.sharding = sharding;
    f->slice.n_sites = 2;
    f->slice.sites = halves;
}

static const lh_flow inside = {0.985 * 50e9, 8000, 0};

/* ScaleAcross Explorer, section 4.1: two groups. */
static void two_sites(void)
{
    static const lh_sharding kinds[] = {LH_SHARDING_HYBRID,
                                        LH_SHARDING_HYBRID_LEADERS};

    for (int i = 0; i < 2; i++) {
        bool sharded = kinds[i] == LH_SHARDING_HYBRID;
        lh_flow across = {sharded ? 400e9 / 64 : 0.985 * 50e9, 2e7, 0};
        lh_hybrid parameters, gradients;
        double n;
        fixture f;

        start(&f, kinds[i], 1);
        COST(&f);
        n = (double)f.cost.params;
        parameters = lh_hybrid_ns(LH_RING_LOCKSTEP, 16, 2 * n, &inside, &across,
                                  sharded);
        gradients = lh_hybrid_ns(LH_RING_LOCKSTEP, 16, 4 * n, &inside, &across,
                                 sharded);
        CHECK_NEAR((double)f.cost.all_gather_ns,
                   parameters.all_gather_ns - 7 * 8000, 2);
        CHECK_NEAR((double)(f.cost.reduce_scatter_ns + f.cost.data_latency_ns +
                            f.cost.reduce_extra_latency_ns),
                   gradients.reduce_ns, 2);
        /* The gather does not wait for the other datacenter. */
        CHECK_INT(f.cost.data_latency_ns, 7 * 8000);
        CHECK_INT(f.cost.reduce_extra_latency_ns, 2 * 20000000);
        CHECK_INT(f.cost.gather_bytes, 2 * f.cost.params);
    }
}

static void full_is_the_default(void)
{
    fixture any, full;

    start(&any, LH_SHARDING_ANY, 1);
    start(&full, LH_SHARDING_FULL, 1);
    COST(&any);
    COST(&full);
    CHECK_INT(any.cost.reduce_scatter_ns, full.cost.reduce_scatter_ns);
    CHECK_INT(any.cost.static_bytes, full.cost.static_bytes);
    /* The gather also needs the other datacenter. */
    CHECK_INT(full.cost.data_latency_ns, 7 * 8000 + 20000000);
    CHECK_INT(full.cost.reduce_extra_latency_ns, 0);
    CHECK_NEAR((double)full.cost.all_gather_ns,
               (double)full.cost.params * 2 *
                   (7.0 / 8 / (0.985 * 50) + 0.5 / 8 / (400.0 / 64)),
               2);
}

/* Weights, gradients, optimizer over eight replicas instead of sixteen. */
static void memory(void)
{
    static const lh_cost_site unequal[] = {{0, 12}, {1, 4}};
    fixture f;
    double n;

    start(&f, LH_SHARDING_FULL, 3);
    COST(&f);
    n = (double)f.cost.params;
    CHECK_NEAR((double)f.cost.weight_bytes, 2 * n / 16, 1);
    start(&f, LH_SHARDING_HYBRID, 3);
    COST(&f);
    CHECK_NEAR((double)f.cost.weight_bytes, 2 * n / 8, 1);
    CHECK_NEAR((double)f.cost.gradient_bytes, 4 * n / 8, 1);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * n / 8, 1);
    start(&f, LH_SHARDING_HYBRID_LEADERS, 1);
    COST(&f);
    CHECK_NEAR((double)f.cost.weight_bytes, 2 * n, 1);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * n / 8, 1);
    /* With fewer replicas, each stores more. */
    start(&f, LH_SHARDING_HYBRID, 1);
    f.slice.sites = unequal;
    COST(&f);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * n / 12, 1);
    f.slice.datacenter = 1;
    COST(&f);
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * n / 4, 1);
    /* Four rings between the datacenters: one per replica in the smaller group.
     */
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               4 * n * (11.0 / 12 / (0.985 * 50) + 1.0 / 4 / (400.0 / 32)), 2);
}

/* ZeRO 3 has its gathers and reductions in the passes, only within a
 * datacenter; the sum across comes once. */
static void in_passes(void)
{
    fixture f, one;
    lh_cost alone;
    double n;

    start(&f, LH_SHARDING_HYBRID, 1);
    f.sites[0].fabric.bytes_per_s = f.sites[1].fabric.bytes_per_s = 1e9;
    COST(&f);
    alone = f.cost;
    f.job.training.zero = 3;
    one = f;
    COST(&f);
    n = (double)f.cost.params;
    CHECK_INT(f.cost.all_gather_ns, 0);
    /* A single layer has no other to overlap with. */
    CHECK_NEAR((double)(f.cost.f.total_ns - alone.f.total_ns),
               7.0 / 8 * 2 * n / 0.985 + 7 * 8000, 2);
    CHECK_NEAR((double)(f.cost.w.total_ns - alone.w.total_ns),
               7.0 / 8 * 4 * n / 0.985 + 7 * 8000, 2);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns, 4 * n / 8 / 0.985, 2);
    CHECK_INT(f.cost.data_latency_ns, 40000000);
    CHECK_INT(f.cost.reduce_extra_latency_ns, 0);
    one.layout.sharding = LH_SHARDING_FULL;
    one.job.datacenters = one.sites;
    one.job.wans = one.wans;
    COST(&one);
    CHECK(one.cost.w.total_ns > f.cost.w.total_ns);
    CHECK_INT(one.cost.reduce_scatter_ns, 0);
}

/* Gathers are slowest where the latency is high, reductions where the rate is
 * low: then nothing ends later than a gather. */
static void slow_in_two_ways(void)
{
    fixture f;

    start(&f, LH_SHARDING_HYBRID, 1);
    f.sites[0].fabric.latency_ns = 700000;
    f.sites[1].fabric.bytes_per_s = 25e9;
    f.sites[1].fabric.latency_ns = 0;
    f.wans[1].latency_ns = f.wans[2].latency_ns = 0;
    COST(&f);
    CHECK_INT(f.cost.data_latency_ns, 7 * 700000);
    CHECK_INT(f.cost.reduce_extra_latency_ns, 0);
}

/* No sharding without ZeRO; no difference with all replicas in one datacenter.
 */
static void no_difference(void)
{
    fixture a, b;

    start(&a, LH_SHARDING_FULL, 0);
    start(&b, LH_SHARDING_HYBRID, 0);
    COST(&a);
    COST(&b);
    CHECK_INT(a.cost.reduce_scatter_ns, b.cost.reduce_scatter_ns);
    CHECK_INT(a.cost.static_bytes, b.cost.static_bytes);
    start(&a, LH_SHARDING_FULL, 1);
    start(&b, LH_SHARDING_HYBRID, 1);
    a.slice.n_sites = b.slice.n_sites = 0;
    COST(&a);
    COST(&b);
    CHECK_INT(a.cost.reduce_scatter_ns, b.cost.reduce_scatter_ns);
    CHECK_INT(a.cost.all_gather_ns, b.cost.all_gather_ns);
    CHECK_INT(a.cost.static_bytes, b.cost.static_bytes);
}

/* Four datacenters, two replicas each: a ring over the four, both ways. */
static void many_sites(void)
{
    static const lh_cost_site quarters[] = {{2, 2}, {0, 2}, {3, 2}, {1, 2}};
    lh_datacenter sites[4];
    lh_wan wans[16];
    fixture f;
    double n;

    start(&f, LH_SHARDING_HYBRID, 1);
    for (int i = 0; i < 4; i++)
        sites[i] = f.sites[0];
    for (int i = 0; i < 16; i++)
        wans[i] = f.wans[1];
    wans[1 * 4 + 2].latency_ns = 30000000; /* the return path */
    f.job.n_datacenters = 4;
    f.job.datacenters = sites;
    f.job.wans = wans;
    f.layout.data = 8;
    f.slice.n_sites = 4;
    f.slice.sites = quarters;
    COST(&f);
    n = (double)f.cost.params;
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               4 * n * (0.5 / (0.985 * 50) + 2 * 0.75 / 2 / (400.0 / 16)), 2);
    CHECK_INT(f.cost.data_latency_ns, 8000);
    CHECK_INT(f.cost.reduce_extra_latency_ns, 6 * 30000000);
    CHECK_NEAR((double)f.cost.all_gather_ns, 2 * n * 0.5 / (0.985 * 50), 2);
}

/* Experts have fewer replicas, and so are sharded over fewer GPUs. */
static void experts(void)
{
    fixture f;
    double n, rest;
    static const lh_cost_site halves[] = {{0, 16}, {1, 16}};

    fixture_init(&f, "mixtral-8x7b");
    f.job.training.zero = 1;
    f.layout.expert = 8;
    f.layout.data = 32;
    f.layout.sharding = LH_SHARDING_HYBRID;
    f.slice.n_sites = 2;
    f.slice.sites = halves;
    COST(&f);
    n = (double)f.cost.expert_params;
    rest = (double)f.cost.params - n;
    CHECK_NEAR((double)f.cost.optimizer_bytes, 12 * (n / 2 + rest / 16), 1);
    CHECK_NEAR((double)f.cost.reduce_scatter_ns,
               4 * n * (0.5 / (0.985 * 50) + 0.5 / (400.0 / 16)) +
                   4 * rest * (15.0 / 16 / (0.725 * 450) + 1.0 / 16 / 25),
               2);
}

int main(void)
{
    RUN(two_sites);
    RUN(full_is_the_default);
    RUN(memory);
    RUN(in_passes);
    RUN(slow_in_two_ways);
    RUN(no_difference);
    RUN(many_sites);
    RUN(experts);
    return test_summary();
}
