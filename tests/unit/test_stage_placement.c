/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas and stages over datacenters: resulting passes, messages and rings,
 * and the traffic between datacenters. */
#include "jobs.h"

#include "planner/layout/layout.h"
#include "planner/layout/traffic.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/plan.h>

#include <stdlib.h>

static lh_layout layout_of(uint32_t tensor, uint32_t pipeline, uint32_t data,
                           const lh_sites *sites)
{
    return (lh_layout){.tensor = tensor,
                       .context = 1,
                       .expert = 1,
                       .pipeline = pipeline,
                       .data = data,
                       .micro_batch = 1,
                       .chunks_per_device = 1,
                       .outermost = LH_OUTERMOST_MIXED,
                       .sites = sites};
}

/* Two pipelines, each within one of the close pairs. */
static const lh_site_stages a_b[] = {{0, 2}, {1, 2}}, c_d[] = {{2, 2}, {3, 2}};
static const lh_site_group pairs_groups[] = {{1, 2, a_b}, {1, 2, c_d}};
static const lh_sites pairs = {2, pairs_groups};

static lh_pipeline *build(const lh_job *job, const lh_layout *layout)
{
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_pipeline(job, layout, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE,
                              &p, NULL, &err),
             err);
    return p;
}

static void mixed_layouts_are_placed(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    lh_layout l = layout_of(4, 4, 2, &pairs);
    lhi_layout_placement at;
    lh_error err = {0};
    CHECK_OK(lhi_layout_place(job, &l, mem, &at, &err), err);
    CHECK(at.sites == &pairs);
    CHECK_INT(at.ranks[1].datacenter, 0);
    CHECK_INT(at.ranks[1].first_gpu, 4);
    CHECK_INT(at.ranks[2].datacenter, 1);
    CHECK_INT(at.ranks[2].first_gpu, 0);
    CHECK_INT(at.ranks[4 + 1].datacenter, 2);
    CHECK_INT(at.ranks[4 + 3].datacenter, 3);
    for (uint32_t s = 0; s < 4; s++) {
        CHECK_INT(at.stages[s].n_sites, 2);
        CHECK_INT(at.stages[s].sites[0].datacenter, s < 2 ? 0 : 1);
        CHECK_INT(at.stages[s].sites[1].datacenter, s < 2 ? 2 : 3);
        CHECK_INT(at.stages[s].sites[1].replicas, 1);
        CHECK_INT(at.stages[s].sharing, 2);
    }
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* Two stages with two replicas of two GPUs each on two nodes with four: with
 * data outermost a replica's stages are adjacent, otherwise a stage's replicas.
 */
static void neighbours(void)
{
    static const lh_site_stages both[] = {{0, 2}};
    static const lh_site_group group[] = {{2, 1, both}};
    static const lh_sites sites = {1, group};
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    for (int o = LH_OUTERMOST_PIPELINE; o <= LH_OUTERMOST_DATA; o++) {
        lhi_arena *mem = lhi_arena_make(0);
        lh_layout l = layout_of(2, 2, 2, &sites);
        lhi_layout_placement at;
        lh_error err = {0};
        l.outermost = (lh_outermost)o;
        CHECK_OK(lhi_layout_place(job, &l, mem, &at, &err), err);
        CHECK_INT(at.ranks[1].first_gpu, o == LH_OUTERMOST_DATA ? 2 : 4);
        lh_pipeline *p = build(job, &l);
        for (uint32_t i = 0; p && i < lh_pipeline_n_links(p); i++)
            CHECK_INT(lh_pipeline_link(p, i)->latency_ns,
                      o == LH_OUTERMOST_DATA ? 3000 : 8000);
        lh_pipeline_free(p);
        lhi_arena_free(mem);
    }
    lh_job_free(job);
}

/* Two groups through the same datacenters send concurrently, like one merged
 * group. */
static void groups_share_a_hop(void)
{
    static const lh_site_stages half[] = {{0, 2}, {1, 2}};
    static const lh_site_group apart[] = {{1, 2, half}, {1, 2, half}},
                               together[] = {{2, 2, half}};
    static const lh_sites sites[] = {{2, apart}, {1, together}};
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    for (int k = 0; k < 2; k++) {
        lh_layout l = layout_of(1, 4, 2, &sites[k]);
        lh_pipeline *p = build(job, &l);
        for (uint32_t i = 0; p && i < lh_pipeline_n_links(p); i++) {
            const lh_link *link = lh_pipeline_link(p, i);
            if (link->from + link->to == 3)
                CHECK_NEAR((double)link->transfer_ns, 4096.0 * 4096 * 2 / 25,
                           1);
        }
        lh_pipeline_free(p);
    }
    lh_job_free(job);
}

/* Stage 0 is in a and b, stage 1 in a, b and c: their rings could collide. */
static void rings_meet(void)
{
    static const lh_site_stages parts[] = {{0, 2}, {1, 2}, {1, 1}, {2, 1}};
    static const lh_site_group groups[] = {
        {1, 1, parts}, {1, 1, parts + 1}, {1, 2, parts + 2}};
    static const lh_sites sites = {3, groups};
    lh_job *job = job_at(63, JOB_PAIRS, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    lh_layout l = layout_of(1, 2, 3, &sites);
    lhi_layout_placement at;
    lh_error err = {0};
    CHECK_OK(lhi_layout_place(job, &l, mem, &at, &err), err);
    CHECK_INT(at.stages[0].n_sites, 2);
    CHECK_INT(at.stages[1].n_sites, 3);
    CHECK_INT(lhi_stage_placement_min_replicas(&at.stages[0]), 1);
    CHECK_INT(at.stages[0].sharing, 2);
    CHECK_INT(at.stages[1].sharing, 2);
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* A stage's memory is the minimum over its datacenters. */
static void the_least_memory_counts(void)
{
    lh_job *job =
        job_at(64,
               "  datacenters:\n"
               "   - {name: a, nodes: 1}\n"
               "   - {name: b, nodes: 1, gpu: {tflops: 500, memory_gib: 40, "
               "memory_reserve: 0, "
               "memory_gbps: 3000, efficiency: 0.5}}\n"
               "  links: [{between: [a, b], latency_ms: 1, gbps: 100}]\n",
               NULL);
    lh_layout l = layout_of(2, 2, 2, NULL);
    l.outermost = LH_OUTERMOST_DATA;
    lh_pipeline *p = build(job, &l);
    for (uint32_t d = 0; p && d < 2; d++)
        CHECK_INT(lh_pipeline_memory_limit(p, d), INT64_C(40) << 30);
    lh_pipeline_free(p);
    lh_job_free(job);
}

/* In bytes per ns: c to d 25, a to c 12.5, b to d 6.25. */
static void mixed_layouts_take_the_slower_group(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    lh_layout l = layout_of(4, 4, 2, &pairs);
    lh_pipeline *p = build(job, &l);
    double message = 4096.0 * 4096 * 2;
    for (uint32_t i = 0; i < lh_pipeline_n_links(p); i++) {
        const lh_link *link = lh_pipeline_link(p, i);
        if (link->from + link->to != 3) {
            CHECK(!strchr(link->name, '>'));
            continue;
        }
        CHECK_STR(link->name, link->from == 1 ? "a>b" : "b>a");
        CHECK_NEAR((double)link->transfer_ns, message / 25, 1);
        CHECK_INT(link->latency_ns, 1000000);
    }
    for (uint32_t c = 0; c < 4; c++) {
        /* Two stages with four GPUs each have rings on one link. */
        lh_cost_layer_range slice = {
            .n_layers = 8, .embedding = c == 0, .head = c == 3};
        lh_cost cost;
        lh_error err = {0};
        double rate = (c < 2 ? 12.5 : 6.25) / 8;
        slice.first_layer = 8 * c;
        CHECK_OK(lh_cost_chunk(job, &l, &slice, NULL, &cost, &err), err);
        CHECK_NEAR((double)lh_pipeline_chunk(p, c)->reduce_scatter_ns,
                   4 * (double)cost.params / 2 / rate, 2);
        CHECK_NEAR((double)lh_pipeline_chunk(p, c)->all_gather_ns,
                   2 * (double)cost.params / 2 / rate, 2);
        CHECK_INT(lh_pipeline_chunk(p, c)->dp_latency_ns,
                  c < 2 ? 30000000 : 40000000);
    }
    lh_pipeline_free(p);
    lh_job_free(job);
}

/* Groups that cross at one hop use one link, and so do several hops that cross
 * one link. */
static void links_are_shared(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    static const lh_site_stages early[] = {{0, 1}, {1, 3}},
                                late[] = {{2, 2}, {3, 2}},
                                again[] = {{0, 2}, {1, 2}};
    const lh_site_group two[] = {{1, 2, early}, {1, 2, late}};
    const lh_site_group three[] = {{1, 2, early}, {1, 2, late}, {1, 2, again}};
    /* c to d is merged with a to c, and later with a to b. */
    static const lh_site_stages chain[][2] = {{{0, 1}, {2, 3}},
                                              {{2, 1}, {3, 3}},
                                              {{0, 2}, {1, 2}},
                                              {{2, 2}, {3, 2}},
                                              {{0, 3}, {2, 1}}};
    const lh_site_group five[] = {{1, 2, chain[0]},
                                  {1, 2, chain[1]},
                                  {1, 2, chain[2]},
                                  {1, 2, chain[3]},
                                  {1, 2, chain[4]}};
    const struct {
        lh_sites sites;
        const char *names[3]; /* of the forward hops */
    } rows[] = {
        {{2, two}, {"a>b", "c>d", NULL}},
        {{3, three}, {"a>b", "a>b", NULL}},
        {{5, five}, {"a>b", "a>b", "a>b"}},
    };
    for (size_t i = 0; i < 3; i++) {
        lh_layout l = layout_of(1, 4, rows[i].sites.n_groups, &rows[i].sites);
        job->training.global_batch = 60;
        lh_pipeline *p = build(job, &l);
        uint32_t seen = 0;
        for (uint32_t k = 0; p && k < lh_pipeline_n_links(p); k++) {
            const lh_link *link = lh_pipeline_link(p, k);
            if (link->to != link->from + 1)
                continue;
            seen++;
            if (rows[i].names[link->from])
                CHECK_STR(link->name, rows[i].names[link->from]);
            else
                CHECK(!strchr(link->name, '>'));
        }
        CHECK_INT(seen, 3);
        lh_pipeline_free(p);
    }
    lh_job_free(job);
}

/* An explicit form of a layout without sites gives the same pipeline. */
static void sites_can_be_spelled_out(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    const uint32_t degrees[][3] = {{4, 8, 1}, {2, 4, 4}, {1, 4, 8}, {4, 4, 2}};
    for (int o = LH_OUTERMOST_PIPELINE; o <= LH_OUTERMOST_DATA; o++)
        for (size_t i = 0; i < 4; i++) {
            lh_layout l =
                layout_of(degrees[i][0], degrees[i][1], degrees[i][2], NULL);
            lh_error err = {0};
            char *bare = NULL, *spelled = NULL;
            l.outermost = (lh_outermost)o;
            if (o == LH_OUTERMOST_DATA && l.data % 4 != 0)
                continue; /* no replica fits */
            lh_pipeline *p = build(job, &l);
            CHECK_OK(lh_pipeline_format(p, &bare, NULL, &err), err);
            lh_pipeline_free(p);
            CHECK_OK(lhi_sites_default(job, &l, mem, &l.sites, &err), err);
            CHECK(l.sites != NULL);
            p = build(job, &l);
            CHECK_OK(lh_pipeline_format(p, &spelled, NULL, &err), err);
            CHECK_STR(spelled, bare);
            lh_pipeline_free(p);
            lh_text_free(bare);
            lh_text_free(spelled);
        }
    lhi_arena_free(mem);
    lh_job_free(job);
}

static void bad_sites_are_refused(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    lhi_arena *mem = lhi_arena_make(0);
    static const lh_site_stages nowhere[] = {{4, 4}}, full[] = {{0, 4}},
                                short_[] = {{0, 2}, {1, 1}};
    const struct {
        lh_site_group group;
        const char *says;
    } rows[] = {
        {{2, 1, nowhere}, "datacenter 4 of 4"},
        {{2, 1, full},
         "datacenter a has 8 GPUs, but its stages and replicas need "
         "32"},
        {{2, 2, short_}, "do not add up to pipeline 4"},
        {{1, 2, a_b}, "has 1 replicas, but data is 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_sites sites = {1, &rows[i].group};
        lh_layout l = layout_of(i == 1 ? 4 : 2, 4, 2, &sites);
        lhi_layout_placement at;
        lh_error err = {0};
        CHECK_INT(lhi_layout_place(job, &l, mem, &at, &err), LH_EUNSUPPORTED);
        CHECK_HAS(err.text, rows[i].says);
    }
    lh_layout l = layout_of(4, 4, 2, NULL);
    lhi_layout_placement at;
    lh_error err = {0};
    CHECK_INT(lhi_layout_place(job, &l, mem, &at, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "layout.sites");
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* A ring over a, b, c, d must cross between the pairs twice, but not from b to
 * d. */
static void rings_avoid_the_slowest_link(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    lh_cost_site sites[] = {{0, 1}, {2, 1}, {1, 1}, {3, 1}};
    lh_error err = {0};
    CHECK_OK(lhi_ring_order(job, 4, sites, 8, 1e9, &err), err);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t a = sites[i].datacenter, b = sites[(i + 1) % 4].datacenter;
        CHECK(a + b != 1 + 3 || a == 0 || b == 0);
    }
    lh_job_free(job);
}

/* ---- traffic ---- */

/* Traffic counted one by one. */
typedef struct naive {
    double messages[4][4], bytes[4][4];
} naive;

/* Counts every message of every replica. */
static void count_messages(const lh_layout *l, const lhi_config *config,
                           const lhi_layout_placement *at, naive *out)
{
    for (uint32_t g = 0; g < at->sites->n_groups; g++)
        for (uint32_t r = 0; r < at->sites->groups[g].replicas; r++)
            for (uint32_t m = 0; m < config->microbatches; m++)
                for (uint32_t k = 0; k + 1 < l->pipeline * l->chunks_per_device;
                     k++) {
                    uint32_t s = lhi_config_device(config, k);
                    uint32_t t = lhi_config_device(config, k + 1);
                    uint32_t a = at->ranks[g * l->pipeline + s].datacenter;
                    uint32_t b = at->ranks[g * l->pipeline + t].datacenter;
                    out->messages[a][b] += a != b;
                    out->messages[b][a] += a != b;
                }
}

/* Counts every step of every ring: n - 1 steps with one n-th each. */
static void count_rings(const lh_job *job, const lh_layout *l,
                        const lhi_config *config,
                        const lhi_layout_placement *at, naive *out)
{
    uint32_t n_chunks = l->pipeline * l->chunks_per_device;
    for (uint32_t k = 0; k < n_chunks; k++) {
        const lhi_stage_placement *spread =
            &at->stages[lhi_config_device(config, k)];
        lh_cost_layer_range slice = {.embedding = k == 0,
                                     .head = k + 1 == n_chunks,
                                     .datacenter = spread->sites[0].datacenter};
        lh_cost cost;
        lh_error err = {0};
        uint32_t least = UINT32_MAX, n = spread->n_sites;
        lhi_config_layers(job->model->layers, config, k, &slice.first_layer,
                          &slice.n_layers);
        CHECK_OK(lh_cost_chunk(job, l, &slice, NULL, &cost, &err), err);
        for (uint32_t i = 0; i < n; i++)
            if (spread->sites[i].replicas < least)
                least = spread->sites[i].replicas;
        for (uint32_t gpu = 0; gpu < l->tensor * least; gpu++)
            for (uint32_t step = 0; step + 1 < n; step++)
                for (uint32_t i = 0; i < n; i++)
                    out->bytes[spread->sites[i].datacenter]
                              [spread->sites[(i + 1) % n].datacenter] +=
                        6 * (double)cost.params / least / n;
    }
}

static void check_traffic(const lh_job *job, const lh_layout *l,
                          lh_placement placement)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_config config = {.layout = *l,
                         .placement = placement,
                         .microbatches = job->training.global_batch / l->data};
    const lhi_traffic *list = NULL;
    uint32_t n = 0, used = 0;
    lhi_layout_placement at;
    naive want = {0};
    lh_error err = {0};
    CHECK_OK(lhi_layout_place(job, l, mem, &at, &err), err);
    CHECK_OK(lhi_traffic_of(job, &config, mem, &list, &n, &err), err);
    count_messages(l, &config, &at, &want);
    count_rings(job, l, &config, &at, &want);
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t b = 0; b < 4; b++) {
            if (want.messages[a][b] <= 0 && want.bytes[a][b] <= 0)
                continue;
            CHECK(used < n);
            if (used >= n)
                continue;
            const lhi_traffic *t = &list[used++];
            CHECK_INT(t->from, a);
            CHECK_INT(t->to, b);
            CHECK_INT(t->messages, want.messages[a][b]);
            CHECK_NEAR((double)t->data_bytes, want.bytes[a][b],
                       1e-9 * want.bytes[a][b] + 1);
            if (t->messages)
                CHECK_INT(t->message_bytes, 4096 * 4096 * 2);
        }
    CHECK_INT(used, n);
    lhi_arena_free(mem);
}

static void traffic_is_counted(void)
{
    lh_job *job = job_at(48, JOB_PAIRS, NULL);
    static const lh_site_stages all[] = {{0, 4}, {2, 4}, {1, 4}, {3, 4}},
                                whole[] = {{0, 2}, {1, 2}, {2, 2}, {3, 2}},
                                uneven[] = {{0, 1}, {1, 3}};
    const lh_site_group one[] = {{1, 4, all}};
    const lh_site_group four[] = {
        {4, 1, whole}, {2, 1, whole + 1}, {3, 1, whole + 2}, {3, 1, whole + 3}};
    const lh_site_group two[] = {{1, 2, uneven}, {2, 2, c_d}};
    const struct {
        uint32_t tensor, pipeline, data, chunks;
        lh_sites sites;
    } rows[] = {
        {1, 16, 1, 1, {1, one}},  {1, 16, 1, 2, {1, one}},
        {1, 2, 12, 1, {4, four}}, {4, 4, 2, 1, {2, pairs_groups}},
        {2, 4, 3, 2, {2, two}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_layout l = layout_of(rows[i].tensor, rows[i].pipeline, rows[i].data,
                                &rows[i].sites);
        l.chunks_per_device = rows[i].chunks;
        check_traffic(job, &l,
                      l.chunks_per_device == 1 ? LH_PLACEMENT_UD
                                               : LH_PLACEMENT_LOOP);
        if (l.chunks_per_device == 2)
            check_traffic(job, &l, LH_PLACEMENT_WAVE);
    }
    lh_job_free(job);
}

/* Llama 3 8B in four single-stage replicas, two in each of two datacenters:
 * each GPU reduces N gradients in 4 bytes and gathers N parameters in 2; half
 * of it crosses each way. */
static void traffic_of_replicas(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    static const lh_site_stages here[] = {{0, 1}, {1, 1}};
    const lh_site_group groups[] = {{2, 1, here}, {2, 1, here + 1}};
    const lh_sites sites = {2, groups};
    lhi_config config = {.layout = layout_of(4, 1, 4, &sites),
                         .placement = LH_PLACEMENT_UD,
                         .microbatches = 16};
    lhi_arena *mem = lhi_arena_make(0);
    const lhi_traffic *t = NULL;
    uint32_t n = 0;
    lh_error err = {0};
    double params = (double)lh_model_params(job->model);
    CHECK_OK(lhi_traffic_of(job, &config, mem, &t, &n, &err), err);
    CHECK_INT(n, 2);
    CHECK_INT(t[0].messages, 0);
    CHECK_NEAR((double)t[0].data_bytes, params * 6 / 2, params * 1e-3);
    CHECK_INT(t[0].data_flows, 8);
    CHECK_NEAR((double)t[0].data_step_bytes, params / 4 * 4 / 2 / 2,
               params * 1e-3);
    CHECK_INT(t[1].data_bytes, t[0].data_bytes);
    /* An all-reduce of gradients without a gather; then in every pass. */
    config.zero_given = true;
    config.zero = 0;
    CHECK_OK(lhi_traffic_of(job, &config, mem, &t, &n, &err), err);
    CHECK_NEAR((double)t[0].data_bytes, params * 4, params * 1e-3);
    config.zero = 3;
    CHECK_OK(lhi_traffic_of(job, &config, mem, &t, &n, &err), err);
    CHECK_NEAR((double)t[0].data_bytes, 16 * params * (2 + 2 + 4) / 2,
               params * 16e-3);
    /* State within each datacenter: one all-reduce of gradients; each GPU's
     * shard, or all of it through one GPU per tensor-parallel shard. */
    config.layout.sharding = LH_SHARDING_HYBRID;
    CHECK_OK(lhi_traffic_of(job, &config, mem, &t, &n, &err), err);
    CHECK_NEAR((double)t[0].data_bytes, params * 4, params * 1e-3);
    CHECK_INT(t[0].data_flows, 8);
    CHECK_NEAR((double)t[0].data_step_bytes, params / 4 * 4 / 2 / 2,
               params * 1e-3);
    config.layout.sharding = LH_SHARDING_HYBRID_LEADERS;
    CHECK_OK(lhi_traffic_of(job, &config, mem, &t, &n, &err), err);
    CHECK_NEAR((double)t[0].data_bytes, params * 4, params * 1e-3);
    CHECK_INT(t[0].data_flows, 4);
    CHECK_NEAR((double)t[0].data_step_bytes, params / 4 * 4 / 2, params * 1e-3);
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* With hybrid sharding the gather ends before the sum between datacenters, 1 ms
 * each way, which everything finally waits for. */
static void sums_between_datacenters_come_last(void)
{
    lh_job *job = job_at(64, JOB_PAIRS, NULL);
    static const lh_site_stages here[] = {{0, 1}, {1, 1}};
    const lh_site_group groups[] = {{2, 1, here}, {2, 1, here + 1}};
    const lh_sites sites = {2, groups};
    const lh_cost_site at[] = {{0, 2}, {1, 2}};
    lh_layout l = layout_of(4, 1, 4, &sites);
    lh_cost_layer_range slice = {.n_layers = job->model->layers,
                                 .embedding = true,
                                 .head = true,
                                 .n_sites = 2,
                                 .sites = at};
    lh_cost cost;
    lh_pipeline *p = NULL;
    lh_error err = {0};
    int64_t after_ns = 0;
    l.sharding = LH_SHARDING_HYBRID;
    CHECK_OK(lh_cost_chunk(job, &l, &slice, NULL, &cost, &err), err);
    CHECK_INT(cost.reduce_extra_latency_ns, 2000000);
    CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE, &p,
                              &after_ns, &err),
             err);
    CHECK_INT(lh_pipeline_chunk(p, 0)->dp_latency_ns, cost.data_latency_ns);
    CHECK(cost.data_latency_ns < 100000);
    CHECK_INT(after_ns, cost.optimizer_ns + 2500000 + 2000000);
    lh_pipeline_free(p);
    lh_job_free(job);
}

/* ---- jobs and plans ---- */

#define FIXED                                                                  \
    "layout:\n"                                                                \
    "  tensor: 4\n"                                                            \
    "  micro_batch: 4\n"                                                       \
    "  chunks_per_device: 1\n"                                                 \
    "  schedule: zb-h1\n"                                                      \
    "  sites:\n"                                                               \
    "   - replicas: 1\n"                                                       \
    "     pipeline:\n"                                                         \
    "      - {datacenter: d, stages: 2}\n"                                     \
    "      - {datacenter: a, stages: 1}\n"                                     \
    "      - {datacenter: c, stages: 2}\n"

static void replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    CHECK(at && strlen(from) == strlen(to));
    if (at && strlen(from) == strlen(to))
        memcpy(at, to, strlen(to));
}

static void bad_plan(const char *text, const char *from, const char *to,
                     const char *says)
{
    size_t len = strlen(text);
    char *other = malloc(len + 1);
    lh_plan *plan = NULL;
    lh_error err = {0};
    memcpy(other, text, len + 1);
    replace(other, from, to);
    CHECK_INT(lh_plan_parse(other, len, "p", &plan, &err), LH_EINPUT);
    CHECK_HAS(err.text, says);
    lh_plan_free(plan);
    free(other);
}

/* The plan keeps the job's fixed sites, in its pipeline and its file. */
static void plans_keep_sites(void)
{
    lh_job *job = job_at(16, JOB_PAIRS, FIXED);
    lh_plan_options options = {.size = sizeof options, .no_optimal = true};
    lh_plan *plan = NULL, *again = NULL;
    char *text = NULL, *same = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &options, &plan, &err), err);
    if (!plan) {
        lh_job_free(job);
        return;
    }
    const lh_sites *sites = plan->best.layout.sites;
    CHECK(sites && sites->n_groups == 1);
    CHECK_INT(plan->best.layout.pipeline, 5);
    CHECK_INT(plan->best.layout.data, 1);
    CHECK_STR(lhi_pipeline_site_name(
                  plan->pipeline, lh_pipeline_device_site(plan->pipeline, 2)),
              "a");
    CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
    CHECK_OK(lh_plan_parse(text, strlen(text), "p", &again, &err), err);
    CHECK_OK(lh_plan_format(again, &same, NULL, &err), err);
    CHECK_STR(same, text);
    CHECK_INT(again->best.layout.sites->groups[0].parts[2].stages, 2);
    /* The first match of each is in the plan's own layout. */
    bad_plan(text, "\"replicas\": 1", "\"replicas\": 2", "replicas");
    bad_plan(text, "\"datacenter\": \"d\"", "\"datacenter\": \"c\"",
             "'c' appears twice");
    bad_plan(text, "\"stages\": 1", "\"stages\": 2", "but pipeline is 5");
    bad_plan(text, "\"stages\": 1", "\"stage_\": 1", "did you mean 'stages'");
    lh_text_free(text);
    lh_text_free(same);
    lh_plan_free(plan);
    lh_plan_free(again);
    lh_job_free(job);
}

int main(void)
{
    RUN(mixed_layouts_are_placed);
    RUN(neighbours);
    RUN(groups_share_a_hop);
    RUN(rings_meet);
    RUN(the_least_memory_counts);
    RUN(mixed_layouts_take_the_slower_group);
    RUN(links_are_shared);
    RUN(sites_can_be_spelled_out);
    RUN(bad_sites_are_refused);
    RUN(rings_avoid_the_slowest_link);
    RUN(traffic_is_counted);
    RUN(traffic_of_replicas);
    RUN(plans_keep_sites);
    RUN(sums_between_datacenters_come_last);
    return test_summary();
}
