/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/1: reading and writing every key. */
#include "schedule/pipeline/file/pipe_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- chunks and links ---------------------------------------------------- */

static const lhi_schema_field chunk_rows[] = {
    {"device", LHI_INTEGER(lh_chunk, device), .most = LH_MAX_DEVICES - 1},
    {NULL, LHI_INLINED_TABLE(lh_chunk), .table = &lhi_chunk_schema},
};
static const lhi_schema chunk_table = {LHI_ROWS("chunk", lh_chunk, chunk_rows)};

static const lhi_schema_field link_rows[] = {
    {"from", LHI_INTEGER(lh_link, from), .most = LH_MAX_DEVICES - 1},
    {"to", LHI_INTEGER(lh_link, to), .most = LH_MAX_DEVICES - 1},
    {"latency", LHI_TIME(lh_link, latency_ns), .when = LHI_DEFAULTED},
    {"transfer", LHI_TIME(lh_link, transfer_ns), .when = LHI_DEFAULTED},
    {"name", LHI_STRING(lh_link, name), .least = 1, .when = LHI_OPTIONAL},
};
static const lhi_schema link_table = {LHI_ROWS("link", lh_link, link_rows)};

/* --- sites and limits ---------------------------------------------------- */

/* Returns the largest valid device index: the upper limit of a file's key
 * (schema callback). */
static int64_t get_last_device(const lhi_read_context *r)
{
    const lhi_pipeline_text *text = r->context;
    return (int64_t)text->desc.n_devices - 1;
}

static const lhi_schema_field site_rows[] = {
    {"name", LHI_STRING(lhi_site_text, name), .least = 1},
    {"devices", LHI_LIST(lhi_site_text, devices, n_devices),
     .item_type = LHI_FIELD_INTEGER, .most = LH_MAX_DEVICES - 1,
     .find_most = get_last_device},
};
static const lhi_schema site_table = {
    LHI_ROWS("site", lhi_site_text, site_rows)};

/* Assigns every device to exactly one datacenter ('sites' key); fails for a
 * device in two or none. */
static lh_status assign_sites(const lhi_read_context *r, const lhi_node *list,
                              lhi_pipeline_text *text, lh_error *err)
{
    uint32_t P = text->desc.n_devices, placed = 0;
    lh_site *sites = LHI_NEW(r->mem, lh_site, text->n_sites);
    uint32_t *at = LHI_NEW(r->mem, uint32_t, P);
    if (!sites || !at)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < P; d++)
        at[d] = LH_NONE;
    for (const lhi_node *n = list->first; n; n = n->next) {
        const lhi_node *devices = lhi_node_find(n, "devices");
        sites[n->index].name = text->sites[n->index].name;
        for (const lhi_node *d = devices->first; d; d = d->next) {
            uint32_t device;
            LHI_TRY(lhi_node_get_u32(r->doc, d, 0, P - 1, &device, err));
            if (at[device] != LH_NONE)
                return lhi_doc_fail(r->doc, d, err, LH_EINPUT,
                                    "device %" PRIu32 " appears in two sites",
                                    device);
            at[device] = n->index;
            placed++;
        }
    }
    if (placed != P)
        return lhi_doc_fail(r->doc, list, err, LH_EINPUT,
                            "%" PRIu32 " of %" PRIu32 " devices have no site",
                            P - placed, P);
    text->desc.n_sites = text->n_sites;
    text->desc.sites = sites;
    text->desc.device_sites = at;
    return LH_OK;
}

/* Lists each datacenter's devices in `text`, for the key `sites`; datacenters
 * without devices are written too. */
static lh_status list_sites(lhi_pipeline_text *text, lhi_arena *mem,
                            lh_error *err)
{
    const lh_pipeline_desc *d = &text->desc;
    lhi_site_text *sites = LHI_NEW(mem, lhi_site_text, d->n_sites);
    uint32_t *first = LHI_NEW(mem, uint32_t, d->n_sites + (size_t)1);
    uint32_t *devices = LHI_NEW(mem, uint32_t, d->n_devices);
    if (!sites || !first || !devices)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; d->n_sites && i < d->n_devices; i++)
        first[d->device_sites[i] + 1]++;
    for (uint32_t i = 0; i < d->n_sites; i++) {
        first[i + 1] += first[i];
        sites[i] = (lhi_site_text){d->sites[i].name, 0, &devices[first[i]]};
    }
    for (uint32_t i = 0; d->n_sites && i < d->n_devices; i++) {
        uint32_t site = d->device_sites[i];
        devices[first[site] + sites[site].n_devices++] = i;
    }
    text->n_sites = d->n_sites;
    text->sites = sites;
    return LH_OK;
}

/* Reads the memory limits (schema callback): one number for all devices, or
 * one each. */
static lh_status read_limits(const lhi_read_context *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_pipeline_desc *d = &((lhi_pipeline_text *)owner)->desc;
    int64_t *limits = LHI_NEW(r->mem, int64_t, d->n_devices);
    if (!limits)
        return lhi_fail_nomem(err);
    bool list = node->kind == LHI_LIST;
    if (list && node->n_items != d->n_devices)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "%" PRIu32 " limits for %" PRIu32
                            " devices; give one number or one per device",
                            node->n_items, d->n_devices);
    const lhi_node *each = list ? node->first : node;
    for (uint32_t i = 0; i < d->n_devices; i++) {
        LHI_TRY(lhi_node_get_int(r->doc, each, 0, INT64_MAX, &limits[i], err));
        each = list ? each->next : node;
    }
    d->memory_limits = limits;
    return LH_OK;
}

/* Writes the memory limits as a list, or null without limits (schema
 * callback). */
static json_t *write_limits(const void *owner, const void *context)
{
    static const lhi_schema_field row = {.item_type = LHI_FIELD_INTEGER,
                                         .width = sizeof(int64_t)};
    const lh_pipeline_desc *d = &((const lhi_pipeline_text *)owner)->desc;
    return d->memory_limits ? lhi_schema_write_list(&row, d->memory_limits,
                                                    d->n_devices, context)
                            : json_null();
}

/* --- overlap -------------------------------------------------------------- */

/* Reads the key `overlap`: the duration of an F and a B that run as one pass,
 * relative to their sum (schema callback). */
static lh_status read_overlap(const lhi_read_context *r, const lhi_node *map,
                              void *owner, lh_error *err)
{
    lh_pipeline_desc *d = &((lhi_pipeline_text *)owner)->desc;
    static const lhi_schema_field rows[] = {
        {"F+B", LHI_REAL(lh_pipeline_desc, overlap_f_b), .high = 1},
    };
    static const lhi_schema table = {
        LHI_ROWS("overlap", lh_pipeline_desc, rows)};
    LHI_TRY(lhi_schema_read(r, map, &table, d, err));
    if (d->overlap_f_b > 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "F+B"), err, LH_EINPUT,
                        "must be above 0; remove the key 'overlap' to run F "
                        "and B one after the other");
}

/* Writes the key `overlap`, the relative duration of F and B that run as one
 * pass (schema callback). */
static json_t *write_overlap(const void *owner, const void *context)
{
    (void)context;
    const lh_pipeline_desc *d = &((const lhi_pipeline_text *)owner)->desc;
    return d->overlap_f_b > 0 ? json_pack("{s:f}", "F+B", d->overlap_f_b)
                              : json_null();
}

/* --- slices --------------------------------------------------------------- */

static const lhi_schema_field slice_rows[] = {
    {"count", LHI_INTEGER(lh_pipeline_desc, n_slices), .least = 2,
     .most = LH_MAX_MICROBATCHES},
    {"attention", LHI_REAL(lh_pipeline_desc, slice_attention), .high = 1,
     .when = LHI_DEFAULTED},
};
static const lhi_schema slice_table = {
    LHI_ROWS("slices", lh_pipeline_desc, slice_rows)};

/* Reads the key `slices`: the parts of a sequence that pass the pipeline like
 * microbatches, and attention's share (schema callback). */
static lh_status read_slices(const lhi_read_context *r, const lhi_node *map,
                             void *owner, lh_error *err)
{
    return lhi_schema_read(r, map, &slice_table,
                           &((lhi_pipeline_text *)owner)->desc, err);
}

/* Writes the key `slices`, the parts into which sequences are split (schema
 * callback). */
static json_t *write_slices(const void *owner, const void *context)
{
    (void)context;
    const lh_pipeline_desc *d = &((const lhi_pipeline_text *)owner)->desc;
    return d->n_slices > 1
               ? json_pack("{s:I, s:f}", "count", (json_int_t)d->n_slices,
                           "attention", d->slice_attention)
               : json_null();
}

/* --- root map ------------------------------------------------------------ */

static const char *const backwards[] = {"split", "joint", NULL};

/* Checks that the document defines chunks and at most one of the keys 'sites'
 * and 'datacenters', and assigns devices to sites (schema callback). */
static lh_status check_pipeline(const lhi_read_context *r, const lhi_node *map,
                                void *it, lh_error *err)
{
    lhi_pipeline_text *text = it;
    const lhi_node *sites = lhi_node_find(map, "sites");
    LHI_TRY(lhi_pipeline_require_chunks(r, text, map, err));
    if (sites && text->desc.n_sites)
        return lhi_doc_fail(r->doc, sites, err, LH_EINPUT,
                            "'datacenters' already defines the sites; keep one "
                            "of the two");
    return sites ? assign_sites(r, sites, text, err) : LH_OK;
}

static const lhi_schema_field pipeline_rows[] = {
    {"longhaul", LHI_CUSTOM(lhi_pipeline_text), .description = "pipeline/1",
     .when = LHI_DEFAULTED},
    {"time_unit", LHI_CUSTOM(lhi_pipeline_text), .description = "ns",
     .when = LHI_DEFAULTED},
    {"microbatches", LHI_INTEGER(lhi_pipeline_text, desc.n_microbatches),
     .least = 1, .most = LH_MAX_MICROBATCHES},
    {"devices", LHI_INTEGER(lhi_pipeline_text, desc.n_devices), .least = 1,
     .most = LH_MAX_DEVICES},
    {"backward", LHI_ENUM(lhi_pipeline_text, desc.joint), .names = backwards,
     .when = LHI_DEFAULTED},
    {"bidirectional", LHI_BOOL(lhi_pipeline_text, desc.bidirectional),
     .when = LHI_OPTIONAL},
    {"copies", LHI_INTEGER(lhi_pipeline_text, desc.n_copies), .least = 2,
     .most = LH_MAX_CHUNKS, LHI_OMIT_IF(lhi_pipeline_text, desc.n_copies, 0)},
    {"overlap", LHI_CUSTOM(lhi_pipeline_text), .read = read_overlap,
     .write = write_overlap, .when = LHI_OPTIONAL},
    {"slices", LHI_CUSTOM(lhi_pipeline_text), .read = read_slices,
     .write = write_slices, .table = &slice_table, .when = LHI_OPTIONAL},
    {"chunks", LHI_LIST(lhi_pipeline_text, desc.chunks, desc.n_chunks),
     .table = &chunk_table, .min_items = 1, .max_items = LH_MAX_CHUNKS,
     .when = LHI_DEFAULTED},
    {"uniform", LHI_CUSTOM(lhi_pipeline_text), .read = lhi_uniform_read,
     .table = &lhi_uniform_schema, .when = LHI_OPTIONAL},
    {"links", LHI_LIST(lhi_pipeline_text, desc.links, desc.n_links),
     .table = &link_table, .when = LHI_DEFAULTED},
    {"datacenters", LHI_CUSTOM(lhi_pipeline_text), .read = lhi_datacenters_read,
     .table = &lhi_datacenters_schema, .when = LHI_OPTIONAL},
    {"sites", LHI_LIST(lhi_pipeline_text, sites, n_sites), .table = &site_table,
     .when = LHI_OPTIONAL},
    {"memory_limit", LHI_CUSTOM(lhi_pipeline_text), .read = read_limits,
     .write = write_limits, .when = LHI_OPTIONAL},
    {"memory_unit", LHI_STRING(lhi_pipeline_text, desc.memory_unit), .least = 1,
     .when = LHI_OPTIONAL},
    {"receives", LHI_ENUM(lhi_pipeline_text, desc.receives),
     .names = lhi_receives_names, .when = LHI_OPTIONAL},
    {"data_parallel", LHI_CUSTOM(lhi_pipeline_text), .read = lhi_dp_read,
     .write = lhi_dp_write, .table = &lhi_dp_schema, .when = LHI_OPTIONAL},
};
const lhi_schema lhi_pipeline_schema = {
    LHI_ROWS("pipeline", lhi_pipeline_text, pipeline_rows),
    .check = check_pipeline};

/* --- reading ------------------------------------------------------------- */

/* Reads a pipeline document into `text`, its file's form, with the
 * positions of keys for later errors. Memory belongs to `mem`. */
static lh_status read_text(const lhi_doc *doc, const lhi_node *map,
                           lhi_arena *mem, lhi_pipeline_text *text,
                           lh_error *err)
{
    lhi_read_context r = {.doc = doc, .mem = mem, .context = text};
    *text = (lhi_pipeline_text){
        .desc.size = sizeof text->desc, .prefetch = -1, .origin.doc = doc};
    LHI_TRY(lhi_node_check_map(doc, map, err));
    LHI_TRY(lhi_node_get_time_unit(doc, map, &r.unit_ns, err));
    LHI_TRY(lhi_schema_read(&r, map, &lhi_pipeline_schema, text, err));
    const lhi_node *chunks = lhi_node_find(map, "chunks");
    const lhi_node *links = lhi_node_find(map, "links");
    if (chunks && !(text->origin.chunk_nodes = lhi_list_nodes(&r, chunks)))
        return lhi_fail_nomem(err);
    if (links && !(text->origin.link_nodes = lhi_list_nodes(&r, links)))
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Fails if the document has a rule for shared links, `piece` (longest slice of
 * a collective) or `priority`, but no data-parallel communication shares a link
 * with messages. */
static lh_status check_shared_rules(const lhi_doc *doc, const lhi_node *map,
                                    const lh_pipeline *p, lh_error *err)
{
    const lhi_node *dp = lhi_node_find(map, "data_parallel");
    if (!dp || dp->kind != LHI_MAP || lh_pipeline_shares_links(p, LH_NONE))
        return LH_OK;
    const lhi_node *rule = lhi_node_find(dp, "piece");
    if (!rule)
        rule = lhi_node_find(dp, "priority");
    if (!rule)
        return LH_OK;
    return lhi_doc_fail(doc, rule, err, LH_EINPUT,
                        "has no effect: no 'link' of data_parallel is the name "
                        "of a link in 'links'; set one, or remove this key");
}

lh_status lhi_pipeline_from_node(const lhi_doc *doc, const lhi_node *map,
                                 lh_pipeline **out, lh_error *err)
{
    lhi_pipeline_text text;
    lh_pipeline *made = NULL;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = read_text(doc, map, mem, &text, err);
    if (status == LH_OK)
        status = lhi_pipeline_make(&text.desc, &text.origin, &made, err);
    if (status == LH_OK)
        status = check_shared_rules(doc, map, made, err);
    if (status == LH_OK)
        *out = made;
    else
        lh_pipeline_free(made);
    lhi_arena_free(mem);
    return status;
}

/* Builds a pipeline from a pipeline/1 document; frees the document also on
 * failure. */
static lh_status build_from_doc(lhi_doc *doc, lh_pipeline **out, lh_error *err)
{
    lh_status status = lhi_doc_check_format(doc, "pipeline", 1, err);
    if (status == LH_OK)
        status = lhi_pipeline_from_node(doc, doc->root, out, err);
    lhi_doc_free(doc);
    return status;
}

lh_status lh_pipeline_parse(const char *text, size_t len, const char *name,
                            lh_pipeline **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_parse(text, len, name, LHI_INPUT_PIPELINE, &doc, err));
    return build_from_doc(doc, out, err);
}

lh_status lh_pipeline_read(const char *path, lh_pipeline **out, lh_error *err)
{
    lhi_doc *doc;
    LHI_TRY(lhi_doc_load(path, LHI_INPUT_PIPELINE, &doc, err));
    return build_from_doc(doc, out, err);
}

/* --- writing ------------------------------------------------------------- */

/* Lists in `text` the links to write to a pipeline file; omits names that equal
 * the default, which is derived from the devices. */
static lh_status list_links(lhi_pipeline_text *text, lhi_arena *mem,
                            lh_error *err)
{
    uint32_t n = text->desc.n_links;
    lh_link *links = LHI_NEW(mem, lh_link, n);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        char plain[32];
        links[i] = text->desc.links[i];
        snprintf(plain, sizeof plain, "%" PRIu32 "-%" PRIu32, links[i].from,
                 links[i].to);
        if (strcmp(plain, links[i].name) == 0)
            links[i].name = NULL;
    }
    text->desc.links = links;
    return LH_OK;
}

/* Lists the chunks to write under 'data_parallel': those with data-parallel
 * times or latency. A device's link name is written with its chunks that have
 * times, or else with the first of its chunks that has operations, which is
 * then listed too. */
static lh_status list_dp_chunks(lhi_pipeline_text *text, lhi_arena *mem,
                                lh_error *err)
{
    const lh_pipeline_desc *d = &text->desc;
    lhi_dp_chunk *list = LHI_NEW(mem, lhi_dp_chunk, d->n_chunks);
    bool *sends = LHI_NEW(mem, bool, d->n_chunks);
    bool *written = LHI_NEW(mem, bool, d->n_devices);
    if (!list || !sends || !written)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < d->n_dp_ops; i++)
        sends[d->dp_ops[i].chunk] = true;
    for (uint32_t i = 0; i < d->n_chunks; i++)
        written[d->chunks[i].device] |=
            d->chunks[i].all_gather_ns || d->chunks[i].reduce_scatter_ns;
    for (uint32_t i = 0; i < d->n_chunks; i++) {
        const lh_chunk *c = &d->chunks[i];
        bool communicates = c->all_gather_ns || c->reduce_scatter_ns;
        bool has_path =
            d->dp_links && (communicates || (sends[i] && !written[c->device]));
        const char *link = has_path ? d->dp_links[c->device] : NULL;
        written[c->device] |= has_path;
        if (communicates || c->dp_latency_ns || link)
            list[text->n_dp_chunks++] =
                (lhi_dp_chunk){i, c->all_gather_ns, c->reduce_scatter_ns,
                               c->dp_latency_ns, link};
    }
    text->dp_chunks = list;
    return LH_OK;
}

/* Converts a pipeline to `text`, the form in which its file is written. The
 * result's memory belongs to the pipeline and to `mem`. */
static lh_status build_text(const lh_pipeline *p, lhi_arena *mem,
                            lhi_pipeline_text *text, lh_error *err)
{
    lh_pipeline_desc *d = &text->desc;
    *text = (lhi_pipeline_text){.desc.size = sizeof *d};
    LHI_TRY(lh_pipeline_describe(p, d, err));
    text->n_ops = d->n_dp_ops;
    text->ops = d->dp_ops;
    text->prefetch = (int64_t)d->n_initial_gathers - 1;
    text->priority = (uint32_t)d->dp_priority;
    text->groups =
        (lhi_dp_groups){d->n_enqueue, d->n_dequeue, d->enqueue, d->dequeue};
    LHI_TRY(list_links(text, mem, err));
    LHI_TRY(list_dp_chunks(text, mem, err));
    return list_sites(text, mem, err);
}

lh_status lhi_pipeline_to_json(const lh_pipeline *pipeline, json_t **out,
                               lh_error *err)
{
    lhi_pipeline_text text;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = build_text(pipeline, mem, &text, err);
    if (status == LH_OK &&
        !(*out = lhi_schema_write(&lhi_pipeline_schema, &text, &text)))
        status = lhi_fail_nomem(err);
    lhi_arena_free(mem);
    return status;
}

lh_status lh_pipeline_format(const lh_pipeline *pipeline, char **text,
                             size_t *len, lh_error *err)
{
    json_t *map;
    LHI_TRY(lhi_pipeline_to_json(pipeline, &map, err));
    return lhi_json_format(map, text, len, err);
}
