/* SPDX-License-Identifier: Apache-2.0 */
/* Expert traffic between datacenters, by hand: tokens where GPUs in both share
 * a layer's experts, gradients where both have the same ones. */
#include "jobs.h"

#include "format/job/model_size.h"
#include "planner/layout/layout.h"
#include "planner/layout/traffic.h"

#include <longhaul/experimental/pipeline.h>

enum { LAYERS = 4, HIDDEN = 1024, SEQUENCE = 1024, BATCH = 24, REPLICAS = 6 };

/* Six replicas with one GPU each, a given number in the first datacenter. */
typedef struct spread_job {
    lh_job *job;
    lhi_arena *mem;
    lh_site_stages parts[2];
    lh_site_group groups[2];
    lh_sites sites;
    lhi_config config;
    double dense, experts; /* parameters of the model */
} spread_job;

static void start(spread_job *s, uint32_t first, uint32_t expert)
{
    lh_layer_params p;

    *s = (spread_job){
        .job = job_with(
            JOB_SMALL,
            "  gpus_per_node: 6\n"
            "model: {layers: 4, hidden: 1024, heads: 8, vocab: 1000, experts: "
            "6, experts_per_token: 2, expert_ffn: 512}\n"
            "training: {global_batch: 24, sequence: 1024, zero: 1}\n"),
        .mem = lhi_arena_make(0),
        .parts = {{0, 1}, {1, 1}}};
    s->groups[0] = (lh_site_group){first, 1, &s->parts[0]};
    s->groups[1] = (lh_site_group){REPLICAS - first, 1, &s->parts[1]};
    s->sites = (lh_sites){2, s->groups};
    s->config = (lhi_config){.layout = {.tensor = 1,
                                        .context = 1,
                                        .expert = expert,
                                        .pipeline = 1,
                                        .data = REPLICAS,
                                        .micro_batch = 1,
                                        .chunks_per_device = 1,
                                        .outermost = LH_OUTERMOST_DATA,
                                        .sites = &s->sites},
                             .placement = LH_PLACEMENT_UD,
                             .microbatches = BATCH / REPLICAS};
    p = lhi_model_range_params(s->job->model, 0, LAYERS);
    s->experts = (double)p.experts;
    s->dense = (double)lh_model_params(s->job->model) - s->experts;
}

static void finish(spread_job *s)
{
    lh_job_free(s->job);
    lhi_arena_free(s->mem);
}

/* Equal in both directions: in each all-to-all, `tokens` copies of a GPU's
 * microbatch cross. */
static void check(spread_job *s, double data_bytes, double tokens)
{
    const lhi_traffic *t = NULL;
    lh_error err = {0};
    uint32_t n = 0;

    CHECK_OK(lhi_traffic_of(s->job, &s->config, s->mem, &t, &n, &err), err);
    CHECK_INT(n, 2);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_NEAR((double)t[i].data_bytes, data_bytes, 8);
        CHECK_NEAR((double)t[i].expert_bytes,
                   tokens * SEQUENCE * HIDDEN * 2 * LAYERS *
                       s->config.microbatches,
                   1);
    }
}

/* Gradients in four bytes and parameters in two, half of each from either side:
 * three bytes for each parameter. */
static void one_block_over_both(void)
{
    spread_job s;

    start(&s, 4, 6);
    /* Each expert once: only the rest is reduced. Four GPUs send two copies to
     * two out of six, in four all-to-alls. */
    check(&s, 3 * s.dense, 4 * 4 * 2.0 * 2 / 6);
    /* Recomputation repeats the forward's. */
    s.config.recompute = LH_RECOMPUTE_FULL;
    check(&s, 3 * s.dense, 6 * 4 * 2.0 * 2 / 6);
    /* 8 bits to the experts, 16 bits back. */
    s.job->framework.fp8 = LH_FP8_DISPATCH;
    check(&s, 3 * s.dense, 6 * 4 * 2.0 * 2 / 6 * 3 / 4);
    finish(&s);
}

static void blocks_inside_datacenters(void)
{
    spread_job s;

    start(&s, 4, 2);
    /* Two copies of each expert there, one here. */
    check(&s, 3 * (s.dense + s.experts), 0);
    finish(&s);
}

/* Blocks of two over three and three: the second spans both datacenters. Its
 * GPUs exchange half their copies. */
static void a_block_over_the_boundary(void)
{
    spread_job s;

    start(&s, 3, 2);
    check(&s, 3 * (s.dense + s.experts), 4 * 2.0 / 2);
    finish(&s);
}

/* With one node per datacenter a token crosses at most once, instead of two out
 * of four copies: unless all of its experts are among the three of six that are
 * on its own node. */
static void once_per_node(void)
{
    spread_job s;

    start(&s, 3, 6);
    check(&s, 3 * s.dense, 4 * 3 * 2.0 * 3 / 6);
    s.job->training.dispatcher = LH_DISPATCHER_DEEPEP;
    check(&s, 3 * s.dense, 4 * 3 * (1 - 3.0 / 15));
    s.job->training.dispatcher = LH_DISPATCHER_HYBRIDEP;
    check(&s, 3 * s.dense, 4 * 3 * (1 - 3.0 / 15));
    lh_model more = *s.job->model;
    more.experts_per_token = 4;
    s.job->model = &more;
    check(&s, 3 * s.dense, 4 * 3 * 1.0);
    /* Three experts in each of two groups, of which a token uses one: half of
     * the tokens cross. */
    more.experts_per_token = 2;
    more.expert_groups = 2;
    more.groups_per_token = 1;
    check(&s, 3 * s.dense, 4 * 3 * 0.5);
    /* All tokens cross, to a node's three members together once. */
    s.job->training.dispatcher = LH_DISPATCHER_ALL_GATHER;
    check(&s, 3 * s.dense, 4 * 3 * 1.0);
    s.job->training.dispatcher = LH_DISPATCHER_ALL_TO_ALL;
    check(&s, 3 * s.dense, 4 * 3 * 2.0 * 3 / 6);
    finish(&s);
}

/* Rings pass three datacenters in one direction; tokens go both ways: three
 * blocks of four. The second has two GPUs each in the first and the second
 * datacenter, the third has three in the second and one in the third. */
static void against_the_ring(void)
{
    enum { N = 12 };
    static const lh_site_stages parts[] = {{0, 1}, {1, 1}, {2, 1}};
    const lh_site_group groups[] = {
        {6, 1, &parts[0]}, {5, 1, &parts[1]}, {1, 1, &parts[2]}};
    const lh_sites sites = {3, groups};
    /* Members of a block here, times members there. */
    const double pairs[3][3] = {{0, 2 * 2, 0}, {2 * 2, 0, 3}, {0, 3, 0}};
    const lhi_traffic *t = NULL;
    lh_error err = {0};
    uint32_t n = 0, seen = 0;
    spread_job s;
    lh_job *job = job_with(
        JOB_SMALL, "  gpus_per_node: 6\n"
                   "  datacenters: [{name: a, nodes: 1}, {name: b, nodes: 1}, "
                   "{name: c, nodes: 1}]\n"
                   "  links:\n"
                   "    - {between: [a, b], latency_ms: 1, gbps: 100}\n"
                   "    - {between: [b, c], latency_ms: 1, gbps: 100}\n"
                   "    - {between: [a, c], latency_ms: 1, gbps: 100}\n"
                   "model: {layers: 4, hidden: 1024, heads: 8, vocab: 1000, "
                   "experts: 8, experts_per_token: 2, expert_ffn: 512}\n"
                   "training: {global_batch: 24, sequence: 1024, zero: 1}\n");

    start(&s, 3, 4);
    s.config.layout.data = N;
    s.config.layout.sites = &sites;
    s.config.microbatches = BATCH / N;
    CHECK_OK(lhi_traffic_of(job, &s.config, s.mem, &t, &n, &err), err);
    for (uint32_t i = 0; i < n; i++) {
        double share = pairs[t[i].from][t[i].to] / 4;

        seen += t[i].expert_bytes > 0;
        CHECK_NEAR((double)t[i].expert_bytes,
                   4 * 2 * share * SEQUENCE * HIDDEN * 2 * LAYERS *
                       s.config.microbatches,
                   1);
    }
    CHECK_INT(seen, 4);
    lh_job_free(job);
    finish(&s);
}

/* Three replicas cross from west to east, three are in east. Blocks of two over
 * the three replicas of the first stage in each datacenter send tokens where
 * the messages cross; blocks of three are inside a datacenter. */
static void tokens_do_not_meet_messages(void)
{
    static const lh_site_stages across[] = {{0, 1}, {1, 1}}, inside = {1, 2};
    const lh_site_group groups[] = {{3, 2, across}, {3, 1, &inside}};
    const lh_sites sites = {2, groups};
    lh_job *job = job_with(
        JOB_SMALL,
        "  gpus_per_node: 6\n"
        "  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 2}]\n"
        "model: {layers: 4, hidden: 1024, heads: 8, vocab: 1000, experts: 6, "
        "experts_per_token: 2, expert_ffn: 512}\n"
        "training: {global_batch: 24, sequence: 1024, zero: 1}\n");
    for (uint32_t expert = 1; expert <= 3; expert++) {
        lhi_built_layout built = {0};
        lh_error err = {0};
        spread_job s;
        start(&s, 3, expert);
        s.config.layout.pipeline = 2;
        s.config.layout.sites = &sites;
        lh_status status = lhi_layout_build(job, &s.config, &built, &err);
        CHECK_INT(status, expert == 2 ? LH_EUNSUPPORTED : LH_OK);
        if (expert == 2)
            CHECK_HAS(err.text, "the link from west to east would carry both "
                                "pipeline messages and tokens");
        lh_pipeline_free(built.pipeline);
        finish(&s);
    }
    lh_job_free(job);
}

int main(void)
{
    RUN(tokens_do_not_meet_messages);
    RUN(against_the_ring);
    RUN(one_block_over_both);
    RUN(blocks_inside_datacenters);
    RUN(a_block_over_the_boundary);
    RUN(once_per_node);
    return test_summary();
}
