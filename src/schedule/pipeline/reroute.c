/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/pipeline/reroute.h"

#include "base/fail.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* State of the division of a lost device's microbatches. A unit is one chunk of
 * one microbatch, number copy * n_chunks + chunk. */
typedef struct division {
    const lh_pipeline *p;
    const lhi_lost_device *lost;
    lhi_arena *mem;
    uint32_t n_replicas, n_devices; /* of all replicas */
    uint32_t n_chunks;              /* of one copy */
    uint32_t n_copies;              /* with one microbatch each */
    uint32_t *home, *device;        /* per unit: before and after the loss */
    bool *can_run;                  /* [chunk * n_devices + device] */
    int64_t *load_ns;               /* work per processor */
} division;

/* Returns the pipeline's chunk for a unit, whose times are those of its copy.
 */
static const lh_chunk *get_chunk(const division *v, uint32_t unit)
{
    const lh_pipeline *p = v->p;
    const uint32_t copy = unit / v->n_chunks % p->n_copies;
    return &p->chunks[copy * v->n_chunks + unit % v->n_chunks];
}

/* Returns the time of a unit's passes. */
static int64_t get_work_ns(const division *v, uint32_t unit)
{
    const lh_chunk *c = get_chunk(v, unit);
    return c->f_ns + c->d_ns + c->w_ns;
}

/* Returns the device whose processor runs the passes of `device`. */
static uint32_t get_processor(const division *v, uint32_t device)
{
    return device == v->lost->device ? v->lost->host : device;
}

/* Assigns each unit to the device that ran it before the loss, and finds the
 * devices that can run each chunk. */
static lh_status assign_homes(division *v, lh_error *err)
{
    const uint32_t n = v->n_copies * v->n_chunks;
    const uint32_t lost = v->lost->device, host = v->lost->host;
    v->home = LHI_NEW(v->mem, uint32_t, n);
    v->device = LHI_NEW(v->mem, uint32_t, n);
    v->can_run = LHI_NEW(v->mem, bool, (size_t)v->n_chunks * v->n_devices);
    v->load_ns = LHI_NEW(v->mem, int64_t, v->n_devices);
    if (!v->home || !v->device || !v->can_run || !v->load_ns)
        return lhi_fail_nomem(err);
    for (uint32_t u = 0; u < n; u++) {
        const uint32_t replica =
            u / v->n_chunks / v->p->n_copies % v->n_replicas;
        v->home[u] = replica * v->p->n_devices + get_chunk(v, u)->device;
        v->can_run[u % v->n_chunks * v->n_devices + v->home[u]] = true;
        if (v->home[u] == lost)
            continue;
        v->device[u] = v->home[u];
        v->load_ns[v->home[u]] += get_work_ns(v, u);
    }
    for (uint32_t c = 0; c < v->n_chunks; c++) {
        bool *can = &v->can_run[c * v->n_devices];
        const bool was_lost = can[lost];
        can[lost] = was_lost && host != LH_NONE && v->lost->has_process;
        if (was_lost && host != LH_NONE && !v->lost->has_process)
            can[host] = true;
        if (was_lost && !memchr(can, true, v->n_devices * sizeof *can))
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "no other device has chunk %" PRIu32
                            " of the lost device %" PRIu32,
                            c, lost);
    }
    return LH_OK;
}

/* Returns the device with chunk `chunk` whose processor has the least work. */
static uint32_t find_least_busy(const division *v, uint32_t chunk)
{
    uint32_t best = LH_NONE;
    for (uint32_t d = 0; d < v->n_devices; d++)
        if (v->can_run[chunk * v->n_devices + d] &&
            (best == LH_NONE || v->load_ns[get_processor(v, d)] <
                                    v->load_ns[get_processor(v, best)]))
            best = d;
    return best;
}

/* Moves one unit from processor `from` to one that is less busy afterwards than
 * `from` is now. Returns false if there is none. */
static bool move_unit(division *v, uint32_t from)
{
    for (uint32_t u = v->n_copies * v->n_chunks; u-- > 0;) {
        if (get_processor(v, v->device[u]) != from)
            continue;
        const uint32_t to = find_least_busy(v, u % v->n_chunks);
        const int64_t work_ns = get_work_ns(v, u);
        if (to == LH_NONE || get_processor(v, to) == from ||
            v->load_ns[get_processor(v, to)] + work_ns >= v->load_ns[from])
            continue;
        v->load_ns[from] -= work_ns;
        v->load_ns[get_processor(v, to)] += work_ns;
        v->device[u] = to;
        return true;
    }
    return false;
}

/* Returns the work of the busiest processor. */
static int64_t find_most_ns(const division *v)
{
    int64_t most_ns = 0;
    for (uint32_t d = 0; d < v->n_devices; d++)
        if (v->load_ns[d] > most_ns)
            most_ns = v->load_ns[d];
    return most_ns;
}

/* Returns the work of the busiest processor if the lost device's host alone
 * runs its units. */
static int64_t find_undivided_ns(const division *v)
{
    const uint32_t host = v->lost->host;
    int64_t most_ns = find_most_ns(v),
            host_ns = host == LH_NONE ? 0 : v->load_ns[host];
    for (uint32_t u = 0; u < v->n_copies * v->n_chunks; u++)
        if (v->home[u] == v->lost->device)
            host_ns += get_work_ns(v, u);
    if (host == LH_NONE)
        return INT64_MAX;
    return host_ns > most_ns ? host_ns : most_ns;
}

/* Divides the lost device's units, and then moves units between processors
 * until no move helps. Each move lowers the sum of squares of the loads. */
static lh_status divide(division *v, lh_error *err)
{
    const int64_t undivided_ns = find_undivided_ns(v);
    for (uint32_t u = 0; u < v->n_copies * v->n_chunks; u++) {
        if (v->home[u] != v->lost->device)
            continue;
        v->device[u] = find_least_busy(v, u % v->n_chunks);
        v->load_ns[get_processor(v, v->device[u])] += get_work_ns(v, u);
    }
    bool moves = true;
    while (moves) {
        moves = false;
        for (uint32_t d = 0; d < v->n_devices; d++)
            moves = move_unit(v, d) || moves;
    }
    if (find_most_ns(v) >= undivided_ns)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "no other device could take over work of device "
                        "%" PRIu32 " from its host",
                        v->lost->device);
    return LH_OK;
}

/* Returns the link from one device to another in links[0..n-1]; NULL: none. */
static const lh_link *find_link(const lh_link *links, uint32_t n, uint32_t from,
                                uint32_t to)
{
    for (uint32_t i = 0; i < n; i++)
        if (links[i].from == from && links[i].to == to)
            return &links[i];
    return NULL;
}

/* Adds the link for messages from unit `from` to unit `to`, unless there is
 * one, with the times of the one between their devices before the loss. */
static void add_link(const division *v, lh_pipeline_desc *desc, lh_link *links,
                     uint32_t from, uint32_t to)
{
    const lh_link *was =
        find_link(links, desc->n_links, v->home[from], v->home[to]);
    if (!was || v->device[from] == v->device[to] ||
        find_link(links, desc->n_links, v->device[from], v->device[to]))
        return;
    links[desc->n_links] = *was;
    links[desc->n_links].from = v->device[from];
    links[desc->n_links++].to = v->device[to];
}

/* Returns the name of a replica's link, its own if there is one replica; NULL:
 * out of memory. */
static const char *name_link(const division *v, uint32_t replica, uint32_t link)
{
    const char *own = v->p->resource_names[v->p->link_resources[link]];
    const size_t size = strlen(own) + sizeof "4294967295:";
    if (v->n_replicas == 1)
        return own;
    char *name = LHI_NEW(v->mem, char, size);
    if (name)
        snprintf(name, size, "%" PRIu32 ":%s", replica, own);
    return name;
}

/* Fills in the links of all replicas and those of rerouted messages. */
static lh_status fill_links(const division *v, lh_pipeline_desc *desc,
                            lh_error *err)
{
    const lh_pipeline *p = v->p;
    const uint32_t n_units = v->n_copies * v->n_chunks;
    lh_link *links =
        LHI_NEW(v->mem, lh_link,
                (size_t)v->n_replicas * p->n_links + 2 * (size_t)n_units);
    if (!links)
        return lhi_fail_nomem(err);
    desc->n_links = 0;
    desc->links = links;
    for (uint32_t r = 0; r < v->n_replicas; r++)
        for (uint32_t i = 0; i < p->n_links; i++) {
            lh_link *link = &links[desc->n_links++];
            *link = p->links[i];
            link->from += r * p->n_devices;
            link->to += r * p->n_devices;
            if (!(link->name = name_link(v, r, i)))
                return lhi_fail_nomem(err);
        }
    for (uint32_t u = 0; u < n_units; u++)
        if (u % v->n_chunks + 1 < v->n_chunks) {
            add_link(v, desc, links, u, u + 1);
            add_link(v, desc, links, u + 1, u);
        }
    return LH_OK;
}

/* Builds the pipeline of all units on their devices. */
static lh_status build(const division *v, lh_pipeline **out, lh_error *err)
{
    const lh_pipeline *p = v->p;
    const uint32_t n_units = v->n_copies * v->n_chunks;
    lh_chunk *chunks = LHI_NEW(v->mem, lh_chunk, n_units);
    int64_t *limits = LHI_NEW(v->mem, int64_t, v->n_devices);
    lh_pipeline_desc desc = {.size = sizeof desc};
    if (!chunks || !limits)
        return lhi_fail_nomem(err);
    for (uint32_t u = 0; u < n_units; u++) {
        chunks[u] = *get_chunk(v, u);
        chunks[u].device = v->device[u];
        chunks[u].all_gather_ns = chunks[u].reduce_scatter_ns = 0;
        chunks[u].dp_latency_ns = 0;
        /* Microbatches of one chunk share its parameters. */
        for (uint32_t before = u % v->n_chunks; before < u;
             before += v->n_chunks)
            if (v->device[before] == v->device[u])
                chunks[u].mem_static = 0;
    }
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    for (uint32_t d = 0; d < v->n_devices; d++)
        limits[d] = p->memory_limits[d % p->n_devices];
    desc.n_devices = v->n_devices;
    desc.n_microbatches = 1;
    desc.bidirectional = false;
    desc.n_copies = v->n_copies;
    desc.n_chunks = n_units;
    desc.chunks = chunks;
    desc.memory_limits = desc.memory_limits ? limits : NULL;
    desc.n_initial_gathers = 0;
    desc.dp_links = NULL;
    if (v->n_replicas > 1) {
        desc.n_sites = 0;
        desc.sites = NULL;
        desc.device_sites = NULL;
    }
    LHI_TRY(fill_links(v, &desc, err));
    return lh_pipeline_make(&desc, out, err);
}

lh_status lhi_pipeline_reroute(const lh_pipeline *pipeline, uint32_t n_replicas,
                               const lhi_lost_device *lost, lh_pipeline **out,
                               lh_error *err)
{
    const lh_pipeline *p = pipeline;
    const uint64_t n_copies =
        (uint64_t)n_replicas * p->n_copies * p->n_microbatches;
    LHI_TRY(lhi_pipeline_require_plain_passes(p, "rerouting", err));
    if (p->n_dp_ops > 0 || p->offloads)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "rerouting does not support offload or data-parallel "
                        "operations that passes launch");
    if (n_copies * p->n_chunks / p->n_copies > LH_MAX_CHUNKS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "rerouting supports at most %u microbatches times "
                        "chunks, not %" PRIu64,
                        LH_MAX_CHUNKS, n_copies * p->n_chunks / p->n_copies);
    division v = {.p = p,
                  .lost = lost,
                  .mem = lhi_arena_make(0),
                  .n_replicas = n_replicas,
                  .n_devices = n_replicas * p->n_devices,
                  .n_chunks = lhi_count_direction_chunks(p),
                  .n_copies = (uint32_t)n_copies};
    if (!v.mem)
        return lhi_fail_nomem(err);
    lh_status status = assign_homes(&v, err);
    if (status == LH_OK)
        status = divide(&v, err);
    if (status == LH_OK)
        status = build(&v, out, err);
    lhi_arena_free(v.mem);
    return status;
}
