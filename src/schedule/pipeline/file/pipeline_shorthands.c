/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline file's shorthand keys: `uniform` for chunks, `datacenters` for
 * links and sites. */
#include "schedule/pipeline/file/pipe_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails if both a shorthand key (`node`) and the key `other`, which it
 * replaces, are present. */
static lh_status reject_both(const lhi_read_context *r, const lhi_node *node,
                             const char *other, lh_error *err)
{
    if (!lhi_node_find(node->parent, other))
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "'%s' and '%s' cannot be combined; keep one", other,
                        node->key);
}

/* --- uniform ------------------------------------------------------------- */

/* The `uniform` values. Times are per device, memory is per chunk. */
typedef struct uniform_text {
    uint32_t placement, chunks_per_device; /* 0: not given */
    lh_chunk model;
} uniform_text;

enum { UD, LOOP, WAVE, BD };
static const char *const placements[] = {"ud", "loop", "wave", "bd", NULL};

/* Sets a missing number of chunks per device to the placement's default. Checks
 * that it suits the placement and that all chunks are within the limit (schema
 * callback). */
static lh_status check_uniform(const lhi_read_context *r, const lhi_node *map,
                               void *it, lh_error *err)
{
    const lhi_pipeline_text *text = r->context;
    uniform_text *u = it;
    if (u->chunks_per_device == 0)
        u->chunks_per_device = u->placement == UD ? 1 : 2;
    uint32_t v = u->chunks_per_device;
    if ((u->placement == UD && v != 1) || (u->placement == WAVE && v % 2) ||
        (u->placement == BD && v != 2))
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "chunks_per_device is %" PRIu32
                            ", but placement %s requires %s",
                            v, placements[u->placement],
                            u->placement == UD   ? "1"
                            : u->placement == BD ? "2"
                                                 : "2, or another even number");
    if ((uint64_t)text->desc.n_devices * v > LH_MAX_CHUNKS)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "%" PRIu32 " devices times %" PRIu32
                            " chunks exceed the limit of %u chunks",
                            text->desc.n_devices, v, LH_MAX_CHUNKS);
    return LH_OK;
}

static const lhi_schema_field uniform_rows[] = {
    {"placement", LHI_ENUM(uniform_text, placement), .names = placements,
     .when = LHI_DEFAULTED},
    {"chunks_per_device", LHI_INTEGER(uniform_text, chunks_per_device),
     .least = 1, .most = LH_MAX_CHUNKS, .when = LHI_DEFAULTED},
    {NULL, LHI_INLINED(uniform_text, model), .table = &lhi_chunk_schema},
};
const lhi_schema lhi_uniform_schema = {
    LHI_ROWS("uniform", uniform_text, uniform_rows), .check = check_uniform};

lh_status lhi_uniform_read(const lhi_read_context *r, const lhi_node *map,
                           void *owner, lh_error *err)
{
    lh_pipeline_desc *d = &((lhi_pipeline_text *)owner)->desc;
    uniform_text u = {0};
    LHI_TRY(reject_both(r, map, "chunks", err));
    LHI_TRY(reject_both(r, map, "bidirectional", err));
    LHI_TRY(lhi_schema_read(r, map, &lhi_uniform_schema, &u, err));
    uint32_t v = u.chunks_per_device, copies = d->n_copies ? d->n_copies : 1;
    uint32_t P = d->n_devices / copies; /* devices of one copy */
    if (d->n_devices % copies != 0 || (d->n_copies && u.placement == BD))
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "uniform: %" PRIu32 " devices cannot be %" PRIu32
                            " copies of a model with placement %s",
                            d->n_devices, copies, placements[u.placement]);
    uint32_t share = u.placement == BD ? 1 : v; /* chunks of one microbatch */
    lh_chunk *chunks = LHI_NEW(r->mem, lh_chunk, (size_t)d->n_devices * v);
    if (!chunks)
        return lhi_fail_nomem(err);
    u.model.f_ns = (u.model.f_ns + share / 2) / share;
    u.model.d_ns = (u.model.d_ns + share / 2) / share;
    u.model.w_ns = (u.model.w_ns + share / 2) / share;
    u.model.offload_ns = (u.model.offload_ns + share / 2) / share;
    for (uint32_t c = 0; c < copies * P * v; c++) {
        const uint32_t copy = c / (P * v), own = c % (P * v);
        bool back = u.placement >= WAVE && own / P % 2;
        chunks[c] = u.model;
        chunks[c].device = copy * P + (back ? P - 1 - own % P : own % P);
    }
    d->bidirectional = u.placement == BD;
    d->n_chunks = copies * P * v;
    d->chunks = chunks;
    return LH_OK;
}

/* --- datacenters --------------------------------------------------------- */

/* The `datacenters` values. */
typedef struct datacenters_text {
    uint32_t count;
    lh_link model; /* between two datacenters */
} datacenters_text;

static const lhi_schema_field datacenters_rows[] = {
    {"count", LHI_INTEGER(datacenters_text, count), .least = 1,
     .most = LH_MAX_DEVICES},
    {"latency", LHI_TIME(datacenters_text, model.latency_ns),
     .when = LHI_DEFAULTED},
    {"transfer", LHI_TIME(datacenters_text, model.transfer_ns),
     .when = LHI_DEFAULTED},
};
const lhi_schema lhi_datacenters_schema = {
    LHI_ROWS("datacenters", datacenters_text, datacenters_rows)};

/* Two devices with neighbouring chunks, in one direction. */
typedef struct pair {
    uint32_t from, to, nth;
} pair;

/* Compares pairs of devices by sending device, receiving device, then position
 * in chunk order, for qsort(). */
static int compare_ends(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* Compares pairs of devices with neighbouring chunks by the index of these
 * chunks, for qsort(). */
static int compare_nth(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* Stores in pairs[] the pairs of devices in different groups that have
 * neighbouring chunks, each pair once (a wave visits each twice), in chunk
 * order. group[d]: device d's datacenter. Returns their number. */
static uint32_t find_pairs(const lh_pipeline_desc *d, const uint32_t *group,
                           pair *pairs)
{
    uint32_t n = 0, kept = 0;
    const uint32_t length = d->n_chunks / (d->n_copies        ? d->n_copies
                                           : d->bidirectional ? 2
                                                              : 1);
    for (uint32_t c = 0; length && c + 1 < d->n_chunks; c++) {
        uint32_t a = d->chunks[c].device, b = d->chunks[c + 1].device;
        if (a >= d->n_devices || b >= d->n_devices)
            continue; /* lhi_pipeline_make() rejects it with its line */
        if (group[a] == group[b] || (c + 1) % length == 0)
            continue;
        pairs[n] = (pair){a, b, n};
        n++;
        pairs[n] = (pair){b, a, n};
        n++;
    }
    if (n == 0)
        return 0;
    qsort(pairs, n, sizeof *pairs, compare_ends);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || pairs[i].from != pairs[kept - 1].from ||
            pairs[i].to != pairs[kept - 1].to)
            pairs[kept++] = pairs[i];
    qsort(pairs, kept, sizeof *pairs, compare_nth);
    return kept;
}

/* Creates a link with the times of `model` for each pair of devices that have
 * neighbouring chunks and are in different groups. group[d]: device d's
 * datacenter. Links between the same ordered pair of datacenters get the same
 * name, and hence share a resource. */
static lh_status link_groups(const lhi_read_context *r, lh_pipeline_desc *d,
                             const uint32_t *group, const lh_link *model,
                             lh_error *err)
{
    size_t most = 2 * (size_t)(d->n_chunks - 1);
    pair *pairs = LHI_NEW(r->mem, pair, most);
    if (!pairs)
        return lhi_fail_nomem(err);
    uint32_t n = find_pairs(d, group, pairs);
    lh_link *links = LHI_NEW(r->mem, lh_link, n);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "dc%" PRIu32 ">dc%" PRIu32,
                 group[pairs[i].from], group[pairs[i].to]);
        links[i] = *model;
        links[i].from = pairs[i].from;
        links[i].to = pairs[i].to;
        links[i].name = lhi_arena_strdup(r->mem, name);
        if (!links[i].name)
            return lhi_fail_nomem(err);
    }
    d->links = links;
    d->n_links = n;
    return LH_OK;
}

lh_status lhi_datacenters_read(const lhi_read_context *r, const lhi_node *map,
                               void *owner, lh_error *err)
{
    lhi_pipeline_text *text = owner;
    datacenters_text t = {0};
    LHI_TRY(reject_both(r, map, "links", err));
    LHI_TRY(lhi_pipeline_require_chunks(r, text, map->parent, err));
    LHI_TRY(lhi_schema_read(r, map, &lhi_datacenters_schema, &t, err));
    uint32_t P = text->desc.n_devices;
    if (P % t.count != 0)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "count"), err, LH_EINPUT,
                            "%" PRIu32
                            " devices cannot be divided into %" PRIu32
                            " equal groups",
                            P, t.count);
    uint32_t *group = LHI_NEW(r->mem, uint32_t, P);
    lh_site *sites = LHI_NEW(r->mem, lh_site, t.count);
    if (!group || !sites)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < P; d++)
        group[d] = d / (P / t.count);
    for (uint32_t i = 0; i < t.count; i++) {
        char name[16];
        snprintf(name, sizeof name, "dc%" PRIu32, i);
        sites[i].name = lhi_arena_strdup(r->mem, name);
        if (!sites[i].name)
            return lhi_fail_nomem(err);
    }
    text->desc.n_sites = t.count;
    text->desc.sites = sites;
    text->desc.device_sites = group;
    return link_groups(r, &text->desc, group, &t.model, err);
}
