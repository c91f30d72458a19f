/* SPDX-License-Identifier: Apache-2.0 */
/* Counts bytes and messages between datacenters, in the way that the cost model
 * times them: docs/theory/placement.md. */
#include "planner/layout/traffic.h"

#include "format/job/job_values.h"
#include "model/group_layout.h"
#include "model/paths.h"
#include "model/shape.h"
#include "model/sharding.h"
#include "model/work.h"

#include <math.h>

/* Traffic count state. */
typedef struct counter {
    const lh_job *job; /* with the configuration's recomputation */
    const lhi_config *config;
    lh_layout layout; /* of data parallelism: with two directions it has twice
                       * the replicas */
    lhi_arena *mem;
    lhi_layout_placement places;
    lh_cost_options options; /* with defaults */
    lhi_shape shape;
    lhi_traffic *pairs; /* [from * n_datacenters + to] */
    double *bytes;      /* data_bytes before rounding */
    double *tokens;     /* expert_bytes before rounding */
    uint64_t *at_once;  /* for one pair of stages; indexed like `pairs` */
} counter;

/* Returns the datacenter in which replica group `group` has pipeline stage
 * `stage`. */
static uint32_t get_datacenter(const counter *c, uint32_t group, uint32_t stage)
{
    size_t P = c->config->layout.pipeline;
    return c->places.ranks[group * P + stage].datacenter;
}

/* Counts the messages per iteration from stage `from` to stage `to` for each
 * pair of datacenters. Also finds the largest number of GPUs that send at
 * once. */
static void count_messages(counter *c, uint32_t from, uint32_t to)
{
    const lh_sites *sites = c->places.sites;
    const uint32_t n = c->job->n_datacenters;
    for (uint32_t g = 0; g < sites->n_groups; g++) {
        uint32_t a = get_datacenter(c, g, from), b = get_datacenter(c, g, to);
        size_t pair = (size_t)a * n + b;
        if (a == b)
            continue;
        const lh_layout hop = lhi_layout_on_hop(&c->config->layout, a, b);
        const uint32_t gpus = lhi_group_size(&hop);
        c->at_once[pair] = 0;
        for (uint32_t i = 0; i < sites->n_groups; i++)
            if (get_datacenter(c, i, from) == a &&
                get_datacenter(c, i, to) == b)
                c->at_once[pair] += (uint64_t)sites->groups[i].replicas * gpus;
        lhi_traffic *t = &c->pairs[pair];
        t->messages +=
            (uint64_t)sites->groups[g].replicas * c->config->microbatches;
        if (c->at_once[pair] > t->message_flows)
            t->message_flows = c->at_once[pair];
    }
}

/* Counts the activation and gradient messages between all consecutive chunks.
 */
static void count_all_messages(counter *c)
{
    const lh_layout *l = &c->config->layout;
    uint32_t n_chunks = l->pipeline * l->chunks_per_device;
    for (uint32_t k = 0; k + 1 < n_chunks; k++) {
        uint32_t a = lhi_config_device(c->config, k);
        uint32_t b = lhi_config_device(c->config, k + 1);
        count_messages(c, a, b);
        count_messages(c, b, a);
    }
}

/* ---- data parallelism ---- */

/* Checks whether one leader GPU per datacenter sends the data-parallel traffic
 * of its whole group (hybrid-leaders sharding). */
static bool has_leaders(const counter *c)
{
    return c->job->training.zero > 0 &&
           c->config->layout.sharding == LH_SHARDING_HYBRID_LEADERS;
}

/* Counts how often per iteration parameters are gathered (*gathers) and
 * gradients reduced (*reductions), by ZeRO stage [Raj section 7]. In an elastic
 * plan, sharded shares are sent for every microbatch group on a chunk. The last
 * chunk's first backward group needs no gather. */
static void count_rounds(const counter *c, double *gathers, double *reductions)
{
    uint32_t zero = lhi_find_zero(c->job, &c->layout);
    double microbatches = c->config->microbatches;
    const lh_plan_elastic *e = c->config->elastic;
    if (e) {
        double chunks = c->config->layout.chunks_per_device;
        *gathers = 1 + e->parameters *
                           (e->n_enqueue - 1.0 + e->n_dequeue - 1 / chunks);
        *reductions = 1 + e->gradients * (e->n_dequeue - 1.0);
        return;
    }
    *gathers = zero >= 3 ? 2 * microbatches : zero > 0;
    *reductions = zero >= 2 ? microbatches : zero == 1 ? 1 : 2;
    if (zero > 0 && c->config->layout.sharding > LH_SHARDING_FULL) {
        *gathers = 0; /* every datacenter has all parameters */
        *reductions = 2;
    }
}

/* Datacenters with members of equivalent groups. */
typedef struct ring {
    uint32_t n_sites;
    const lh_cost_site *sites;
    double groups;
    double members; /* in the smallest datacenter */
} ring;

/* Adds the bytes of `rings` rings over the n datacenters at[], each ring
 * reducing a buffer of `bytes`, to neighbouring datacenters' traffic. */
static void count_ring(counter *c, const uint32_t *at, uint32_t n, double rings,
                       double bytes)
{
    double step = bytes / n;
    for (uint32_t i = 0; i < n && n > 1 && rings > 0; i++) {
        size_t pair = (size_t)at[i] * c->job->n_datacenters + at[(i + 1) % n];
        c->bytes[pair] += rings * (n - 1) * step;
        if (step > (double)c->pairs[pair].data_step_bytes)
            c->pairs[pair].data_step_bytes = (int64_t)ceil(step);
    }
}

/* Lists the zones of the ring's i-th datacenter in at[]; returns their number,
 * or 0 if an earlier member of the ring belongs to the same datacenter. */
static uint32_t list_zones(const counter *c, const ring *r, uint32_t i,
                           uint32_t *at)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < r->n_sites; k++) {
        if (k != i &&
            !lhi_are_zones_of_same_datacenter(c->job, r->sites[i].datacenter,
                                              r->sites[k].datacenter))
            continue;
        if (k < i)
            return 0;
        at[n++] = r->sites[k].datacenter;
    }
    return n;
}

/* Counts the traffic of `rounds` gathers or reductions of buffers of `each`
 * bytes per GPU: first rings between a datacenter's zones, then rings between
 * datacenters. With leaders one GPU per group sends, otherwise all members
 * share the buffer. The datacenter with the fewest zones limits the rings
 * between datacenters, because each ring needs a zone in every datacenter. */
static void count_rings(counter *c, const ring *r, double each, double rounds)
{
    double members = has_leaders(c) ? 1 : r->members;
    double rings = r->groups * members * rounds, share = each / members;
    uint32_t zones[LH_MAX_DATACENTERS], firsts[LH_MAX_DATACENTERS];
    uint32_t n_firsts = 0, fewest = r->n_sites;
    for (uint32_t i = 0; i < r->n_sites; i++) {
        uint32_t n = list_zones(c, r, i, zones);
        if (!n)
            continue;
        count_ring(c, zones, n, rings, share);
        firsts[n_firsts++] = zones[0];
        fewest = n < fewest ? n : fewest;
    }
    count_ring(c, firsts, n_firsts, rings * fewest, share / fewest);
}

/* Counts the traffic in bytes with which a ring of datacenters gathers and
 * reduces `params` parameters per iteration. */
static void count_params(counter *c, const ring *r, double params)
{
    double element = lhi_precision_bytes(c->job->training.precision);
    double wire = c->options.gradient_wire_bytes, gathers, reductions;
    count_rounds(c, &gathers, &reductions);
    count_rings(c, r, params * element, gathers);
    count_rings(c, r, params * wire, reductions);
}

/* Counts the gather and reduction traffic of `params` expert parameters, whose
 * process groups are those in `groups`. */
static void count_experts(counter *c, const lhi_group_layout *groups,
                          double params)
{
    lhi_expert_replicas copies;
    for (uint32_t i = 0; lhi_group_layout_find_replicas(groups, i, &copies);
         i++) {
        ring r = {copies.group.n_sites, copies.sites, (double)copies.n,
                  copies.group.per_datacenter};
        if (copies.n && r.n_sites > 1)
            count_params(c, &r, params);
    }
}

/* Returns the all-to-all count per expert layer: two forward, two backward, two
 * more if experts are recomputed. */
static double count_all_to_alls(const lh_job *job, lh_recompute recompute)
{
    bool again = recompute == LH_RECOMPUTE_FULL ||
                 (recompute == LH_RECOMPUTE_MODULES &&
                  (job->training.recompute_modules >> LH_MODULE_MOE & 1));
    return again ? 6 : 4;
}

/* Counts the expert layers' all-to-all traffic in a chunk between datacenters,
 * in bytes. */
static void count_tokens(counter *c, const lhi_group_layout *groups,
                         const lh_cost_layer_range *slice)
{
    const lh_job *job = c->job;
    const lh_model *m = job->model;
    lhi_exchange exchange = lhi_exchange_make(job->training.dispatcher, m);
    double passes = count_all_to_alls(job, c->config->recompute);
    double layers = lhi_count_moe_layers(m, slice);
    lhi_group_members block;
    const lhi_shape *shape = &c->shape;
    /* Bytes per GPU; half the all-to-alls dispatch tokens, the others combine
     * them. */
    double each = shape->tokens * shape->dispatched *
                  lhi_model_expert_input(m) *
                  (shape->dispatch_element + shape->element) / 2 * passes *
                  layers * c->config->microbatches;
    for (uint32_t i = 0;
         lhi_group_layout_find_spanning_group(groups, i, &block); i++)
        for (uint32_t a = 0; a < block.n; a++)
            for (uint32_t b = 0; b < block.n; b++)
                if (a != b)
                    c->tokens[(size_t)block.at[a].datacenter *
                                  job->n_datacenters +
                              block.at[b].datacenter] +=
                        each * groups->tensor * block.at[a].members *
                        block.at[b].members *
                        lhi_all_to_all_compute_share(&block, a, &exchange);
}

/* Counts a chunk's data-parallel and expert traffic, if its replicas are in
 * several datacenters. */
static lh_status count_chunk(counter *c, uint32_t chunk, lh_error *err)
{
    const lh_layout *l = &c->layout;
    uint32_t stage = lhi_config_device(c->config, chunk);
    const lhi_stage_placement *spread = &c->places.stages[stage];
    if (spread->n_sites < 2)
        return LH_OK;
    lh_cost_layer_range slice =
        lhi_config_slice(c->job, c->config, spread, chunk);
    slice.datacenter = spread->sites[0].datacenter;
    slice.n_chunks = 0; /* profiles have no bytes between sites */
    ring dense = {spread->n_sites, spread->sites, l->tensor,
                  (double)lhi_stage_placement_min_replicas(spread) *
                      l->context};
    lhi_params params; /* whole numbers */
    lhi_group_layout groups;
    lhi_count_slice_params(&c->shape, &slice, &params);
    count_params(c, &dense, params.total - params.experts);
    if (!(params.experts > 0))
        return LH_OK;
    LHI_TRY(lhi_group_layout_build(c->job, l, &slice, &groups, err));
    if (groups.matches_dense_layers) {
        count_params(c, &dense, params.experts);
        return LH_OK;
    }
    count_experts(c, &groups, params.experts);
    if (l->expert > 1)
        count_tokens(c, &groups, &slice);
    return LH_OK;
}

/* Returns the number of rings between leader GPUs (one GPU per datacenter sends
 * for its group): one per share of the experts, or of the other parameters. */
static uint64_t count_leader_rings(const lh_job *job, const lh_layout *l)
{
    uint64_t block = lh_layout_expert_block(l);
    return job->model->experts && block > l->tensor ? block : l->tensor;
}

/* Counts the data-parallel flows at once on each link between neighbouring
 * datacenters of a ring: one per GPU of the datacenter with the fewest
 * replicas, or per leader. */
static void count_flows(counter *c)
{
    const lh_layout *l = &c->config->layout;
    uint32_t n = c->job->n_datacenters;
    /* Two stages of two directions have the same rings. */
    const uint32_t stages =
        l->pipeline / (c->config->placement == LH_PLACEMENT_BD ? 2 : 1);
    for (uint32_t s = 0; s < stages; s++) {
        const lhi_stage_placement *spread = &c->places.stages[s];
        for (uint32_t i = 0; spread->n_sites > 1 && i < spread->n_sites; i++) {
            size_t pair = (size_t)spread->sites[i].datacenter * n +
                          spread->sites[(i + 1) % spread->n_sites].datacenter;
            c->pairs[pair].data_flows +=
                has_leaders(c) ? count_leader_rings(c->job, l)
                               : (uint64_t)lhi_group_size(l) *
                                     lhi_stage_placement_min_replicas(spread);
        }
    }
}

/* Counts the data-parallel and expert traffic of all chunks, in bytes per
 * iteration for each pair of datacenters. */
static lh_status count_data(counter *c, lh_error *err)
{
    const lh_layout *l = &c->config->layout;
    uint32_t n_chunks = l->pipeline * l->chunks_per_device;
    size_t n = c->job->n_datacenters;
    for (uint32_t k = 0; k < n_chunks; k++)
        LHI_TRY(count_chunk(c, k, err));
    count_flows(c);
    for (size_t i = 0; i < n * n; i++) {
        LHI_TRY(lhi_round_up_checked(c->bytes[i], "bytes between datacenters",
                                     &c->pairs[i].data_bytes, err));
        LHI_TRY(lhi_round_up_checked(c->tokens[i], "bytes between datacenters",
                                     &c->pairs[i].expert_bytes, err));
    }
    return LH_OK;
}

lh_status lhi_traffic_of(const lh_job *job, const lhi_config *config,
                         lhi_arena *mem, const lhi_traffic **out, uint32_t *n,
                         lh_error *err)
{
    lh_job as_configured = lhi_config_job(job, config);
    counter c = {.job = &as_configured,
                 .config = config,
                 .layout = config->layout,
                 .mem = mem};
    size_t pairs = (size_t)job->n_datacenters * job->n_datacenters;
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    LHI_TRY(lhi_complete_cost_options(job, &options, &c.options, err));
    LHI_TRY(lhi_shape_make(&as_configured, &config->layout, &c.options,
                           &c.shape, err));
    c.pairs = LHI_NEW(mem, lhi_traffic, pairs);
    c.bytes = LHI_NEW(mem, double, pairs);
    c.tokens = LHI_NEW(mem, double, pairs);
    c.at_once = LHI_NEW(mem, uint64_t, pairs);
    if (!c.pairs || !c.bytes || !c.tokens || !c.at_once)
        return lhi_fail_nomem(err);
    LHI_TRY(
        lhi_layout_place(&as_configured, &config->layout, mem, &c.places, err));
    if (config->placement == LH_PLACEMENT_BD)
        LHI_TRY(lhi_two_directions_merge_stages(&as_configured, mem, &c.layout,
                                                &c.places, err));
    count_all_messages(&c);
    LHI_TRY(count_data(&c, err));
    uint32_t used = 0;
    for (size_t i = 0; i < pairs; i++) {
        lhi_traffic t = c.pairs[i];
        if (!t.messages && !t.data_bytes && !t.expert_bytes)
            continue;
        t.from = (uint32_t)(i / job->n_datacenters);
        t.to = (uint32_t)(i % job->n_datacenters);
        t.message_bytes =
            t.messages ? lhi_cost_message_bytes(job, &config->layout) : 0;
        c.pairs[used++] = t;
    }
    *out = c.pairs;
    *n = used;
    return LH_OK;
}
