/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "schedule/pipeline/pipeline_internal.h"

#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum amount of memory, in the pipeline's unit. */
#define MAX_MEMORY (INT64_C(1) << 60)

/* The description part that an error is about. */
typedef enum error_location { AT_ROOT, AT_CHUNK, AT_LINK } error_location;

/* Reports an error with its line for file input, otherwise with the index. */
static lh_status fail_at(const lhi_pipeline_origin *origin,
                         error_location where, uint32_t index, lh_error *err,
                         const char *format, ...) LHI_PRINTF(5, 6);

/* Fails with LH_EINPUT at the file position for a chunk, a link or the whole
 * document; without a document, without a position. */
static lh_status fail_at(const lhi_pipeline_origin *origin,
                         error_location where, uint32_t index, lh_error *err,
                         const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const lhi_node *node = NULL;
    if (origin && where == AT_CHUNK && origin->chunk_nodes)
        node = origin->chunk_nodes[index];
    if (origin && where == AT_LINK && origin->link_nodes)
        node = origin->link_nodes[index];
    if (node)
        return lhi_doc_fail(origin->doc, node, err, LH_EINPUT, "%s", text);
    if (origin && origin->doc)
        return lhi_doc_fail(origin->doc, origin->doc->root, err, LH_EINPUT,
                            "%s", text);
    if (where == AT_ROOT)
        return lhi_fail(err, LH_EINPUT, "pipeline: %s", text);
    return lhi_fail(err, LH_EINPUT, "pipeline: %s[%" PRIu32 "]: %s",
                    where == AT_CHUNK ? "chunks" : "links", index, text);
}

/* Returns how many copies of the model the chunks contain. */
static uint32_t count_copies(const lh_pipeline_desc *d)
{
    return d->n_copies ? d->n_copies : d->bidirectional ? 2 : 1;
}

/* Checks that the chunks are copies of a model, and that nothing is combined
 * with more than two copies that only one or two support. */
static lh_status check_copies(const lh_pipeline_desc *d,
                              const lhi_pipeline_origin *origin, lh_error *err)
{
    const uint32_t n = count_copies(d);
    if (d->bidirectional && n != 2)
        return fail_at(origin, AT_ROOT, 0, err,
                       "copies: %" PRIu32
                       " copies contradict 'bidirectional', which means two; "
                       "remove one of the keys",
                       n);
    if (d->n_chunks % n != 0)
        return fail_at(origin, AT_ROOT, 0, err,
                       "copies: %" PRIu32 " chunks cannot be %" PRIu32
                       " copies of a model; give a multiple, all chunks of one "
                       "copy after those of another",
                       d->n_chunks, n);
    static const char why[] = "more than two copies cannot be combined with "
                              "data-parallel communication or offload";
    if (n > 2 && (d->n_dp_ops || d->n_enqueue || d->n_initial_gathers))
        return fail_at(origin, AT_ROOT, 0, err, "copies: %s", why);
    for (uint32_t c = 0; n > 2 && c < d->n_chunks; c++)
        if (d->chunks[c].all_gather_ns || d->chunks[c].reduce_scatter_ns ||
            d->chunks[c].offload_ns)
            return fail_at(origin, AT_CHUNK, c, err, "%s", why);
    return LH_OK;
}

/* Checks the device, microbatch, chunk and pass counts against their limits. */
static lh_status check_counts(const lh_pipeline_desc *d,
                              const lhi_pipeline_origin *origin, lh_error *err)
{
    if (d->n_devices < 1 || d->n_devices > LH_MAX_DEVICES)
        return fail_at(origin, AT_ROOT, 0, err,
                       "devices: %" PRIu32 " is out of range; from 1 to %u",
                       d->n_devices, LH_MAX_DEVICES);
    if (d->n_microbatches < 1 || d->n_microbatches > LH_MAX_MICROBATCHES)
        return fail_at(origin, AT_ROOT, 0, err,
                       "microbatches: %" PRIu32
                       " is out of range; from 1 to %u",
                       d->n_microbatches, LH_MAX_MICROBATCHES);
    if (d->n_chunks < 1 || d->n_chunks > LH_MAX_CHUNKS)
        return fail_at(origin, AT_ROOT, 0, err,
                       "chunks: %" PRIu32 " is out of range; from 1 to %u",
                       d->n_chunks, LH_MAX_CHUNKS);
    if ((uint64_t)d->n_chunks * d->n_microbatches > LH_MAX_PASSES)
        return fail_at(origin, AT_ROOT, 0, err,
                       "%" PRIu32 " chunks times %" PRIu32
                       " microbatches are more than %" PRIu64
                       " forward passes, the supported maximum; use fewer "
                       "microbatches",
                       d->n_chunks, d->n_microbatches, LH_MAX_PASSES);
    if (d->bidirectional && d->n_chunks % 2)
        return fail_at(origin, AT_ROOT, 0, err,
                       "bidirectional: %" PRIu32
                       " chunks cannot be two copies of a model; give an even "
                       "number, first the model's chunks, then their copies",
                       d->n_chunks);
    LHI_TRY(check_copies(d, origin, err));
    const bool has_copies = count_copies(d) > 1;
    if (has_copies && (d->n_dp_ops || d->n_enqueue))
        return fail_at(
            origin, AT_ROOT, 0, err,
            "bidirectional: data-parallel operations that passes "
            "launch (operations, groups, elastic) require one "
            "direction; use all_gather and reduce_scatter of chunks");
    if (has_copies && d->n_initial_gathers)
        return fail_at(origin, AT_ROOT, 0, err,
                       "bidirectional: data_parallel.prefetch requires one "
                       "direction; remove it, so that all all-gathers start at "
                       "time 0");
    if (!(d->overlap_f_b >= 0 && d->overlap_f_b <= 1))
        return fail_at(origin, AT_ROOT, 0, err,
                       "overlap: the factor of F+B is out of range; above 0 to "
                       "1");
    if (d->overlap_f_b > 0 && d->n_dp_ops)
        return fail_at(origin, AT_ROOT, 0, err,
                       "overlap: cannot be combined with data-parallel "
                       "operations that passes launch; remove one of them");
    if (d->n_slices > 1 && d->n_microbatches % d->n_slices != 0)
        return fail_at(origin, AT_ROOT, 0, err,
                       "slices: %" PRIu32 " slices do not divide %" PRIu32
                       " microbatches, each of which is one slice of a "
                       "sequence",
                       d->n_slices, d->n_microbatches);
    if (!(d->slice_attention >= 0 && d->slice_attention <= 1) ||
        (d->slice_attention > 0 && d->n_slices <= 1))
        return fail_at(origin, AT_ROOT, 0, err,
                       "slices: 'attention' is out of range; 0 to 1, with at "
                       "least 2 slices");
    if (d->n_slices > 1 &&
        (has_copies || d->overlap_f_b > 0 || d->n_dp_ops || d->n_enqueue))
        return fail_at(origin, AT_ROOT, 0, err,
                       "slices: cannot be combined with two directions, "
                       "'overlap', or data-parallel operations that passes "
                       "launch");
    if (d->receives > LH_RECEIVES_LATE_FD)
        return fail_at(origin, AT_ROOT, 0, err, "receives: unknown kind %d",
                       (int)d->receives);
    return LH_OK;
}

/* Checks whether a duration is negative or above LHI_MAX_TIME_NS. */
static bool is_bad_time(int64_t ns)
{
    return ns < 0 || ns > LHI_MAX_TIME_NS;
}

/* Checks whether a memory change is beyond MAX_MEMORY in either direction. */
static bool is_bad_memory(int64_t memory)
{
    return memory < -MAX_MEMORY || memory > MAX_MEMORY;
}

/* Checks every chunk's device, durations and memory changes. */
static lh_status check_chunks(const lh_pipeline_desc *d,
                              const lhi_pipeline_origin *origin, lh_error *err)
{
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        const lh_chunk *k = &d->chunks[c];
        if (k->device >= d->n_devices)
            return fail_at(origin, AT_CHUNK, c, err,
                           "device %" PRIu32
                           " does not exist; there are %" PRIu32
                           ", counted from 0",
                           k->device, d->n_devices);
        if (is_bad_time(k->f_ns) || is_bad_time(k->d_ns) ||
            is_bad_time(k->w_ns) || is_bad_time(k->all_gather_ns) ||
            is_bad_time(k->reduce_scatter_ns) ||
            is_bad_time(k->dp_latency_ns) || is_bad_time(k->offload_ns))
            return fail_at(origin, AT_CHUNK, c, err,
                           "a time is negative or above 2^52 ns (52 days)");
        if (is_bad_memory(k->mem_f) || is_bad_memory(k->mem_d) ||
            is_bad_memory(k->mem_w) || is_bad_memory(k->mem_static))
            return fail_at(origin, AT_CHUNK, c, err,
                           "a memory amount exceeds 2^60");
        if (k->offload_ns > 0 && !d->joint)
            return fail_at(origin, AT_CHUNK, c, err,
                           "offload: requires backward: joint, because the "
                           "activations kept from D to W cannot be offloaded");
        if (k->offload_ns > 0 && (d->overlap_f_b > 0 || d->n_slices > 1))
            return fail_at(origin, AT_CHUNK, c, err,
                           "offload: cannot be combined with '%s'; remove one "
                           "of them",
                           d->n_slices > 1 ? "slices" : "overlap");
    }
    return LH_OK;
}

/* Checks every link's devices, durations and name. */
static lh_status check_links(const lh_pipeline_desc *d,
                             const lhi_pipeline_origin *origin, lh_error *err)
{
    for (uint32_t i = 0; i < d->n_links; i++) {
        const lh_link *l = &d->links[i];
        if (l->from >= d->n_devices || l->to >= d->n_devices)
            return fail_at(
                origin, AT_LINK, i, err,
                "device %" PRIu32 " does not exist; there are %" PRIu32
                ", counted from 0",
                l->from >= d->n_devices ? l->from : l->to, d->n_devices);
        if (l->from == l->to)
            return fail_at(origin, AT_LINK, i, err,
                           "a link from device %" PRIu32 " to itself; messages "
                           "within a device need no "
                           "link",
                           l->from);
        if (is_bad_time(l->latency_ns) || is_bad_time(l->transfer_ns))
            return fail_at(origin, AT_LINK, i, err,
                           "a time is negative or above 2^52 ns (52 days)");
        if (l->name && !lhi_is_link_name(l->name, strlen(l->name)))
            return fail_at(origin, AT_LINK, i, err,
                           "name: must not be empty, hold commas, quotes or "
                           "control characters, or have blanks around it");
    }
    return LH_OK;
}

/* Checks that the sum of all pass and message times, an upper bound on any
 * makespan, is below 2^53 ns. Up to this limit doubles in trace files are
 * exact. */
static lh_status check_horizon(const lh_pipeline *p,
                               const lhi_pipeline_origin *origin, lh_error *err)
{
    long double total = 0, memory = 0;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        long double each =
            (long double)k->f_ns + (long double)k->d_ns + (long double)k->w_ns;
        each += (long double)p->forward[c].transfer_ns +
                (long double)p->forward[c].latency_ns;
        each += (long double)p->backward[c].transfer_ns +
                (long double)p->backward[c].latency_ns;
        total += each * p->n_microbatches;
        each = 2 * (long double)k->offload_ns;
        total += each * p->n_microbatches + (long double)k->all_gather_ns +
                 (long double)k->reduce_scatter_ns +
                 2 * (long double)k->dp_latency_ns;
        memory += ((long double)llabs(k->mem_f) + (long double)llabs(k->mem_d) +
                   (long double)llabs(k->mem_w)) *
                      p->n_microbatches +
                  (long double)llabs(k->mem_static);
    }
    for (uint32_t i = 0; i < p->n_dp_ops; i++)
        total += (long double)p->dp_ops[i].transfer_ns +
                 (long double)p->chunks[p->dp_ops[i].chunk].dp_latency_ns;
    if (total > 0x1p53L)
        return fail_at(origin, AT_ROOT, 0, err,
                       "the times add up to more than 2^53 ns (104 days), the "
                       "longest supported iteration; use smaller times or "
                       "fewer microbatches");
    if (memory > 4e18L)
        return fail_at(origin, AT_ROOT, 0, err,
                       "the memory amounts add up to more than 2^62; use a "
                       "larger unit");
    return LH_OK;
}

/* Compares links by sending device, receiving device, then position in the
 * array, for qsort(). */
static int compare_links(const void *a, const void *b)
{
    const lh_link *const *x = a, *const *y = b;
    if ((*x)->from != (*y)->from)
        return (*x)->from < (*y)->from ? -1 : 1;
    if ((*x)->to != (*y)->to)
        return (*x)->to < (*y)->to ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

/* Returns the link between two devices by binary search; NULL: none. */
static const lh_link *find_link(const lh_link *const *sorted, uint32_t n,
                                uint32_t from, uint32_t to)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const lh_link *l = sorted[mid];
        if (l->from < from || (l->from == from && l->to < to))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < n && sorted[lo]->from == from && sorted[lo]->to == to)
        return sorted[lo];
    return NULL;
}

/* Compares links by name, then by position in the array, for qsort(). */
static int compare_names(const void *a, const void *b)
{
    const lh_link *const *x = a, *const *y = b;
    int order = strcmp((*x)->name, (*y)->name);
    return order ? order : *x < *y ? -1 : *x > *y;
}

/* Assigns resources to links: links with equal names share a resource,
 * numbered by its first link. */
static lh_status name_resources(lh_pipeline *p, lh_error *err)
{
    const lh_link **sorted = LHI_NEW(p->mem, const lh_link *, p->n_links);
    uint32_t *first = LHI_NEW(p->mem, uint32_t, p->n_links);
    if (!sorted || !first)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_links; i++)
        sorted[i] = &p->links[i];
    if (p->n_links)
        qsort(sorted, p->n_links, sizeof *sorted, compare_names);
    for (uint32_t i = 0; i < p->n_links; i++) {
        uint32_t link = (uint32_t)(sorted[i] - p->links);
        bool same = i > 0 && strcmp(sorted[i]->name, sorted[i - 1]->name) == 0;
        first[link] = same ? first[sorted[i - 1] - p->links] : link;
    }
    for (uint32_t i = 0; i < p->n_links; i++) {
        if (first[i] == i) {
            p->link_resources[i] = p->n_resources;
            p->resource_names[p->n_resources++] = p->links[i].name;
        } else {
            p->link_resources[i] = p->link_resources[first[i]];
        }
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_links; i++) {
        uint32_t link = (uint32_t)(sorted[i] - p->links);
        if (first[link] == link)
            p->resources_by_name[n++] = p->link_resources[link];
    }
    return LH_OK;
}

/* Counts the routes (pairs of neighbouring chunks) over every shared link
 * resource. */
static void count_routes(lh_pipeline *p)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        if (p->forward[c].resource != LH_NONE)
            p->resource_routes[p->forward[c].resource]++;
        if (p->backward[c].resource != LH_NONE)
            p->resource_routes[p->backward[c].resource]++;
    }
}

/* Fails if two links in the sorted list have the same ends; the error refers
 * to the second. */
static lh_status reject_duplicate_links(const lh_pipeline *p,
                                        const lh_link *const *sorted,
                                        const lhi_pipeline_origin *origin,
                                        lh_error *err)
{
    for (uint32_t i = 1; i < p->n_links; i++)
        if (sorted[i]->from == sorted[i - 1]->from &&
            sorted[i]->to == sorted[i - 1]->to)
            return fail_at(origin, AT_LINK, (uint32_t)(sorted[i] - p->links),
                           err,
                           "a second link from device %" PRIu32
                           " to device %" PRIu32 "; keep one",
                           sorted[i]->from, sorted[i]->to);
    return LH_OK;
}

/* Returns the route of messages from device `from` to device `to`. It carries
 * no message if they are equal; without a link between them, transfer time and
 * latency are 0. */
static lhi_route find_route(const lh_pipeline *p, const lh_link *const *sorted,
                            uint32_t from, uint32_t to)
{
    lhi_route route = {.link = LH_NONE, .resource = LH_NONE};
    if (from == to)
        return route;
    route.message = true;
    const lh_link *link = find_link(sorted, p->n_links, from, to);
    if (link) {
        route.link = (uint32_t)(link - p->links);
        route.resource = p->link_resources[route.link];
        route.transfer_ns = link->transfer_ns;
        route.latency_ns = link->latency_ns;
    }
    return route;
}

/* Determines the placement from all chunks' devices: UD, Loop, Wave, BD
 * or other. */
static lh_placement find_placement(const lh_pipeline *p)
{
    uint32_t devices = p->n_devices;
    bool loop = p->n_chunks % devices == 0;
    bool wave = p->n_chunks == 2 * devices;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        loop = loop && p->chunks[c].device == c % devices;
        wave = wave &&
               p->chunks[c].device == (c < devices ? c : 2 * devices - 1 - c);
    }
    if (p->bidirectional)
        return wave && p->n_copies == 2 ? LH_PLACEMENT_BD : LH_PLACEMENT_OTHER;
    if (loop)
        return p->n_chunks == devices ? LH_PLACEMENT_UD : LH_PLACEMENT_LOOP;
    return wave ? LH_PLACEMENT_WAVE : LH_PLACEMENT_OTHER;
}

/* Computes the members of a pipeline that follow from its description: link
 * resources, routes, data-parallel operations and placement. Checks the sum of
 * all times. */
static lh_status derive(lh_pipeline *p, const lh_pipeline_desc *desc,
                        const lhi_pipeline_origin *origin, lh_error *err)
{
    const lh_link **sorted = LHI_NEW(p->mem, const lh_link *, p->n_links);
    p->link_resources = LHI_NEW(p->mem, uint32_t, p->n_links);
    p->resource_names = LHI_NEW(p->mem, const char *, p->n_links);
    p->resources_by_name = LHI_NEW(p->mem, uint32_t, p->n_links);
    p->resource_routes = LHI_NEW(p->mem, uint32_t, p->n_links);
    p->forward = LHI_NEW(p->mem, lhi_route, p->n_chunks);
    p->backward = LHI_NEW(p->mem, lhi_route, p->n_chunks);
    if (!sorted || !p->link_resources || !p->resource_names ||
        !p->resources_by_name || !p->resource_routes || !p->forward ||
        !p->backward)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_links; i++)
        sorted[i] = &p->links[i];
    if (p->n_links)
        qsort(sorted, p->n_links, sizeof *sorted, compare_links);
    LHI_TRY(reject_duplicate_links(p, sorted, origin, err));
    LHI_TRY(name_resources(p, err));
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        uint32_t device = p->chunks[c].device;
        p->forward[c] = p->backward[c] =
            (lhi_route){.link = LH_NONE, .resource = LH_NONE};
        if (!lhi_is_last_chunk(p, c))
            p->forward[c] =
                find_route(p, sorted, device, p->chunks[c + 1].device);
        if (!lhi_is_first_chunk(p, c))
            p->backward[c] =
                find_route(p, sorted, device, p->chunks[c - 1].device);
    }
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        p->has_collectives = p->has_collectives || p->chunks[c].all_gather_ns ||
                             p->chunks[c].reduce_scatter_ns;
        p->offloads = p->offloads || p->chunks[c].offload_ns > 0;
    }
    LHI_TRY(lhi_pipeline_copy_dp_ops(p, desc, origin, err));
    LHI_TRY(lhi_pipeline_copy_dp_links(p, desc, err));
    LHI_TRY(lhi_pipeline_find_shared_links(p, desc, origin, err));
    LHI_TRY(lhi_pipeline_copy_dp_groups(p, desc, err));
    LHI_TRY(lhi_pipeline_copy_prefetch(p, desc, err));
    count_routes(p);
    p->placement = find_placement(p);
    return check_horizon(p, origin, err);
}

/* Copies the links into the pipeline; an unnamed link gets the name
 * '<from>-<to>' from its devices. */
static lh_status copy_links(lh_pipeline *p, const lh_pipeline_desc *d,
                            lh_error *err)
{
    p->links = LHI_NEW(p->mem, lh_link, d->n_links);
    if (!p->links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < d->n_links; i++) {
        p->links[i] = d->links[i];
        char text[32];
        const char *name = d->links[i].name;
        snprintf(text, sizeof text, "%" PRIu32 "-%" PRIu32, d->links[i].from,
                 d->links[i].to);
        p->links[i].name = lhi_arena_strdup(p->mem, name ? name : text);
        if (!p->links[i].name)
            return lhi_fail_nomem(err);
    }
    p->n_links = d->n_links;
    return LH_OK;
}

/* Copies the datacenters, and every device's datacenter, if they are given. */
static lh_status copy_sites(lh_pipeline *p, const lh_pipeline_desc *d,
                            const lhi_pipeline_origin *origin, lh_error *err)
{
    if (!d->device_sites || d->n_sites == 0)
        return LH_OK;
    p->sites = LHI_NEW(p->mem, lh_site, d->n_sites);
    p->device_sites = LHI_NEW(p->mem, uint32_t, d->n_devices);
    if (!p->sites || !p->device_sites)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < d->n_sites; i++) {
        p->sites[i].name = lhi_arena_strdup(p->mem, d->sites[i].name);
        if (!p->sites[i].name)
            return lhi_fail_nomem(err);
    }
    for (uint32_t i = 0; i < d->n_devices; i++) {
        if (d->device_sites[i] >= d->n_sites)
            return fail_at(origin, AT_ROOT, 0, err,
                           "sites: device %" PRIu32 " has no site", i);
        p->device_sites[i] = d->device_sites[i];
    }
    p->n_sites = d->n_sites;
    return LH_OK;
}

/* Copies the memory limits and their unit; fails for a negative limit. */
static lh_status copy_limits(lh_pipeline *p, const lh_pipeline_desc *d,
                             const lhi_pipeline_origin *origin, lh_error *err)
{
    p->memory_limits = LHI_NEW(p->mem, int64_t, d->n_devices);
    p->memory_unit =
        lhi_arena_strdup(p->mem, d->memory_unit ? d->memory_unit : "");
    if (!p->memory_limits || !p->memory_unit)
        return lhi_fail_nomem(err);
    p->has_limits = d->memory_limits != NULL;
    for (uint32_t i = 0; i < d->n_devices; i++) {
        p->memory_limits[i] =
            d->memory_limits ? d->memory_limits[i] : LH_NO_LIMIT;
        if (p->memory_limits[i] < 0)
            return fail_at(origin, AT_ROOT, 0, err,
                           "memory_limit: must not be negative");
    }
    return LH_OK;
}

/* Copies all members of the description into the pipeline's arena. */
static lh_status copy_description(lh_pipeline *p, const lh_pipeline_desc *d,
                                  const lhi_pipeline_origin *origin,
                                  lh_error *err)
{
    p->n_devices = d->n_devices;
    p->n_microbatches = d->n_microbatches;
    p->n_chunks = d->n_chunks;
    p->joint = d->joint;
    p->n_copies = count_copies(d);
    p->bidirectional = p->n_copies > 1;
    p->overlap_f_b = d->overlap_f_b;
    p->n_slices = d->n_slices ? d->n_slices : 1;
    p->slice_attention = d->slice_attention;
    p->chunks = LHI_NEW(p->mem, lh_chunk, d->n_chunks);
    if (!p->chunks)
        return lhi_fail_nomem(err);
    memcpy(p->chunks, d->chunks, d->n_chunks * sizeof *p->chunks);
    p->receives = d->receives;
    LHI_TRY(copy_links(p, d, err));
    LHI_TRY(copy_sites(p, d, origin, err));
    LHI_TRY(copy_limits(p, d, origin, err));
    return derive(p, d, origin, err);
}

const char *const lhi_receives_names[] = {"early", "late", "late-fd", NULL};

/* Returns a receive mode's name (early, late), as in pipeline files; static
 * storage. */
const char *lh_receives_name(lh_receives receives)
{
    return lhi_receives_names[receives];
}

lh_receives lh_pipeline_receives(const lh_pipeline *pipeline)
{
    return pipeline->receives;
}

lh_status lhi_pipeline_make(const lh_pipeline_desc *desc,
                            const lhi_pipeline_origin *origin,
                            lh_pipeline **out, lh_error *err)
{
    LHI_TRY(check_counts(desc, origin, err));
    LHI_TRY(check_chunks(desc, origin, err));
    LHI_TRY(check_links(desc, origin, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_pipeline *p = mem ? LHI_NEW(mem, lh_pipeline, 1) : NULL;
    if (!p) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    p->mem = mem;
    lh_status status = copy_description(p, desc, origin, err);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = p;
    return LH_OK;
}

lh_status lh_pipeline_make(const lh_pipeline_desc *desc, lh_pipeline **out,
                           lh_error *err)
{
    lh_pipeline_desc all;
    LHI_TRY(LHI_OPTIONS_COPY(lh_pipeline_desc, &all, desc, err));
    return lhi_pipeline_make(&all, NULL, out, err);
}

/* Checks whether the first `size` bytes of the description, an older version
 * of the struct, contain every non-zero field. */
static bool fits_size(const lh_pipeline_desc *all, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)all;
    for (size_t i = size; i < sizeof *all; i++)
        if (bytes[i])
            return false;
    return true;
}

lh_status lh_pipeline_describe(const lh_pipeline *pipeline,
                               lh_pipeline_desc *out, lh_error *err)
{
    const lh_pipeline *p = pipeline;
    size_t size = out->size;
    lh_pipeline_desc all;
    memset(&all, 0, sizeof all); /* includes padding between fields */
    LHI_TRY(lhi_options_check_size(out, "lh_pipeline_desc", err));
    all.n_devices = p->n_devices;
    all.n_microbatches = p->n_microbatches;
    all.joint = p->joint;
    all.n_chunks = p->n_chunks;
    all.chunks = p->chunks;
    all.n_links = p->n_links;
    all.links = p->links;
    all.memory_limits = p->has_limits ? p->memory_limits : NULL;
    all.memory_unit = p->memory_unit[0] ? p->memory_unit : NULL;
    all.n_sites = p->n_sites;
    all.sites = p->sites;
    all.device_sites = p->device_sites;
    all.n_dp_ops = p->n_dp_ops;
    all.dp_ops = p->dp_ops;
    all.n_initial_gathers = p->first_gathers;
    all.n_enqueue = p->n_enqueue;
    all.n_dequeue = p->n_dequeue;
    all.enqueue = p->enqueue;
    all.dequeue = p->dequeue;
    all.receives = p->receives;
    all.dp_links = p->dp_links;
    all.dp_piece_ns = p->dp_piece_ns;
    all.dp_priority = p->dp_priority;
    all.bidirectional = p->n_copies == 2;
    all.n_copies = p->n_copies > 2 ? p->n_copies : 0;
    all.overlap_f_b = p->overlap_f_b;
    all.n_slices = p->n_slices > 1 ? p->n_slices : 0;
    all.slice_attention = p->slice_attention;
    if (!fits_size(&all, size))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the pipeline does not fit into an lh_pipeline_desc of "
                        "%zu bytes; compile against this library's header",
                        size);
    memset(out, 0, size);
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
    out->size = size;
    return LH_OK;
}

void lh_pipeline_free(lh_pipeline *pipeline)
{
    if (pipeline)
        lhi_arena_free(pipeline->mem);
}
