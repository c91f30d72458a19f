/* SPDX-License-Identifier: Apache-2.0 */
/* Reading pipeline/1, its shorthands `uniform` and `datacenters` included. */
#include "pipe/file/pipe_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is being read; everything lives in the scratch arena until
 * lhi_pipeline_make() copies it. */
typedef struct reader {
    const lhi_doc *doc;
    const lhi_node *root;
    lhi_arena *scratch;
    int64_t unit_ns;
    lh_pipeline_desc desc;
    lh_chunk *chunks;
    lhi_pipeline_origin origin;
} reader;

#define MEMORY_MOST (INT64_C(1) << 60)

static lh_status read_unit(reader *r, lh_error *err)
{
    static const char *const names[] = {"s", "ms", "us", "ns", NULL};
    static const int64_t units[] = {1000000000, 1000000, 1000, 1};
    uint32_t unit = 0;
    const lhi_node *node = lhi_find(r->root, "time_unit");
    if (node)
        LHI_TRY(lhi_get_choice(r->doc, node, names, &unit, err));
    r->unit_ns = units[unit];
    return LH_OK;
}

static lh_status read_counts(reader *r, lh_error *err)
{
    static const char *const backwards[] = {"split", "joint", NULL};
    const lhi_node *node;
    uint32_t backward = 0;
    LHI_TRY(lhi_need(r->doc, r->root, "microbatches", &node, err));
    LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_MICROBATCHES,
                        &r->desc.n_microbatches, err));
    LHI_TRY(lhi_need(r->doc, r->root, "devices", &node, err));
    LHI_TRY(
        lhi_get_u32(r->doc, node, 1, LH_MAX_DEVICES, &r->desc.n_devices, err));
    if ((node = lhi_find(r->root, "backward")))
        LHI_TRY(lhi_get_choice(r->doc, node, backwards, &backward, err));
    r->desc.joint = backward == 1;
    return LH_OK;
}

static lh_status read_time(const reader *r, const lhi_node *map,
                           const char *key, int64_t *out_ns, lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, key, &node, err));
    return lhi_get_time(r->doc, node, r->unit_ns, out_ns, err);
}

/* Absent: *out_ns stays as it is. */
static lh_status read_optional_time(const reader *r, const lhi_node *map,
                                    const char *key, int64_t *out_ns,
                                    lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    if (!node)
        return LH_OK;
    return lhi_get_time(r->doc, node, r->unit_ns, out_ns, err);
}

/* `memory: {F: 1, D: 0, W: -1, static: 0}`; without it no pass takes any. */
static lh_status read_memory(const reader *r, const lhi_node *chunk,
                             lh_chunk *out, lh_error *err)
{
    static const char *const keys[] = {"F", "D", "W", "static", NULL};
    int64_t *const values[] = {&out->mem_f, &out->mem_d, &out->mem_w,
                               &out->mem_static};
    const lhi_node *memory = lhi_find(chunk, "memory"), *node;
    if (!memory)
        return LH_OK;
    LHI_TRY(lhi_known_keys(r->doc, memory, keys, err));
    for (int i = 0; keys[i]; i++)
        if ((node = lhi_find(memory, keys[i])))
            LHI_TRY(lhi_get_int(r->doc, node, i == 3 ? 0 : -MEMORY_MOST,
                                MEMORY_MOST, values[i], err));
    return LH_OK;
}

static lh_status read_chunk(const reader *r, const lhi_node *node,
                            lh_chunk *out, lh_error *err)
{
    static const char *const keys[] = {"device", "F", "D", "W", "memory", NULL};
    const lhi_node *device;
    LHI_TRY(lhi_known_keys(r->doc, node, keys, err));
    LHI_TRY(lhi_need(r->doc, node, "device", &device, err));
    LHI_TRY(
        lhi_get_u32(r->doc, device, 0, LH_MAX_DEVICES - 1, &out->device, err));
    LHI_TRY(read_time(r, node, "F", &out->f_ns, err));
    LHI_TRY(read_time(r, node, "D", &out->d_ns, err));
    LHI_TRY(read_time(r, node, "W", &out->w_ns, err));
    return read_memory(r, node, out, err);
}

/* The children of a list as an array, for messages about them. */
static const lhi_node **children(const reader *r, const lhi_node *list)
{
    const lhi_node **nodes =
        LHI_NEW(r->scratch, const lhi_node *, list->n_items);
    uint32_t i = 0;
    if (nodes)
        for (const lhi_node *n = list->first; n; n = n->next)
            nodes[i++] = n;
    return nodes;
}

static lh_status read_chunks(reader *r, const lhi_node *list, lh_error *err)
{
    LHI_TRY(lhi_want_list(r->doc, list, err));
    if (list->n_items < 1 || list->n_items > LH_MAX_CHUNKS)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "must hold from 1 to %u chunks, not %" PRIu32,
                            LH_MAX_CHUNKS, list->n_items);
    r->desc.n_chunks = list->n_items;
    r->chunks = LHI_NEW(r->scratch, lh_chunk, list->n_items);
    r->origin.chunk_nodes = children(r, list);
    if (!r->chunks || !r->origin.chunk_nodes)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(read_chunk(r, n, &r->chunks[n->index], err));
    return LH_OK;
}

/* `uniform`: times are per device, a chunk takes 1/v of them. Memory is per
 * chunk. */
static lh_status read_uniform(reader *r, const lhi_node *map, lh_error *err)
{
    static const char *const keys[] = {
        "placement", "chunks_per_device", "F", "D", "W", "memory", NULL};
    static const char *const placements[] = {"ud", "loop", "wave", NULL};
    const lhi_node *node;
    uint32_t placement = 0, v = 0, P = r->desc.n_devices;
    lh_chunk model = {0};
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    if ((node = lhi_find(map, "placement")))
        LHI_TRY(lhi_get_choice(r->doc, node, placements, &placement, err));
    v = placement == 0 ? 1 : 2;
    if ((node = lhi_find(map, "chunks_per_device")))
        LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_CHUNKS, &v, err));
    if ((placement == 0 && v != 1) || (placement == 2 && v % 2))
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "chunks_per_device is %" PRIu32
                            ", but placement %s means %s",
                            v, placements[placement],
                            placement == 0 ? "1" : "2, or another even number");
    if ((uint64_t)P * v > LH_MAX_CHUNKS)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "%" PRIu32 " devices times %" PRIu32
                            " chunks are more than %u chunks",
                            P, v, LH_MAX_CHUNKS);
    LHI_TRY(read_time(r, map, "F", &model.f_ns, err));
    LHI_TRY(read_time(r, map, "D", &model.d_ns, err));
    LHI_TRY(read_time(r, map, "W", &model.w_ns, err));
    LHI_TRY(read_memory(r, map, &model, err));
    model.f_ns = (model.f_ns + v / 2) / v;
    model.d_ns = (model.d_ns + v / 2) / v;
    model.w_ns = (model.w_ns + v / 2) / v;
    r->desc.n_chunks = P * v;
    r->chunks = LHI_NEW(r->scratch, lh_chunk, r->desc.n_chunks);
    if (!r->chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < r->desc.n_chunks; c++) {
        r->chunks[c] = model;
        bool back = placement == 2 && c / P % 2;
        r->chunks[c].device = back ? P - 1 - c % P : c % P;
    }
    return LH_OK;
}

static lh_status read_link(const reader *r, const lhi_node *node, lh_link *out,
                           lh_error *err)
{
    static const char *const keys[] = {"from",     "to",   "latency",
                                       "transfer", "name", NULL};
    const lhi_node *value;
    LHI_TRY(lhi_known_keys(r->doc, node, keys, err));
    LHI_TRY(lhi_need(r->doc, node, "from", &value, err));
    LHI_TRY(lhi_get_u32(r->doc, value, 0, LH_MAX_DEVICES - 1, &out->from, err));
    LHI_TRY(lhi_need(r->doc, node, "to", &value, err));
    LHI_TRY(lhi_get_u32(r->doc, value, 0, LH_MAX_DEVICES - 1, &out->to, err));
    LHI_TRY(read_optional_time(r, node, "latency", &out->latency_ns, err));
    LHI_TRY(read_optional_time(r, node, "transfer", &out->transfer_ns, err));
    if ((value = lhi_find(node, "name")))
        LHI_TRY(lhi_get_string(r->doc, value, &out->name, err));
    return LH_OK;
}

static lh_status read_links(reader *r, const lhi_node *list, lh_error *err)
{
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_link *links = LHI_NEW(r->scratch, lh_link, list->n_items);
    r->origin.link_nodes = children(r, list);
    if (!links || !r->origin.link_nodes)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(read_link(r, n, &links[n->index], err));
    r->desc.links = links;
    r->desc.n_links = list->n_items;
    return LH_OK;
}

/* Two devices with neighbouring chunks, in one direction. */
typedef struct pair {
    uint32_t from, to, nth;
} pair;

static int compare_ends(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

static int compare_nth(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* The pairs of devices in different groups that neighbouring chunks make, each
 * once (a wave has them all twice), in the order of the chunks. */
static uint32_t pair_up(const reader *r, const uint32_t *group, pair *pairs)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t c = 0; c + 1 < r->desc.n_chunks; c++) {
        uint32_t a = r->chunks[c].device, b = r->chunks[c + 1].device;
        if (a >= r->desc.n_devices || b >= r->desc.n_devices)
            continue; /* refused with its line by lhi_pipeline_make() */
        if (group[a] == group[b])
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

/* One link per pair of neighbouring chunks in different groups; those of one
 * ordered pair of groups share a name, and so the link. */
static lh_status link_groups(reader *r, const uint32_t *group,
                             const lh_link *model, lh_error *err)
{
    size_t most = 2 * (size_t)(r->desc.n_chunks - 1);
    pair *pairs = LHI_NEW(r->scratch, pair, most);
    if (!pairs)
        return lhi_fail_nomem(err);
    uint32_t n = pair_up(r, group, pairs);
    lh_link *links = LHI_NEW(r->scratch, lh_link, n);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "dc%" PRIu32 "-dc%" PRIu32,
                 group[pairs[i].from], group[pairs[i].to]);
        links[i] = *model;
        links[i].from = pairs[i].from;
        links[i].to = pairs[i].to;
        links[i].name = lhi_arena_strdup(r->scratch, name);
        if (!links[i].name)
            return lhi_fail_nomem(err);
    }
    r->desc.links = links;
    r->desc.n_links = n;
    return LH_OK;
}

static lh_status read_datacenters(reader *r, const lhi_node *map, lh_error *err)
{
    static const char *const keys[] = {"count", "latency", "transfer", NULL};
    const lhi_node *node;
    uint32_t count, P = r->desc.n_devices;
    lh_link model = {0};
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(lhi_need(r->doc, map, "count", &node, err));
    LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_DEVICES, &count, err));
    if (P % count != 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "%" PRIu32 " devices do not split into %" PRIu32
                            " equal groups",
                            P, count);
    LHI_TRY(read_optional_time(r, map, "latency", &model.latency_ns, err));
    LHI_TRY(read_optional_time(r, map, "transfer", &model.transfer_ns, err));
    uint32_t *group = LHI_NEW(r->scratch, uint32_t, P);
    lh_site *sites = LHI_NEW(r->scratch, lh_site, count);
    if (!group || !sites)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < P; d++)
        group[d] = d / (P / count);
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "dc%" PRIu32, i);
        sites[i].name = lhi_arena_strdup(r->scratch, name);
        if (!sites[i].name)
            return lhi_fail_nomem(err);
    }
    r->desc.n_sites = count;
    r->desc.sites = sites;
    r->desc.device_sites = group;
    return link_groups(r, group, &model, err);
}

/* `sites: [{name: west, devices: [0, 1]}, ...]`: every device at one. */
static lh_status read_sites(reader *r, const lhi_node *list, lh_error *err)
{
    static const char *const keys[] = {"name", "devices", NULL};
    uint32_t P = r->desc.n_devices, placed = 0;
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_site *sites = LHI_NEW(r->scratch, lh_site, list->n_items);
    uint32_t *at = LHI_NEW(r->scratch, uint32_t, P);
    if (!sites || !at)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < P; d++)
        at[d] = LH_NONE;
    for (const lhi_node *n = list->first; n; n = n->next) {
        const lhi_node *node;
        LHI_TRY(lhi_known_keys(r->doc, n, keys, err));
        LHI_TRY(lhi_need(r->doc, n, "name", &node, err));
        LHI_TRY(lhi_get_string(r->doc, node, &sites[n->index].name, err));
        LHI_TRY(lhi_need(r->doc, n, "devices", &node, err));
        LHI_TRY(lhi_want_list(r->doc, node, err));
        for (const lhi_node *d = node->first; d; d = d->next) {
            uint32_t device;
            LHI_TRY(lhi_get_u32(r->doc, d, 0, P - 1, &device, err));
            if (at[device] != LH_NONE)
                return lhi_doc_fail(r->doc, d, err, LH_EINPUT,
                                    "device %" PRIu32 " is at two sites",
                                    device);
            at[device] = n->index;
            placed++;
        }
    }
    if (placed != P)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "%" PRIu32 " of %" PRIu32 " devices are at no site",
                            P - placed, P);
    r->desc.n_sites = list->n_items;
    r->desc.sites = sites;
    r->desc.device_sites = at;
    return LH_OK;
}

static lh_status read_limits(reader *r, const lhi_node *node, lh_error *err)
{
    uint32_t P = r->desc.n_devices;
    int64_t *limits = LHI_NEW(r->scratch, int64_t, P);
    if (!limits)
        return lhi_fail_nomem(err);
    if (node->kind == LHI_LIST) {
        if (node->n_items != P)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "%" PRIu32 " limits for %" PRIu32
                                " devices; give one number or one per device",
                                node->n_items, P);
        for (const lhi_node *n = node->first; n; n = n->next)
            LHI_TRY(
                lhi_get_int(r->doc, n, 0, INT64_MAX, &limits[n->index], err));
    } else {
        LHI_TRY(lhi_get_int(r->doc, node, 0, INT64_MAX, &limits[0], err));
        for (uint32_t d = 1; d < P; d++)
            limits[d] = limits[0];
    }
    r->desc.memory_limits = limits;
    return LH_OK;
}

/* Exactly one of two keys, or at most one. */
static lh_status
read_either(reader *r, const char *a,
            lh_status (*read_a)(reader *, const lhi_node *, lh_error *),
            const char *b,
            lh_status (*read_b)(reader *, const lhi_node *, lh_error *),
            bool needed, lh_error *err)
{
    const lhi_node *node_a = lhi_find(r->root, a);
    const lhi_node *node_b = lhi_find(r->root, b);
    if (node_a && node_b)
        return lhi_doc_fail(r->doc, node_b, err, LH_EINPUT,
                            "'%s' and '%s' exclude each other; keep one", a, b);
    if (node_a)
        return read_a(r, node_a, err);
    if (node_b)
        return read_b(r, node_b, err);
    if (needed)
        return lhi_doc_fail(r->doc, r->root, err, LH_EINPUT,
                            "give '%s' or '%s'", a, b);
    return LH_OK;
}

static lh_status read_all(reader *r, lh_error *err)
{
    static const char *const keys[] = {
        "longhaul",      "time_unit", "microbatches", "devices",
        "backward",      "chunks",    "uniform",      "links",
        "datacenters",   "sites",     "memory_limit", "memory_unit",
        "data_parallel", NULL};
    const lhi_node *node;
    LHI_TRY(lhi_known_keys(r->doc, r->root, keys, err));
    LHI_TRY(read_unit(r, err));
    LHI_TRY(read_counts(r, err));
    LHI_TRY(read_either(r, "chunks", read_chunks, "uniform", read_uniform, true,
                        err));
    LHI_TRY(read_either(r, "links", read_links, "datacenters", read_datacenters,
                        false, err));
    if ((node = lhi_find(r->root, "sites"))) {
        if (r->desc.n_sites)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "'datacenters' has named the sites already; "
                                "keep one of the two");
        LHI_TRY(read_sites(r, node, err));
    }
    if ((node = lhi_find(r->root, "memory_limit")))
        LHI_TRY(read_limits(r, node, err));
    if ((node = lhi_find(r->root, "memory_unit")))
        LHI_TRY(lhi_get_string(r->doc, node, &r->desc.memory_unit, err));
    if ((node = lhi_find(r->root, "data_parallel")))
        LHI_TRY(lhi_dp_read(r->doc, node, r->unit_ns, r->scratch, &r->desc,
                            r->chunks, &r->origin, err));
    r->desc.chunks = r->chunks;
    return LH_OK;
}

lh_status lhi_pipeline_from_node(const lhi_doc *doc, const lhi_node *map,
                                 lh_pipeline **out, lh_error *err)
{
    lhi_arena *scratch = lhi_arena_make(0);
    if (!scratch)
        return lhi_fail_nomem(err);
    reader r = {.doc = doc, .root = map, .scratch = scratch};
    r.desc.size = sizeof r.desc;
    r.origin.doc = doc;
    lh_status status = read_all(&r, err);
    if (status == LH_OK)
        status = lhi_pipeline_make(&r.desc, &r.origin, out, err);
    lhi_arena_free(scratch);
    return status;
}

static lh_status from_doc(lhi_doc *doc, lh_pipeline **out, lh_error *err)
{
    lh_status status = lhi_want_format(doc, "pipeline", 1, err);
    if (status == LH_OK)
        status = lhi_pipeline_from_node(doc, doc->root, out, err);
    lhi_doc_free(doc);
    return status;
}

lh_status lh_pipeline_parse(const char *text, size_t len, const char *name,
                            lh_pipeline **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, &doc, err));
    return from_doc(doc, out, err);
}

lh_status lh_pipeline_read(const char *path, lh_pipeline **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, &doc, err));
    return from_doc(doc, out, err);
}
