/* SPDX-License-Identifier: Apache-2.0 */
/* `data_parallel`: a chunk list, or a map with chunks, operations launched by
 * passes, and related keys. */
#include "schedule/pipeline/file/pipe_file.h"
#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns the largest valid chunk index: the upper limit of a file's key
 * (schema callback). */
static int64_t get_last_chunk(const lhi_read_context *r)
{
    const lhi_pipeline_text *text = r->context;
    return (int64_t)text->desc.n_chunks - 1;
}

/* --- chunks -------------------------------------------------------------- */

static const lhi_schema_field chunk_rows[] = {
    {"chunk", LHI_INTEGER(lhi_dp_chunk, chunk), .most = LH_MAX_CHUNKS - 1,
     .find_most = get_last_chunk},
    {"all_gather", LHI_TIME(lhi_dp_chunk, all_gather_ns),
     .when = LHI_DEFAULTED},
    {"reduce_scatter", LHI_TIME(lhi_dp_chunk, reduce_scatter_ns),
     .when = LHI_DEFAULTED},
    {"latency", LHI_TIME(lhi_dp_chunk, latency_ns), .when = LHI_DEFAULTED},
    {"link", LHI_STRING(lhi_dp_chunk, link), .least = 1, .when = LHI_OPTIONAL},
};
static const lhi_schema chunk_table = {
    LHI_ROWS("communication of a chunk", lhi_dp_chunk, chunk_rows)};

/* Copies the data-parallel times that `list` gives per chunk into the
 * description's chunks; LH_EINPUT: a chunk appears twice. */
static lh_status set_chunks(const lhi_read_context *r, const lhi_node *list,
                            lhi_pipeline_text *text, lh_error *err)
{
    lh_chunk *chunks = lhi_pipeline_copy_chunks(r, text);
    bool *seen = LHI_NEW(r->mem, bool, text->desc.n_chunks);
    if (!chunks || !seen)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next) {
        const lhi_dp_chunk *from = &text->dp_chunks[n->index];
        lh_chunk *chunk = &chunks[from->chunk];
        if (seen[from->chunk])
            return lhi_doc_fail(
                r->doc, lhi_node_find(n, "chunk"), err, LH_EINPUT,
                "chunk %" PRIu32 " appears twice; keep one", from->chunk);
        seen[from->chunk] = true;
        chunk->all_gather_ns = from->all_gather_ns;
        chunk->reduce_scatter_ns = from->reduce_scatter_ns;
        chunk->dp_latency_ns = from->latency_ns;
    }
    return LH_OK;
}

/* Checks whether chunk it->chunk has data-parallel communication: all-gather or
 * reduce-scatter times in `it`, or operations in `text`. */
static bool has_communication(const lhi_pipeline_text *text,
                              const lhi_dp_chunk *it)
{
    bool any = it->all_gather_ns > 0 || it->reduce_scatter_ns > 0;
    for (uint32_t i = 0; !any && i < text->n_ops; i++)
        any = text->ops[i].chunk == it->chunk;
    return any;
}

/* Copies the data-parallel link name of one chunk's map `item` to links[] of
 * its device. LH_EINPUT: an invalid name, a chunk without data-parallel
 * communication, or another name for the device. */
static lh_status set_link(const lhi_read_context *r, const lhi_node *item,
                          const lhi_pipeline_text *text, const char **links,
                          lh_error *err)
{
    const lhi_dp_chunk *from = &text->dp_chunks[item->index];
    const uint32_t device = text->desc.chunks[from->chunk].device;
    const lhi_node *node = lhi_node_find(item, "link");
    if (!from->link || device >= text->desc.n_devices)
        return LH_OK; /* rejected later, with the chunks */
    const char **link = &links[device];
    if (!lhi_is_link_name(from->link, strlen(from->link)))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "must not hold commas, quotes or control "
                            "characters, or have blanks around it");
    if (!has_communication(text, from))
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "has no effect: chunk %" PRIu32
                            " has no communication; set 'all_gather' or "
                            "'reduce_scatter', or remove it",
                            from->chunk);
    if (*link && strcmp(*link, from->link) != 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "another chunk of device %" PRIu32
                            " uses '%s'; a device has only one link",
                            device, *link);
    *link = from->link;
    return LH_OK;
}

/* Sets the data-parallel link names of all devices from a list with one map per
 * chunk. The operations must have been read. */
static lh_status set_links(const lhi_read_context *r, const lhi_node *list,
                           lhi_pipeline_text *text, lh_error *err)
{
    const char **links = LHI_NEW(r->mem, const char *, text->desc.n_devices);
    if (!links)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(set_link(r, n, text, links, err));
    text->desc.dp_links = links;
    return LH_OK;
}

/* --- operations ---------------------------------------------------------- */

/* Parses a pass reference such as "4B0", chunk 4's backward on microbatch 0,
 * into the lh_dp_pass `member` (schema callback). Returns false if it is
 * none. */
static bool parse_point(const char *text, void *member)
{
    lh_pass pass;
    if (!lhi_parse_pass(text, &pass) ||
        (pass.kind != LH_F && pass.kind != LH_B))
        return false;
    *(lh_dp_pass *)member =
        (lh_dp_pass){pass.chunk, pass.microbatch, pass.kind == LH_B};
    return true;
}

/* Writes a pass reference (`member` points to an lh_dp_pass), such as '3F0' or
 * '3B0', to `text` and returns it. */
static const char *print_point(const void *member, char *text)
{
    const lh_dp_pass *point = member;
    snprintf(text, LHI_TEXT_FORM_SIZE, "%" PRIu32 "%c%" PRIu32, point->chunk,
             point->backward ? 'B' : 'F', point->microbatch);
    return text;
}

/* Reads a bucket's index and the bucket count, as in "0/5" (schema
 * callback). */
static lh_status read_bucket(const lhi_read_context *r, const lhi_node *node,
                             void *owner, lh_error *err)
{
    lh_dp_op *op = owner;
    const char *text;
    LHI_TRY(lhi_node_get_string(r->doc, node, &text, err));
    const char *end = text + strlen(text);
    const char *at = lhi_scan_number(text, end, LH_NONE, &op->bucket);
    if (at && *at == '/' &&
        lhi_scan_number(at + 1, end, LH_NONE, &op->n_buckets) == end)
        return LH_OK;
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "must be an index and a count, such as 0/5");
}

/* Writes an operation's bucket as '<bucket>/<buckets>' (schema callback). */
static json_t *write_bucket(const void *owner, const void *context)
{
    const lh_dp_op *op = owner;
    (void)context;
    return json_sprintf("%" PRIu32 "/%" PRIu32, op->bucket, op->n_buckets);
}

/* Reads the share of the chunk's parameters that an operation carries; 1 (the
 * whole) if absent (schema callback). */
static lh_status read_share(const lhi_read_context *r, const lhi_node *node,
                            void *owner, lh_error *err)
{
    lh_dp_op *op = owner;
    return lhi_node_get_number(r->doc, node, 0, 1, &op->share, err);
}

/* Writes the share of the chunk's parameters that an operation carries, or
 * null if it is the whole or unspecified (schema callback). */
static json_t *write_share(const void *owner, const void *context)
{
    const lh_dp_op *op = owner;
    (void)context;
    return op->share > 0 && op->share < 1 ? json_real(op->share) : json_null();
}

/* Reads a data-parallel operation's kind; the share becomes 1 until its key is
 * read (schema callback). */
static lh_status read_kind(const lhi_read_context *r, const lhi_node *node,
                           void *owner, lh_error *err)
{
    lh_dp_op *op = owner;
    uint32_t kind;
    LHI_TRY(lhi_node_get_choice(r->doc, node, lhi_dp_kind_names, &kind, err));
    op->kind = (lh_dp_kind)(kind + LH_DP_AGO);
    op->share = 1;
    return LH_OK;
}

/* Writes a data-parallel operation's kind, or null if unspecified (schema
 * callback). */
static json_t *write_kind(const void *owner, const void *context)
{
    const lh_dp_op *op = owner;
    (void)context;
    return op->kind == LH_DP_ANY ? json_null()
                                 : json_string(lh_dp_kind_name(op->kind));
}

/* Sets a data-parallel operation's defaults before its keys are read: one
 * bucket, needed by no pass (schema callback). */
static void start_operation(const lhi_read_context *r, void *it)
{
    lh_dp_op *op = it;
    (void)r;
    op->n_buckets = 1;
    op->needed_by.chunk = LH_NONE;
}

/* Checks that a data-parallel operation has exactly one of its two times, and a
 * kind if it has a share (schema callback). */
static lh_status check_operation(const lhi_read_context *r, const lhi_node *map,
                                 void *it, lh_error *err)
{
    lh_dp_op *op = it;
    bool scatter = lhi_node_find(map, "reduce_scatter");
    if (!lhi_node_find(map, "all_gather") == !scatter)
        return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                            "give one of 'all_gather' and 'reduce_scatter'");
    op->is_reduce_scatter = scatter;
    if (lhi_node_find(map, "share") && op->kind == LH_DP_ANY)
        return lhi_doc_fail(r->doc, lhi_node_find(map, "share"), err, LH_EINPUT,
                            "requires 'kind'");
    return LH_OK;
}

/* Form of a pass in errors. */
#define POINT_FORM "a chunk, F or B, and a microbatch, such as 4B0"

static const lhi_schema_field operation_rows[] = {
    {"chunk", LHI_INTEGER(lh_dp_op, chunk), .most = LH_MAX_CHUNKS - 1,
     .find_most = get_last_chunk},
    {"all_gather", LHI_TIME(lh_dp_op, transfer_ns),
     LHI_OMIT_IF(lh_dp_op, is_reduce_scatter, true)},
    {"reduce_scatter", LHI_TIME(lh_dp_op, transfer_ns),
     LHI_OMIT_IF(lh_dp_op, is_reduce_scatter, false)},
    {"kind", LHI_CUSTOM(lh_dp_op), .read = read_kind, .write = write_kind,
     .when = LHI_OPTIONAL},
    {"share", LHI_CUSTOM(lh_dp_op), .read = read_share, .write = write_share,
     .when = LHI_OPTIONAL},
    {"launch", LHI_TEXT_FORM(lh_dp_op, launch), .description = POINT_FORM,
     .parse = parse_point, .print = print_point},
    {"bucket", LHI_CUSTOM(lh_dp_op), .read = read_bucket, .write = write_bucket,
     LHI_OMIT_IF(lh_dp_op, n_buckets, 1)},
    {"before", LHI_TEXT_FORM(lh_dp_op, needed_by), .description = POINT_FORM,
     .parse = parse_point, .print = print_point,
     LHI_OMIT_IF(lh_dp_op, needed_by.chunk, LH_NONE)},
};
static const lhi_schema operation_table = {
    LHI_ROWS("operation", lh_dp_op, operation_rows), .start = start_operation,
    .check = check_operation};

/* --- the map ------------------------------------------------------------- */

static const lhi_schema_field dp_rows[] = {
    {"chunks", LHI_LIST(lhi_pipeline_text, dp_chunks, n_dp_chunks),
     .table = &chunk_table, .when = LHI_DEFAULTED},
    {"operations", LHI_LIST(lhi_pipeline_text, ops, n_ops),
     .table = &operation_table, .when = LHI_OPTIONAL},
    {"prefetch", LHI_INTEGER(lhi_pipeline_text, prefetch),
     .most = LH_MAX_CHUNKS, .when = LHI_OPTIONAL, .absent = -1},
    {"piece", LHI_TIME(lhi_pipeline_text, desc.dp_piece_ns),
     .when = LHI_OPTIONAL},
    {"priority", LHI_ENUM(lhi_pipeline_text, priority),
     .names = lhi_dp_priority_names, .when = LHI_OPTIONAL},
    {"groups", LHI_STRUCT(lhi_pipeline_text, groups),
     .table = &lhi_dp_groups_schema,
     LHI_OMIT_IF(lhi_pipeline_text, groups.n_enqueue, 0)},
    {"elastic", LHI_CUSTOM(lhi_pipeline_text), .read = lhi_dp_elastic_read,
     .table = &lhi_dp_elastic_schema, .when = LHI_OPTIONAL},
};
const lhi_schema lhi_dp_schema = {
    LHI_ROWS("data_parallel", lhi_pipeline_text, dp_rows)};

/* --- entry points -------------------------------------------------------- */

/* Reads the map under the key 'data_parallel' into the description, except for
 * 'elastic', which is expanded later. */
static lh_status read_map(const lhi_read_context *r, const lhi_node *map,
                          lhi_pipeline_text *text, lh_error *err)
{
    lh_pipeline_desc *d = &text->desc;
    LHI_TRY(lhi_schema_read(r, map, &lhi_dp_schema, text, err));
    if (lhi_node_find(map, "elastic"))
        return LH_OK;
    const lhi_node *chunks = lhi_node_find(map, "chunks");
    const lhi_node *operations = lhi_node_find(map, "operations");
    if (chunks) {
        LHI_TRY(set_chunks(r, chunks, text, err));
        LHI_TRY(set_links(r, chunks, text, err));
    }
    if (operations && !(text->origin.op_nodes = lhi_list_nodes(r, operations)))
        return lhi_fail_nomem(err);
    d->dp_priority = (lh_dp_priority)text->priority;
    text->origin.piece_node = lhi_node_find(map, "piece");
    if (text->origin.piece_node && d->dp_piece_ns == 0)
        return lhi_doc_fail(r->doc, text->origin.piece_node, err, LH_EINPUT,
                            "must be at least 1 ns");
    d->n_dp_ops = text->n_ops;
    d->dp_ops = text->ops;
    d->n_initial_gathers = (uint32_t)(text->prefetch + 1);
    d->n_enqueue = text->groups.n_enqueue;
    d->n_dequeue = text->groups.n_dequeue;
    d->enqueue = text->groups.enqueue;
    d->dequeue = text->groups.dequeue;
    return LH_OK;
}

lh_status lhi_dp_read(const lhi_read_context *r, const lhi_node *node,
                      void *owner, lh_error *err)
{
    lhi_pipeline_text *text = owner;
    LHI_TRY(lhi_pipeline_require_chunks(r, text, node->parent, err));
    if (node->kind == LHI_MAP)
        return read_map(r, node, text, err);
    const void *items;
    LHI_TRY(lhi_schema_read_list(r, node, &dp_rows[0], &items,
                                 &text->n_dp_chunks, err));
    text->dp_chunks = items;
    LHI_TRY(set_chunks(r, node, text, err));
    return set_links(r, node, text, err);
}

json_t *lhi_dp_write(const void *owner, const void *context)
{
    const lhi_pipeline_text *text = owner;
    if (text->n_ops > 0 || text->groups.n_enqueue > 0 || text->prefetch >= 0 ||
        text->desc.dp_piece_ns > 0 || text->priority != LH_DP_FIFO)
        return lhi_schema_write(&lhi_dp_schema, text, context);
    if (text->n_dp_chunks == 0)
        return json_null();
    return lhi_schema_write_list(&dp_rows[0], text->dp_chunks,
                                 text->n_dp_chunks, context);
}
