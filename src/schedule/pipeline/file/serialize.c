/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading traverse a description identically: one statement per
 * field either writes or reads it. */
#include "schedule/pipeline/file/serialize.h"

#include "base/arena.h"
#include "base/bytes.h"

#include <longhaul/experimental/pipeline.h>

#include <inttypes.h>
#include <string.h>

/* The traversal's state: either `out` or `p` .. `end` is set. */
typedef struct order_shape {
    lhi_text *out;
    const char *p, *end;
    lhi_arena *mem; /* allocates the values read */
    bool bad, no_memory;
} traversal;

/* Reads a decimal number, and the character `stop` behind it, from the
 * serialised text. Returns 0 and sets w->bad if there is no number or it
 * overflows. */
static int64_t read_number(traversal *w, char stop)
{
    uint64_t value = 0;
    bool minus = w->p < w->end && *w->p == '-';
    const char *p = w->p + minus, *first = p;
    for (; p < w->end && *p >= '0' && *p <= '9'; p++) {
        if (value > (INT64_MAX - 9) / 10)
            w->bad = w->bad || value > INT64_MAX / 10 ||
                     value * 10 + (uint64_t)(*p - '0') > INT64_MAX;
        value = value * 10 + (uint64_t)(*p - '0');
    }
    if (w->bad || p == first || p == w->end || *p != stop) {
        w->bad = true;
        return 0;
    }
    w->p = p + 1;
    return minus ? -(int64_t)value : (int64_t)value;
}

/* Appends the number *value to the serialised text or, when reading, sets it
 * from that text. */
static void traverse_number(traversal *w, int64_t *value)
{
    if (w->out)
        lhi_text_printf(w->out, "%" PRId64 " ", *value);
    else
        *value = read_number(w, ' ');
}

/* Appends the unsigned number *value to the serialised text or, when reading,
 * sets it; sets w->bad if a number read exceeds 32 bits. */
static void traverse_index(traversal *w, uint32_t *value)
{
    int64_t wide = *value;
    traverse_number(w, &wide);
    if (wide < 0 || wide > UINT32_MAX)
        w->bad = true;
    else
        *value = (uint32_t)wide;
}

/* Appends the boolean *value as 0 or 1 to the serialised text or, when reading,
 * sets it. */
static void traverse_flag(traversal *w, bool *value)
{
    int64_t wide = *value;
    traverse_number(w, &wide);
    *value = wide != 0;
}

/* Appends the string *value with its length, -1 for NULL, to the serialised
 * text or, when reading, sets it to a copy in the arena. */
static void traverse_text(traversal *w, const char **value)
{
    if (w->out) {
        int64_t len = *value ? (int64_t)strlen(*value) : -1;
        lhi_text_printf(w->out, "%" PRId64 ":%s ", len, *value ? *value : "");
        return;
    }
    int64_t len = read_number(w, ':');
    *value = NULL;
    if (w->bad || len < 0 || len >= w->end - w->p || w->p[len] != ' ') {
        w->bad = w->bad || len != -1 || w->p == w->end || *w->p != ' ';
        w->p += !w->bad;
        return;
    }
    *value = lhi_arena_strndup(w->mem, w->p, (size_t)len);
    w->no_memory = w->no_memory || !*value;
    w->p += len + 1;
}

/* Returns the array of n items, `size` bytes each, that is written or read
 * next: the existing array `have` or, when reading, a new one. NULL: n is 0, or
 * larger than the remaining text permits. */
static void *traverse_items(traversal *w, const void *have, uint32_t n,
                            size_t size)
{
    if (w->out)
        return (void *)(uintptr_t)have;
    if (w->bad || n > (size_t)(w->end - w->p)) {
        w->bad = true;
        return NULL;
    }
    void *made = n ? lhi_arena_alloc(w->mem, n, size) : NULL;
    w->no_memory = w->no_memory || (n && !made);
    return made;
}

/* Writes or reads all chunks of the pipeline description, depending on the
 * traversal's direction. */
static void walk_chunks(traversal *w, lh_pipeline_desc *d)
{
    traverse_index(w, &d->n_chunks);
    lh_chunk *c = traverse_items(w, d->chunks, d->n_chunks, sizeof *c);
    for (uint32_t i = 0; c && i < d->n_chunks && !w->bad; i++) {
        traverse_index(w, &c[i].device);
        int64_t *const all[] = {
            &c[i].f_ns,          &c[i].d_ns,          &c[i].w_ns,
            &c[i].mem_f,         &c[i].mem_d,         &c[i].mem_w,
            &c[i].mem_static,    &c[i].all_gather_ns, &c[i].reduce_scatter_ns,
            &c[i].dp_latency_ns, &c[i].offload_ns};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            traverse_number(w, all[k]);
    }
    d->chunks = c;
}

/* Writes or reads all links of the pipeline description, depending on the
 * traversal's direction. */
static void walk_links(traversal *w, lh_pipeline_desc *d)
{
    traverse_index(w, &d->n_links);
    lh_link *l = traverse_items(w, d->links, d->n_links, sizeof *l);
    for (uint32_t i = 0; l && i < d->n_links && !w->bad; i++) {
        traverse_index(w, &l[i].from);
        traverse_index(w, &l[i].to);
        traverse_number(w, &l[i].latency_ns);
        traverse_number(w, &l[i].transfer_ns);
        traverse_text(w, &l[i].name);
    }
    d->links = l;
}

/* Writes or reads the datacenters' names, depending on the traversal's
 * direction. */
static void walk_sites(traversal *w, lh_pipeline_desc *d)
{
    traverse_index(w, &d->n_sites);
    lh_site *s = traverse_items(w, d->sites, d->n_sites, sizeof *s);
    for (uint32_t i = 0; s && i < d->n_sites && !w->bad; i++)
        traverse_text(w, &s[i].name);
    d->sites = s;
}

/* Appends the array *list of n unsigned numbers to the serialised text or, when
 * reading, sets *list to a new array. */
static void walk_indices(traversal *w, const uint32_t **list, uint32_t n)
{
    uint32_t *at = traverse_items(w, *list, n, sizeof *at);
    for (uint32_t i = 0; at && i < n && !w->bad; i++)
        traverse_index(w, &at[i]);
    *list = at;
}

/* Writes or reads whether a per-device list exists. Returns its length: the
 * device count, or 0 without a list. */
static uint32_t traverse_device_count(traversal *w, const lh_pipeline_desc *d,
                                      const void *list)
{
    bool there = list != NULL;
    traverse_flag(w, &there);
    return there ? d->n_devices : 0;
}

/* Writes or reads the memory limits and their unit, depending on the
 * traversal's direction. */
static void walk_limits(traversal *w, lh_pipeline_desc *d)
{
    uint32_t n = traverse_device_count(w, d, d->memory_limits);
    int64_t *at = traverse_items(w, d->memory_limits, n, sizeof *at);
    for (uint32_t i = 0; at && i < n && !w->bad; i++)
        traverse_number(w, &at[i]);
    d->memory_limits = at;
    traverse_text(w, &d->memory_unit);
}

/* Writes or reads the devices' data-parallel link names, depending on the
 * traversal's direction. */
static void walk_dp_links(traversal *w, lh_pipeline_desc *d)
{
    uint32_t n = traverse_device_count(w, d, d->dp_links);
    const char **at = traverse_items(w, d->dp_links, n, sizeof *at);
    for (uint32_t i = 0; at && i < n && !w->bad; i++)
        traverse_text(w, &at[i]);
    d->dp_links = at;
}

/* Writes or reads a reference to a pass (chunk, microbatch, direction),
 * depending on the traversal's direction. */
static void walk_point(traversal *w, lh_dp_pass *point)
{
    traverse_index(w, &point->chunk);
    traverse_index(w, &point->microbatch);
    traverse_flag(w, &point->backward);
}

/* Writes or reads all data-parallel operations, depending on the traversal's
 * direction; shares are stored as their bits. */
static void walk_ops(traversal *w, lh_pipeline_desc *d)
{
    traverse_index(w, &d->n_dp_ops);
    lh_dp_op *o = traverse_items(w, d->dp_ops, d->n_dp_ops, sizeof *o);
    for (uint32_t i = 0; o && i < d->n_dp_ops && !w->bad; i++) {
        traverse_index(w, &o[i].chunk);
        traverse_flag(w, &o[i].is_reduce_scatter);
        traverse_index(w, &o[i].bucket);
        traverse_index(w, &o[i].n_buckets);
        uint32_t kind = (uint32_t)o[i].kind;
        int64_t share = (int64_t)lhi_double_to_bits(o[i].share);
        traverse_index(w, &kind);
        traverse_number(w, &share);
        w->bad = w->bad || kind > LH_DP_RSO;
        if (!w->out && !w->bad) {
            o[i].kind = (lh_dp_kind)kind;
            o[i].share = lhi_double_from_bits((uint64_t)share);
        }
        traverse_number(w, &o[i].transfer_ns);
        walk_point(w, &o[i].launch);
        walk_point(w, &o[i].needed_by);
    }
    d->dp_ops = o;
}

/* Writes or reads a whole pipeline description, member by member in fixed
 * order, depending on the traversal's direction. */
static void walk_all(traversal *w, lh_pipeline_desc *d)
{
    uint32_t receives = (uint32_t)d->receives;
    traverse_index(w, &d->n_devices);
    traverse_index(w, &d->n_microbatches);
    traverse_flag(w, &d->joint);
    traverse_flag(w, &d->bidirectional);
    traverse_index(w, &d->n_copies);
    int64_t overlap = (int64_t)lhi_double_to_bits(d->overlap_f_b);
    traverse_number(w, &overlap);
    if (!w->out)
        d->overlap_f_b = lhi_double_from_bits((uint64_t)overlap);
    traverse_index(w, &receives);
    traverse_index(w, &d->n_initial_gathers);
    w->bad = w->bad || receives > LH_RECEIVES_LATE_FD;
    d->receives = w->bad ? LH_RECEIVES_EARLY : (lh_receives)receives;
    walk_chunks(w, d);
    walk_links(w, d);
    walk_limits(w, d);
    walk_sites(w, d);
    walk_indices(w, &d->device_sites,
                 traverse_device_count(w, d, d->device_sites));
    walk_ops(w, d);
    traverse_index(w, &d->n_enqueue);
    walk_indices(w, &d->enqueue, d->n_enqueue);
    traverse_index(w, &d->n_dequeue);
    walk_indices(w, &d->dequeue, d->n_dequeue);
    walk_dp_links(w, d);
    uint32_t priority = (uint32_t)d->dp_priority;
    traverse_number(w, &d->dp_piece_ns);
    traverse_index(w, &priority);
    w->bad = w->bad || priority > LH_DP_FAIR;
    d->dp_priority = w->bad ? LH_DP_FIFO : (lh_dp_priority)priority;
}

lh_status lhi_pipeline_serialize(const lh_pipeline *pipeline, lhi_text *out,
                                 lh_error *err)
{
    lh_pipeline_desc d = {.size = sizeof d};
    traversal w = {.out = out};
    LHI_TRY(lh_pipeline_describe(pipeline, &d, err));
    walk_all(&w, &d);
    return out->failed ? lhi_fail_nomem(err) : LH_OK;
}

lh_status lhi_pipeline_deserialize(const char *text, size_t len,
                                   lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc d = {.size = sizeof d};
    traversal w = {.p = text, .end = text + len, .mem = lhi_arena_make(0)};
    if (!w.mem)
        return lhi_fail_nomem(err);
    walk_all(&w, &d);
    lh_status status;
    if (w.no_memory)
        status = lhi_fail_nomem(err);
    else if (w.bad || w.p != w.end)
        status = lhi_fail(err, LH_EINPUT,
                          "invalid numeric encoding of a "
                          "pipeline");
    else
        status = lh_pipeline_make(&d, out, err);
    lhi_arena_free(w.mem);
    return status;
}
