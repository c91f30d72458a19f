/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and messages between datacenters, counted as the cost model times
 * them: docs/theory/placement.md. */
#include "plan/layout/traffic.h"

#include "cost/shape.h"

#include <math.h>

typedef struct counter {
    const lh_job *job; /* with the recomputation of the configuration */
    const lhi_config *config;
    lhi_arena *mem;
    lhi_places places;
    lh_cost_options options; /* with defaults */
    lhi_traffic *pairs;      /* [from * n_datacenters + to] */
    double *bytes;           /* data_bytes, before they are rounded */
    uint64_t *at_once;       /* of one pair of stages; as `pairs` */
} counter;

static uint32_t datacenter_of(const counter *c, uint32_t group, uint32_t stage)
{
    size_t P = c->config->layout.pipeline;
    return c->places.ranks[group * P + stage].datacenter;
}

/* Those of one chunk to the next, and of the gradients back: as many. */
static void count_messages(counter *c, uint32_t from, uint32_t to)
{
    const lh_sites *sites = c->places.sites;
    uint32_t n = c->job->n_datacenters,
             gpus = lhi_group_size(&c->config->layout);
    for (uint32_t g = 0; g < sites->n_groups; g++) {
        uint32_t a = datacenter_of(c, g, from), b = datacenter_of(c, g, to);
        size_t pair = (size_t)a * n + b;
        if (a == b)
            continue;
        c->at_once[pair] = 0;
        for (uint32_t i = 0; i < sites->n_groups; i++)
            if (datacenter_of(c, i, from) == a && datacenter_of(c, i, to) == b)
                c->at_once[pair] += (uint64_t)sites->groups[i].replicas * gpus;
        lhi_traffic *t = &c->pairs[pair];
        t->messages +=
            (uint64_t)sites->groups[g].replicas * c->config->microbatches;
        if (c->at_once[pair] > t->message_flows)
            t->message_flows = c->at_once[pair];
    }
}

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

/* One GPU of each datacenter sends for all of a group. */
static bool has_leaders(const counter *c)
{
    return c->job->training.zero > 0 &&
           c->config->layout.sharding == LH_SHARDING_HYBRID_LEADERS;
}

/* How often the buffers of a slice go round: [Raj section 7]. */
static void find_rounds(const counter *c, double *gathers, double *reductions)
{
    uint32_t zero = c->job->training.zero;
    double microbatches = c->config->microbatches;
    *gathers = zero >= 3 ? 2 * microbatches : zero > 0;
    *reductions = zero >= 2 ? microbatches : zero == 1 ? 1 : 2;
    if (zero > 0 && c->config->layout.sharding > LH_SHARDING_FULL) {
        *gathers = 0; /* every datacenter has all parameters */
        *reductions = 2;
    }
}

/* Rings between the datacenters for buffers of `each` bytes on every GPU:
 * `groups` such buffers, each in as many parts as the smallest datacenter has
 * members of the group, or in one. */
static void count_rings(counter *c, const lhi_spread *spread, double groups,
                        double each, double members, double rounds)
{
    uint32_t n = c->job->n_datacenters, k = spread->n_sites;
    if (has_leaders(c))
        members = 1;
    double step = each / members / k;
    for (uint32_t i = 0; i < k; i++) {
        size_t pair = (size_t)spread->sites[i].datacenter * n +
                      spread->sites[(i + 1) % k].datacenter;
        c->bytes[pair] += groups * members * rounds * (k - 1) * step;
        if (rounds > 0 && step > (double)c->pairs[pair].data_step_bytes)
            c->pairs[pair].data_step_bytes = (int64_t)ceil(step);
    }
}

static lh_status count_chunk(counter *c, uint32_t chunk, uint32_t n_chunks,
                             lh_error *err)
{
    const lh_layout *l = &c->config->layout;
    uint32_t stage = lhi_config_device(c->config, chunk);
    const lhi_spread *spread = &c->places.spreads[stage];
    if (spread->n_sites < 2)
        return LH_OK;
    lh_cost_slice slice = {.embedding = chunk == 0,
                           .head = chunk + 1 == n_chunks,
                           .datacenter = spread->sites[0].datacenter,
                           .n_sites = spread->n_sites,
                           .sites = spread->sites,
                           .sharing = spread->sharing};
    lh_cost cost;
    lhi_config_layers(c->job->model->layers, c->config, chunk,
                      &slice.first_layer, &slice.n_layers);
    LHI_TRY(lh_cost_chunk(c->job, l, &slice, &c->options, &cost, err));
    double gathers, reductions, least = lhi_spread_least(spread);
    double element = lh_precision_bytes(c->job->training.precision);
    double wire = c->options.gradient_wire_bytes;
    double shared = (double)(cost.params - cost.expert_params);
    double experts = (double)cost.expert_params;
    double members = least * l->context;
    find_rounds(c, &gathers, &reductions);
    count_rings(c, spread, l->tensor, shared * element, members * l->expert,
                gathers);
    count_rings(c, spread, l->tensor, shared * wire, members * l->expert,
                reductions);
    count_rings(c, spread, (double)l->tensor * l->expert, experts * element,
                members, gathers);
    count_rings(c, spread, (double)l->tensor * l->expert, experts * wire,
                members, reductions);
    return LH_OK;
}

/* Every GPU of the smallest datacenter has a ring of its own, or every leader:
 * one for each share of the experts, or of the rest. */
static void count_flows(counter *c)
{
    const lh_layout *l = &c->config->layout;
    uint32_t n = c->job->n_datacenters;
    for (uint32_t s = 0; s < c->config->layout.pipeline; s++) {
        const lhi_spread *spread = &c->places.spreads[s];
        for (uint32_t i = 0; spread->n_sites > 1 && i < spread->n_sites; i++) {
            size_t pair = (size_t)spread->sites[i].datacenter * n +
                          spread->sites[(i + 1) % spread->n_sites].datacenter;
            c->pairs[pair].data_flows +=
                has_leaders(c)
                    ? (uint64_t)l->tensor * l->expert
                    : (uint64_t)lhi_group_size(l) * lhi_spread_least(spread);
        }
    }
}

static lh_status count_data(counter *c, lh_error *err)
{
    const lh_layout *l = &c->config->layout;
    uint32_t n_chunks = l->pipeline * l->chunks_per_device;
    size_t n = c->job->n_datacenters;
    for (uint32_t k = 0; k < n_chunks; k++)
        LHI_TRY(count_chunk(c, k, n_chunks, err));
    count_flows(c);
    for (size_t i = 0; i < n * n; i++)
        LHI_TRY(lhi_whole(c->bytes[i], "bytes between datacenters",
                          &c->pairs[i].data_bytes, err));
    return LH_OK;
}

lh_status lhi_traffic_of(const lh_job *job, const lhi_config *config,
                         lhi_arena *mem, const lhi_traffic **out, uint32_t *n,
                         lh_error *err)
{
    lh_job as_configured = lhi_config_job(job, config);
    counter c = {.job = &as_configured, .config = config, .mem = mem};
    size_t pairs = (size_t)job->n_datacenters * job->n_datacenters;
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    LHI_TRY(lhi_cost_options(&options, &c.options, err));
    c.pairs = LHI_NEW(mem, lhi_traffic, pairs);
    c.bytes = LHI_NEW(mem, double, pairs);
    c.at_once = LHI_NEW(mem, uint64_t, pairs);
    if (!c.pairs || !c.bytes || !c.at_once)
        return lhi_fail_nomem(err);
    LHI_TRY(
        lhi_layout_place(&as_configured, &config->layout, mem, &c.places, err));
    count_all_messages(&c);
    LHI_TRY(count_data(&c, err));
    uint32_t used = 0;
    for (size_t i = 0; i < pairs; i++) {
        lhi_traffic t = c.pairs[i];
        if (!t.messages && !t.data_bytes)
            continue;
        t.from = (uint32_t)(i / job->n_datacenters);
        t.to = (uint32_t)(i % job->n_datacenters);
        t.message_bytes =
            t.messages ? lh_cost_message_bytes(job, &config->layout) : 0;
        c.pairs[used++] = t;
    }
    *out = c.pairs;
    *n = used;
    return LH_OK;
}
