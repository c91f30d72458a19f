/* SPDX-License-Identifier: Apache-2.0 */
/* Builds placed jobs with a pass order from a scenario and a seed. */
#include "network/optical/device_placement.h"
#include "network/optical/gnpy.h"
#include "network/optical/scenario.h"

#include <longhaul/experimental/methods.h>

#include <inttypes.h>
#include <string.h>

/* Places each datacenter of the job's pipeline on a random one of n_nodes
 * network nodes, each on its own; sites[device] is the node. ring[i]: that of
 * the datacenter job->ring_sites[i]. */
static lh_status place_sites_randomly(const lhi_optical_job_spec *job,
                                      lhi_random *random, uint32_t n_nodes,
                                      lhi_arena *mem, uint32_t *sites,
                                      uint32_t *ring, lh_error *err)
{
    const lh_pipeline *p = lhi_optical_job_pipeline(job);
    uint32_t *nodes = LHI_NEW(mem, uint32_t, job->datacenters);
    if (!nodes)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_device_placement_random(random, n_nodes, job->datacenters,
                                        job->datacenters, nodes, err));
    for (uint32_t d = 0; d < job->devices; d++) {
        uint32_t site = lh_pipeline_device_site(p, d);
        sites[d] = nodes[site == LH_NONE ? 0 : site];
    }
    for (uint32_t i = 0; i < job->ring.n_nodes; i++)
        ring[i] = nodes[job->ring_sites[i]];
    return LH_OK;
}

/* Determines each device's network node, sites[device]: as given, one node per
 * datacenter, or random; ordered for the shortest routes if the policy requires
 * it. ring[]: the nodes of the job's replicas, if drawn. */
static lh_status place_devices(const lh_scenario *s,
                               const lhi_optical_job_spec *job,
                               const lhi_policy *policy, lhi_random *random,
                               lhi_arena *mem, uint32_t *sites, uint32_t *ring,
                               lh_error *err)
{
    uint32_t n_nodes = s->topology->n_nodes;
    if (job->placement)
        memcpy(sites, job->placement, job->devices * sizeof *sites);
    else if (job->keep_groups)
        LHI_TRY(
            place_sites_randomly(job, random, n_nodes, mem, sites, ring, err));
    else
        LHI_TRY(lhi_device_placement_random(random, n_nodes, job->datacenters,
                                            job->devices, sites, err));
    if (policy->stage_order)
        LHI_TRY(
            lhi_device_placement_order(s->topology, sites, job->devices, err));
    return LH_OK;
}

/* --- pipelines with the links of this network ----------------------------- */

/* A pipeline's links. */
typedef struct links {
    lh_link *items;
    uint32_t count;
} links;

/* Fails: no mode of the network's transceiver, or no format, reaches from node
 * `a` to node `b`. */
static lh_status fail_unreachable(const lh_scenario *s, uint32_t a, uint32_t b,
                                  lh_error *err)
{
    if (s->network->lines)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no modulation format reaches from node %" PRId64
                        " to node %" PRId64
                        " on any of the candidate paths, even without other "
                        "circuits; place the job on nearer nodes",
                        s->topology->ids[a], s->topology->ids[b]);
    return lhi_fail(err, LH_EINFEASIBLE,
                    "no mode of the transceiver '%.60s' reaches from node "
                    "%" PRId64 " to node %" PRId64 " with a margin of %.4g dB "
                    "on any of the candidate paths",
                    s->network->transceiver->name, s->topology->ids[a],
                    s->topology->ids[b], s->network->margin_db);
}

/* Fails with LH_EINFEASIBLE if a message of the job has no path. */
static lh_status check_paths(const lh_scenario *s,
                             const lhi_optical_run_job *job, lh_error *err)
{
    const lhi_program *p = job->program;
    if (!s->network->transceiver && !s->network->lines)
        return LH_OK;
    for (uint32_t i = 0; i < p->n_messages; i++) {
        uint32_t a, b;
        if (!lhi_program_get_ends(p, job->sites, i, &a, &b))
            continue;
        const lhi_paths *paths = lhi_network_paths(s->network, a, b);
        if (!paths)
            return lhi_fail_nomem(err);
        if (paths->count == 0)
            return fail_unreachable(s, a, b, err);
    }
    return LH_OK;
}

/* Adds links in both directions between devices `a` and `b` to *out if they are
 * on different nodes (sites[]). The links have the shortest route's latency,
 * and the transfer time with the spectrum slots that the policy is likely to
 * assign. */
static lh_status add_links(const lh_scenario *s,
                           const lhi_optical_job_spec *job,
                           const lhi_policy *policy, const uint32_t *sites,
                           uint32_t a, uint32_t b, links *out, lh_error *err)
{
    if (a == b || sites[a] == sites[b])
        return LH_OK;
    const lhi_paths *paths = lhi_network_paths(s->network, sites[a], sites[b]);
    if (!paths)
        return lhi_fail_nomem(err);
    if (paths->count == 0)
        return fail_unreachable(s, sites[a], sites[b], err);
    const lhi_path *best = &paths->paths[0];
    bool sized =
        policy->assignment == LH_SLACK || policy->assignment == LH_CRITICAL;
    uint32_t slots = policy->request_slots * (sized ? 4 : 1);
    lh_link link = {.from = a,
                    .to = b,
                    .latency_ns = best->length_m * LHI_NS_PER_M + s->setup_ns,
                    .transfer_ns = lhi_serialisation_ns(job->chain.bits,
                                                        best->mbps, slots)};
    out->items[out->count++] = link;
    link.from = b;
    link.to = a;
    out->items[out->count++] = link;
    return LH_OK;
}

/* Lists the links of a job's pipeline on this network: its own links inside a
 * site, and links over the network between neighbouring devices. sites[device]:
 * node. */
static lh_status make_links(const lh_scenario *s,
                            const lhi_optical_job_spec *job,
                            const lhi_policy *policy, const uint32_t *sites,
                            lhi_arena *mem, links *out, lh_error *err)
{
    const lh_pipeline *base = lhi_optical_job_pipeline(job);
    uint32_t n = job->devices, n_own = base ? lh_pipeline_n_links(base) : 0;
    *out = (links){.items = LHI_NEW(mem, lh_link, 2 * (size_t)n + n_own)};
    if (!out->items)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_own; i++) {
        const lh_link *own = lh_pipeline_link(base, i);
        uint32_t site = lh_pipeline_device_site(base, own->from);
        if (site != LH_NONE && site == lh_pipeline_device_site(base, own->to) &&
            sites[own->from] == sites[own->to])
            out->items[out->count++] = *own;
    }
    for (uint32_t d = 0; d + 1 < n; d++)
        LHI_TRY(add_links(s, job, policy, sites, d, d + 1, out, err));
    if (n > 2)
        LHI_TRY(add_links(s, job, policy, sites, n - 1, 0, out, err));
    return LH_OK;
}

/* Builds a chain job's equal chunks into *desc by `placement`: one per device
 * (UD), or two per device in a V (Wave) or a Loop. */
static lh_status make_chain_chunks(const lhi_optical_job_spec *job,
                                   lh_placement placement, lhi_arena *mem,
                                   lh_pipeline_desc *desc, lh_error *err)
{
    uint32_t n = job->devices, each = placement == LH_PLACEMENT_UD ? 1 : 2;
    lh_chunk *chunks = LHI_NEW(mem, lh_chunk, (size_t)n * each);
    if (!chunks)
        return lhi_fail_nomem(err);
    int64_t f = job->chain.forward_ns, w = job->weight_ns;
    int64_t d = job->chain.backward_ns - w;
    for (uint32_t c = 0; c < n * each; c++) {
        bool back = c >= n;
        chunks[c] = (lh_chunk){.device = !back ? c
                                         : placement == LH_PLACEMENT_WAVE
                                             ? 2 * n - 1 - c
                                             : c - n,
                               /* The parts add up to the total despite
                                * rounding. */
                               .f_ns = each == 1 ? f
                                       : back    ? f - f / 2
                                                 : f / 2,
                               .d_ns = each == 1 ? d
                                       : back    ? d - d / 2
                                                 : d / 2,
                               .w_ns = each == 1 ? w
                                       : back    ? w - w / 2
                                                 : w / 2,
                               .mem_f = 1,
                               .mem_w = -1};
    }
    int64_t *limits = LHI_NEW(mem, int64_t, n);
    if (!limits)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        limits[i] = (int64_t)job->activations * each;
    desc->memory_limits = job->activations > 0 ? limits : NULL;
    desc->n_chunks = n * each;
    desc->chunks = chunks;
    return LH_OK;
}

/* Runs a scheduling method on a pipeline and converts its schedule into a
 * program. */
static lh_status order_passes(const lh_pipeline *pipeline,
                              const lhi_optical_job_spec *job,
                              const char *method, lhi_arena *mem,
                              lhi_program *out, lh_error *err)
{
    lh_schedule *schedule = NULL;
    LHI_TRY(lh_method_run(method, pipeline, NULL, &schedule, NULL, err));
    lh_status status = lhi_program_build_schedule(
        pipeline, schedule, job->chain.bits, mem, out, err);
    lh_schedule_free(schedule);
    return status;
}

/* Runs schedule method `method` on the job's pipeline with this network's
 * links: shortest-route latencies, and transfer times with the spectrum slots
 * that the policy is likely to assign. sites[device]: node. *out: the program
 * (pass orders and messages). */
static lh_status run_method(const lh_scenario *s,
                            const lhi_optical_job_spec *job,
                            const lhi_policy *policy, const uint32_t *sites,
                            const char *method, lhi_arena *mem,
                            lhi_program *out, lh_error *err)
{
    static const lh_placement placements[] = {
        LH_PLACEMENT_UD, LH_PLACEMENT_WAVE, LH_PLACEMENT_LOOP};
    const lh_pipeline *base = lhi_optical_job_pipeline(job);
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = job->devices,
                             .n_microbatches = job->chain.microbatches};
    links between;
    LHI_TRY(make_links(s, job, policy, sites, mem, &between, err));
    lh_status status = LH_EUNSUPPORTED;
    for (uint32_t i = 0; status == LH_EUNSUPPORTED && i < (base ? 1 : 3); i++) {
        if (base)
            LHI_TRY(lh_pipeline_describe(base, &desc, err));
        else
            LHI_TRY(make_chain_chunks(job, placements[i], mem, &desc, err));
        desc.n_links = between.count;
        desc.links = between.items;
        lh_pipeline *pipeline;
        LHI_TRY(lh_pipeline_make(&desc, &pipeline, err));
        status = order_passes(pipeline, job, method, mem, out, err);
        lh_pipeline_free(pipeline);
    }
    return status;
}

/* Builds a job's program (pass orders and messages) into *out: by the policy's
 * schedule method, else by the job's own method or plan. sites[device]: node.
 */
static lh_status build_program(const lh_scenario *s,
                               const lhi_optical_job_spec *job,
                               const lhi_policy *policy, const uint32_t *sites,
                               lhi_arena *mem, lhi_program *out, lh_error *err)
{
    const char *method = policy->schedule ? policy->schedule : job->schedule;
    const lh_pipeline *pipeline = lhi_optical_job_pipeline(job);
    lhi_chain chain = job->chain;
    lh_status status;
    if (!pipeline && lhi_program_order_parse(method, &chain.order)) {
        if (policy->warm_up_factor > 0)
            chain.warm_up_factor = policy->warm_up_factor;
        return lhi_program_build_chain(&chain, mem, out, err);
    }
    if (method)
        status = run_method(s, job, policy, sites, method, mem, out, err);
    else
        status = lhi_program_build_schedule(pipeline, job->plan->schedule,
                                            chain.bits, mem, out, err);
    if (status != LH_OK)
        return status;
    out->pipeline = pipeline;
    if (job->plan)
        out->after_ns =
            job->plan->best.optimizer_ns + job->plan->best.overhead_ns;
    return LH_OK;
}

/* Adds to a job's program the messages between its replicas on the nodes
 * `nodes`. A chain's sizes are per device, split among its chunks. */
static lh_status add_replicas(const lhi_optical_job_spec *job,
                              const uint32_t *nodes, lhi_arena *mem,
                              lhi_program *program, lh_error *err)
{
    lhi_replica_ring ring = job->ring;
    uint32_t n = 0;
    if (ring.n_nodes == 0)
        return LH_OK;
    ring.nodes = nodes;
    for (uint32_t i = 0; i < program->n_tasks; i++)
        if (program->tasks[i].pass.chunk >= n)
            n = program->tasks[i].pass.chunk + 1;
    if (!job->plan && n > ring.n_chunks) {
        int64_t *gather = LHI_NEW(mem, int64_t, n);
        int64_t *reduce = LHI_NEW(mem, int64_t, n);
        uint32_t each = n / ring.n_chunks;
        if (!gather || !reduce)
            return lhi_fail_nomem(err);
        for (uint32_t c = 0; c < n; c++) {
            gather[c] = (ring.gather_bits[0] + each - 1) / each;
            reduce[c] = (ring.reduce_bits[0] + each - 1) / each;
        }
        ring.gather_bits = gather;
        ring.reduce_bits = reduce;
        ring.n_chunks = n;
    }
    return lhi_program_add_replicas(&ring, mem, program, err);
}

lh_status lhi_scenario_prepare_jobs(const lh_scenario *scenario,
                                    const lhi_policy *policy, uint64_t seed,
                                    lhi_arena *mem, lhi_optical_run_job *jobs,
                                    lh_error *err)
{
    /* One generator places the jobs in sequence. */
    lhi_random random = {.state = seed};
    for (uint32_t i = 0; i < scenario->n_jobs; i++) {
        const lhi_optical_job_spec *job = &scenario->jobs[i];
        const lhi_policy *own = job->policy ? job->policy : policy;
        uint32_t *sites = LHI_NEW(mem, uint32_t, job->devices);
        uint32_t *ring = LHI_NEW(mem, uint32_t, job->ring.n_nodes);
        lhi_program *program = LHI_NEW(mem, lhi_program, 1);
        if (!sites || !ring || !program)
            return lhi_fail_nomem(err);
        LHI_TRY(
            place_devices(scenario, job, own, &random, mem, sites, ring, err));
        LHI_TRY(build_program(scenario, job, own, sites, mem, program, err));
        LHI_TRY(add_replicas(job, job->ring.nodes ? job->ring.nodes : ring, mem,
                             program, err));
        jobs[i] = (lhi_optical_run_job){.program = program,
                                        .policy = own,
                                        .sites = sites,
                                        .priority = job->priority};
        LHI_TRY(check_paths(scenario, &jobs[i], err));
    }
    return LH_OK;
}

lhi_optical_run_input lhi_scenario_run_input(const lh_scenario *scenario,
                                             const lhi_optical_run_job *jobs,
                                             uint64_t seed)
{
    return (lhi_optical_run_input){.network = scenario->network,
                                   .background = &scenario->background,
                                   .failures = scenario->failures,
                                   .jobs = jobs,
                                   .n_jobs = scenario->n_jobs,
                                   .retry_ns = scenario->retry_ns,
                                   .setup_ns = scenario->setup_ns,
                                   .teardown_ns = scenario->teardown_ns,
                                   .iterations = scenario->iterations,
                                   .seed = seed};
}
