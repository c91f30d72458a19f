/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a scenario's jobs. */
#include "model/paths.h"
#include "network/optical/scenario.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/cost.h>

#include <inttypes.h>
#include <string.h>

enum {
    MAX_STAGES = 1024,
    MAX_MICROBATCHES = 65536,
    MAX_PRIORITY = 1000,
};
/* Maximum size of a transfer, in bits. */
#define MAX_BITS (INT64_C(1) << 50)

/* A job reader's state. */
typedef struct reader {
    const lhi_doc *doc;
    lh_scenario *s;
    lhi_optical_job_spec *job;
    lh_error *err;
} reader;

lh_status lhi_scenario_add_file(lh_scenario *s, const char *path, lh_error *err)
{
    lhi_scenario_file *file = LHI_NEW(s->mem, lhi_scenario_file, 1);
    if (!file)
        return lhi_fail_nomem(err);
    file->path = path;
    if (s->last_file)
        s->last_file->next = file;
    else
        s->files = file;
    s->last_file = file;
    return LH_OK;
}

lh_status lhi_scenario_resolve_file(lh_scenario *s, const lhi_doc *doc,
                                    const lhi_node *node, const char **path,
                                    lh_error *err)
{
    LHI_TRY(lhi_optical_resolve_file(doc, node, s->mem, path, err));
    return lhi_scenario_add_file(s, *path, err);
}

bool lhi_program_order_parse(const char *schedule, lhi_program_order *order)
{
    if (strcmp(schedule, "gpipe") == 0)
        *order = LHI_GPIPE;
    else if (strcmp(schedule, "1f1b") == 0)
        *order = LHI_1F1B;
    else
        return false;
    return true;
}

const lh_pipeline *lhi_optical_job_pipeline(const lhi_optical_job_spec *job)
{
    return job->pipeline ? job->pipeline
           : job->plan   ? job->plan->pipeline
                         : NULL;
}

/* Reads `preset`, which sets pass times and message size of the job;
 * docs/optical.md derives the numbers. */
static lh_status read_preset(reader *r, const lhi_node *map)
{
    static const char *const names[] = {"8b", "70b", NULL};
    const lhi_node *node = lhi_node_find(map, "preset");
    uint32_t which = 0;
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_node_get_choice(r->doc, node, names, &which, r->err));
    lhi_chain *c = &r->job->chain;
    c->forward_ns = which == 0 ? 10000000 : 38000000;
    c->backward_ns = which == 0 ? 17700000 : 67000000;
    c->bits = which == 0 ? INT64_C(4294967296) : INT64_C(8589934592);
    return LH_OK;
}

/* Reads an integer from `least` to `most` under `key` into *out. If absent,
 * *out keeps the preset's value; without a preset the key is required. */
static lh_status read_amount(reader *r, const lhi_node *map, const char *key,
                             int64_t least, int64_t most, int64_t *out)
{
    const lhi_node *node = lhi_node_find(map, key);
    if (!node) {
        if (lhi_node_find(map, "preset"))
            return LH_OK;
        return lhi_node_require(r->doc, map, key, &node, r->err);
    }
    return lhi_node_get_int(r->doc, node, least, most, out, r->err);
}

/* Reads a job that is given as a chain of equal stages with a pass order. */
static lh_status read_chain(reader *r, const lhi_node *map)
{
    static const char *const keys[] = {"name",
                                       "preset",
                                       "forward_ns",
                                       "backward_ns",
                                       "weight_ns",
                                       "message_bits",
                                       "stages",
                                       "datacenters",
                                       "placement",
                                       "schedule",
                                       "warm_up_factor",
                                       "microbatches",
                                       "activation_limit",
                                       "data_parallel",
                                       "policy",
                                       "priority",
                                       NULL};
    lhi_chain *c = &r->job->chain;
    const lhi_node *node;
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    LHI_TRY(read_preset(r, map));
    LHI_TRY(
        read_amount(r, map, "forward_ns", 1, LHI_MAX_TIME_NS, &c->forward_ns));
    LHI_TRY(read_amount(r, map, "backward_ns", 1, LHI_MAX_TIME_NS,
                        &c->backward_ns));
    LHI_TRY(read_amount(r, map, "message_bits", 1, MAX_BITS, &c->bits));
    r->job->weight_ns = c->backward_ns / 2;
    if ((node = lhi_node_find(map, "weight_ns")) != NULL)
        LHI_TRY(lhi_node_get_int(r->doc, node, 0, c->backward_ns,
                                 &r->job->weight_ns, r->err));
    LHI_TRY(lhi_node_require(r->doc, map, "stages", &node, r->err));
    LHI_TRY(lhi_node_get_u32(r->doc, node, 1, MAX_STAGES, &c->stages, r->err));
    r->job->devices = c->stages;
    LHI_TRY(lhi_node_require(r->doc, map, "microbatches", &node, r->err));
    LHI_TRY(lhi_node_get_u32(r->doc, node, 1, MAX_MICROBATCHES,
                             &c->microbatches, r->err));
    c->warm_up_factor = 1;
    if ((node = lhi_node_find(map, "warm_up_factor")) != NULL)
        LHI_TRY(lhi_node_get_u32(r->doc, node, 1, 1000, &c->warm_up_factor,
                                 r->err));
    if ((node = lhi_node_find(map, "activation_limit")) != NULL)
        LHI_TRY(lhi_node_get_u32(r->doc, node, 1, MAX_MICROBATCHES,
                                 &r->job->activations, r->err));
    LHI_TRY(lhi_node_require(r->doc, map, "schedule", &node, r->err));
    return lhi_scenario_parse_method(r->doc, node, r->s->mem, &r->job->schedule,
                                     r->err);
}

/* Reads a job that is given as a plan file, and derives the message size in
 * bits. */
static lh_status read_plan(reader *r, const lhi_node *node)
{
    const char *path;
    LHI_TRY(lhi_scenario_resolve_file(r->s, r->doc, node, &path, r->err));
    lh_status status = lh_plan_read(path, &r->job->plan, r->err);
    if (status != LH_OK) {
        lhi_fail_add_context(r->err, "%s:%" PRIu32, r->doc->file, node->line);
        return status;
    }
    const lh_plan *plan = r->job->plan;
    const lh_layout *layout = &plan->best.layout;
    /* Replicas run in lockstep and send together, unless they are outermost:
     * then each has its own sites. */
    double bits = 8.0 * (double)lhi_cost_message_bytes(plan->job, layout);
    if (layout->outermost != LH_OUTERMOST_DATA)
        bits *= layout->data > 0 ? layout->data : 1;
    if (!(bits >= 1 && bits <= (double)MAX_BITS))
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "messages of %.3g bits; at most 2^50 can be sent",
                            bits);
    r->job->chain.bits = (int64_t)bits;
    return lhi_replicas_from_plan(plan, r->s->mem, r->job, r->err);
}

/* Reads the pipeline file that a job names at `node`; the scenario owns the
 * pipeline. */
static lh_status read_pipeline(reader *r, const lhi_node *node)
{
    const char *path;
    LHI_TRY(lhi_scenario_resolve_file(r->s, r->doc, node, &path, r->err));
    lh_status status = lh_pipeline_read(path, &r->job->pipeline, r->err);
    if (status != LH_OK)
        lhi_fail_add_context(r->err, "%s:%" PRIu32, r->doc->file, node->line);
    return status;
}

/* Sets the job's device and microbatch counts from its pipeline.
 * LH_EUNSUPPORTED: too many devices. */
static lh_status set_dimensions(reader *r, const lhi_node *node)
{
    const lh_pipeline *p = lhi_optical_job_pipeline(r->job);
    r->job->devices = lh_pipeline_n_devices(p);
    r->job->chain.microbatches = lh_pipeline_n_microbatches(p);
    if (r->job->devices > MAX_STAGES)
        return lhi_doc_fail(r->doc, node, r->err, LH_EUNSUPPORTED,
                            "%" PRIu32 " devices; at most %d can be simulated",
                            r->job->devices, MAX_STAGES);
    return LH_OK;
}

/* Reads a job given by a file: a plan or a pipeline. */
static lh_status read_file(reader *r, const lhi_node *map)
{
    static const char *const keys[] = {
        "name",        "plan",      "pipeline", "message_bits",
        "datacenters", "placement", "schedule", "sites",
        "policy",      "priority",  NULL};
    const lhi_node *plan = lhi_node_find(map, "plan");
    const lhi_node *pipeline = lhi_node_find(map, "pipeline"), *node;
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    if (plan && pipeline)
        return lhi_doc_fail(r->doc, pipeline, r->err, LH_EINPUT,
                            "give a plan or a pipeline, not both");
    if (plan)
        LHI_TRY(read_plan(r, plan));
    else
        LHI_TRY(read_pipeline(r, pipeline));
    node = lhi_node_find(map, "message_bits");
    if (!node && pipeline)
        LHI_TRY(lhi_node_require(r->doc, map, "message_bits", &node, r->err));
    if (node)
        LHI_TRY(lhi_node_get_int(r->doc, node, 1, MAX_BITS, &r->job->chain.bits,
                                 r->err));
    node = lhi_node_find(map, "schedule");
    if (!node && pipeline)
        LHI_TRY(lhi_node_require(r->doc, map, "schedule", &node, r->err));
    if (node)
        LHI_TRY(lhi_scenario_parse_method(r->doc, node, r->s->mem,
                                          &r->job->schedule, r->err));
    return set_dimensions(r, plan ? plan : pipeline);
}

/* Reads a network node's id in the topology file and returns its index in *out.
 * LH_EINPUT: there is no such node. */
static lh_status get_node(reader *r, const lhi_node *node, uint32_t *out)
{
    int64_t id;
    LHI_TRY(lhi_node_get_int(r->doc, node, 0, INT32_MAX, &id, r->err));
    *out = lhi_topology_find(r->s->topology, id);
    if (*out == LH_NONE)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "the topology has no node %" PRId64, id);
    return LH_OK;
}

/* Reads `placement`: the network node list, one per stage. */
static lh_status read_placement(reader *r, const lhi_node *list)
{
    LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
    if (list->n_items != r->job->devices)
        return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                            "%" PRIu32 " nodes for %" PRIu32
                            " stages; give one per stage",
                            list->n_items, r->job->devices);
    uint32_t *sites = LHI_NEW(r->s->mem, uint32_t, list->n_items), n = 0;
    if (!sites)
        return lhi_fail_nomem(r->err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(get_node(r, node, &sites[n++]));
    r->job->placement = sites;
    return LH_OK;
}

/* Reads `data_parallel` of a chain: the nodes of its replicas, of which the
 * first one has all devices, and the bits that each device sends around the
 * ring. */
static lh_status read_data_parallel(reader *r, const lhi_node *map)
{
    static const char *const keys[] = {"nodes", "gather_bits", "reduce_bits",
                                       NULL};
    const lhi_node *list, *node;
    lhi_optical_job_spec *job = r->job;
    uint32_t n = 0, n_devices = job->devices;
    int64_t bits[2] = {0, 0};
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    LHI_TRY(lhi_node_check_keys(r->doc, map, keys, r->err));
    LHI_TRY(lhi_node_require(r->doc, map, "nodes", &list, r->err));
    LHI_TRY(lhi_node_check_list(r->doc, list, r->err));
    if (list->n_items < 2 || list->n_items > LHI_MAX_NODES)
        return lhi_doc_fail(r->doc, list, r->err, LH_EINPUT,
                            "give the nodes of 2 to %d replicas",
                            LHI_MAX_NODES);
    LHI_TRY(lhi_node_require(r->doc, map, "reduce_bits", &node, r->err));
    for (int i = 0; i < 2; i++)
        if ((node = lhi_node_find(map, keys[1 + i])) != NULL)
            LHI_TRY(
                lhi_node_get_int(r->doc, node, i, MAX_BITS, &bits[i], r->err));
    uint32_t *nodes = LHI_NEW(r->s->mem, uint32_t, list->n_items);
    uint32_t *sites = LHI_NEW(r->s->mem, uint32_t, n_devices);
    int64_t *sizes = LHI_NEW(r->s->mem, int64_t, 2 * (size_t)n_devices);
    if (!nodes || !sites || !sizes)
        return lhi_fail_nomem(r->err);
    for (node = list->first; node; node = node->next, n++) {
        LHI_TRY(get_node(r, node, &nodes[n]));
        for (uint32_t i = 0; i < n; i++)
            if (nodes[i] == nodes[n])
                return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                                    "occurs twice; replicas on one node "
                                    "send nothing over the network");
    }
    for (uint32_t d = 0; d < n_devices; d++) {
        sites[d] = nodes[0];
        sizes[d] = bits[0];
        sizes[n_devices + d] = bits[1];
    }
    job->placement = sites;
    job->ring = (lhi_replica_ring){.n_nodes = n,
                                   .nodes = nodes,
                                   .n_chunks = n_devices,
                                   .gather_bits = sizes,
                                   .reduce_bits = sizes + n_devices};
    return LH_OK;
}

/* Returns the name of a pipeline's datacenter; "" for none. */
static const char *get_site_name(const lh_pipeline *p, uint32_t site)
{
    return site == LH_NONE ? "" : lhi_pipeline_site_name(p, site);
}

/* Fails: `sites` gives no node for a datacenter. */
static lh_status fail_no_node(const reader *r, const lhi_node *map,
                              uint32_t site)
{
    return lhi_doc_fail(r->doc, map, r->err, LH_EINPUT,
                        "datacenter '%.60s' has no node",
                        get_site_name(lhi_optical_job_pipeline(r->job), site));
}

/* Sets the nodes of the job's replicas from those of its datacenters. */
static lh_status place_replicas(reader *r, const lhi_node *map,
                                const uint32_t *nodes)
{
    lhi_replica_ring *ring = &r->job->ring;
    uint32_t *at = LHI_NEW(r->s->mem, uint32_t, ring->n_nodes);
    if (!at)
        return lhi_fail_nomem(r->err);
    for (uint32_t i = 0; i < ring->n_nodes; i++) {
        at[i] = nodes[r->job->ring_sites[i]];
        if (at[i] == LH_NONE)
            return fail_no_node(r, map, r->job->ring_sites[i]);
        for (uint32_t k = 0; k < i; k++)
            if (at[k] == at[i])
                return lhi_doc_fail(
                    r->doc, map, r->err, LH_EINPUT,
                    "the datacenters '%.60s' and '%.60s' have "
                    "replicas that exchange messages, so they "
                    "need different nodes",
                    get_site_name(lhi_optical_job_pipeline(r->job),
                                  r->job->ring_sites[k]),
                    get_site_name(lhi_optical_job_pipeline(r->job),
                                  r->job->ring_sites[i]));
    }
    ring->nodes = at;
    return LH_OK;
}

/* Reads `sites`, which maps the pipeline's datacenters to network nodes: {west:
 * 1, east: 9}; sets each device's node. */
static lh_status read_sites(reader *r, const lhi_node *map)
{
    const lh_pipeline *p = lhi_optical_job_pipeline(r->job);
    uint32_t n_sites = lhi_pipeline_n_sites(p);
    LHI_TRY(lhi_node_check_map(r->doc, map, r->err));
    uint32_t *nodes = LHI_NEW(r->s->mem, uint32_t, n_sites + 1);
    uint32_t *sites = LHI_NEW(r->s->mem, uint32_t, r->job->devices);
    if (!nodes || !sites)
        return lhi_fail_nomem(r->err);
    for (uint32_t i = 0; i < n_sites; i++)
        nodes[i] = LH_NONE;
    for (const lhi_node *node = map->first; node; node = node->next) {
        uint32_t i = 0;
        while (i < n_sites &&
               strcmp(lhi_pipeline_site_name(p, i), node->key) != 0)
            i++;
        if (i == n_sites)
            return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                                "the plan has no datacenter of this name");
        LHI_TRY(get_node(r, node, &nodes[i]));
    }
    for (uint32_t d = 0; d < r->job->devices; d++) {
        uint32_t site = lh_pipeline_device_site(p, d);
        if (site == LH_NONE || nodes[site] == LH_NONE)
            return fail_no_node(r, map, site);
        sites[d] = nodes[site];
    }
    r->job->placement = sites;
    return place_replicas(r, map, nodes);
}

/* Fails with LH_EINPUT if a job has more datacenters than the topology has
 * nodes, or than the job has stages. */
static lh_status check_datacenters(reader *r, const lhi_node *node)
{
    uint32_t n = r->job->datacenters;
    if (n > r->s->topology->n_nodes)
        return lhi_doc_fail(
            r->doc, node, r->err, LH_EINPUT,
            "%" PRIu32 " datacenters, but the topology has %" PRIu32 " nodes",
            n, r->s->topology->n_nodes);
    if (n > r->job->devices && r->job->ring.n_nodes == 0)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "%" PRIu32 " datacenters for %" PRIu32
                            " stages; each must have one",
                            n, r->job->devices);
    return LH_OK;
}

/* Selects the default placement: each datacenter of the job's pipeline gets its
 * own network node. LH_EINPUT: the job has no pipeline with datacenters. */
static lh_status place_by_site(reader *r, const lhi_node *node)
{
    const lh_pipeline *p = lhi_optical_job_pipeline(r->job);
    r->job->datacenters = p ? lhi_pipeline_n_sites(p) : 0;
    if (r->job->datacenters == 0)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "requires the nodes of the stages; set placement: "
                            "[node, ...] or datacenters: NUMBER");
    r->job->keep_groups = true;
    return check_datacenters(r, node);
}

/* Reads the key that places the job on nodes: placement, sites, datacenters or
 * data_parallel, of which at most one may be given. */
static lh_status read_location(reader *r, const lhi_node *map)
{
    const lhi_node *placement = lhi_node_find(map, "placement");
    const lhi_node *sites = lhi_node_find(map, "sites");
    const lhi_node *random = lhi_node_find(map, "datacenters");
    const lhi_node *replicas = lhi_node_find(map, "data_parallel");
    if (!!placement + !!sites + !!random + !!replicas > 1)
        return lhi_doc_fail(r->doc,
                            replicas ? replicas
                            : random ? random
                                     : sites,
                            r->err, LH_EINPUT,
                            "give one of placement, sites, datacenters and "
                            "data_parallel");
    if (replicas)
        return read_data_parallel(r, replicas);
    if (r->job->ring.n_nodes > 0 && (placement || random))
        return lhi_doc_fail(r->doc, placement ? placement : random, r->err,
                            LH_EINPUT,
                            "the plan's replicas are in different datacenters; "
                            "give sites: {DATACENTER: node, ...} instead");
    if (placement)
        return read_placement(r, placement);
    if (sites)
        return read_sites(r, sites);
    if (!random)
        return place_by_site(r, map);
    LHI_TRY(lhi_node_get_u32(r->doc, random, 1, LHI_MAX_NODES,
                             &r->job->datacenters, r->err));
    return check_datacenters(r, random);
}

/* Checks that no sum of times in a run overflows; LH_EINPUT otherwise. A
 * message's time in one slot is below 2^42 ns, so its products with slots, hops
 * and queue lengths fit 63 bits. The sequential sum of all times in an
 * iteration is below 2^60. */
static lh_status check_size(reader *r, const lhi_node *node)
{
    const lhi_optical_job_spec *job = r->job;
    const lhi_chain *chain = &job->chain;
    const lh_pipeline *pipeline = job->pipeline ? job->pipeline
                                  : job->plan   ? job->plan->pipeline
                                                : NULL;
    double chunks = pipeline ? lh_pipeline_n_chunks(pipeline) : chain->stages;
    const lhi_replica_ring *ring = &job->ring;
    int64_t bits = chain->bits;
    for (uint32_t c = 0; c < ring->n_chunks; c++) {
        bits = ring->gather_bits[c] > bits ? ring->gather_bits[c] : bits;
        bits = ring->reduce_bits[c] > bits ? ring->reduce_bits[c] : bits;
    }
    double ser = (double)bits * 1000 / (double)r->s->slowest_mbps;
    double pass = (double)chain->forward_ns + (double)chain->backward_ns;
    if (ser > 0x1p42)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "a message takes %.3g s in one slot; at most 4398 "
                            "s are possible: raise the rate of a slot",
                            ser / 1e9);
    if (chunks * (chain->microbatches + (double)ring->n_nodes) *
            (2 * ser + pass) >
        0x1p60)
        return lhi_doc_fail(r->doc, node, r->err, LH_EINPUT,
                            "the sum of all passes and messages exceeds 36 "
                            "years; use fewer microbatches");
    return LH_OK;
}

lh_status lhi_optical_job_parse(const lhi_doc *doc, const lhi_node *map,
                                lh_scenario *scenario,
                                lhi_optical_job_spec *out, lh_error *err)
{
    reader r = {.doc = doc, .s = scenario, .job = out, .err = err};
    const lhi_node *node;
    LHI_TRY(lhi_node_check_map(doc, map, err));
    if (lhi_node_find(map, "plan") || lhi_node_find(map, "pipeline"))
        LHI_TRY(read_file(&r, map));
    else
        LHI_TRY(read_chain(&r, map));
    out->name = "";
    if ((node = lhi_node_find(map, "name")) != NULL)
        LHI_TRY(lhi_node_get_string(doc, node, &out->name, err));
    out->name = lhi_arena_strdup(scenario->mem, out->name);
    if (!out->name)
        return lhi_fail_nomem(err);
    if ((node = lhi_node_find(map, "policy")) != NULL) {
        lhi_policy *policy = LHI_NEW(scenario->mem, lhi_policy, 1);
        if (!policy)
            return lhi_fail_nomem(err);
        LHI_TRY(lhi_policy_parse(doc, node, scenario, policy, err));
        out->policy = policy;
    }
    if ((node = lhi_node_find(map, "priority")) != NULL)
        LHI_TRY(
            lhi_node_get_u32(doc, node, 0, MAX_PRIORITY, &out->priority, err));
    LHI_TRY(read_location(&r, map));
    return check_size(&r, map);
}

lh_status lhi_optical_job_parse_plan(const lhi_doc *doc, const lhi_node *node,
                                     lh_scenario *scenario,
                                     lhi_optical_job_spec *out, lh_error *err)
{
    reader r = {.doc = doc, .s = scenario, .job = out, .err = err};
    if (node->kind == LHI_MAP)
        return lhi_doc_fail(doc, node, err, LH_EINPUT,
                            "must be the name of a plan file; for further "
                            "settings, write job: {plan: FILE, ...}");
    out->name = "";
    LHI_TRY(read_plan(&r, node));
    LHI_TRY(set_dimensions(&r, node));
    LHI_TRY(place_by_site(&r, node));
    return check_size(&r, node);
}
