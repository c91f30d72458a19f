/* SPDX-License-Identifier: Apache-2.0 */
/* Links by name, and the links that data-parallel communication shares with
 * messages: those of the pipeline's links whose name a device's data-parallel
 * link has. */
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <string.h>

/* Maximum piece count of one communication, and of all together. */
enum { MAX_PIECES = 65536, MAX_ALL_PIECES = 1 << 24 };
#define TOO_MANY_PIECES                                                        \
    "gives too many pieces: at most 65536 of one communication and 16777216 "  \
    "together are allowed; use a longer piece"

const char *const lhi_dp_priority_names[] = {"fifo", "pipeline-first", "fair",
                                             NULL};

uint32_t lhi_resource_find(const lh_pipeline *pipeline, const char *name)
{
    uint32_t lo = 0, hi = pipeline->n_resources;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        uint32_t r = pipeline->resources_by_name[mid];
        int order = strcmp(pipeline->resource_names[r], name);
        if (order == 0)
            return r;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return LH_NONE;
}

/* Appends a link resource to those of device `device`, unless it is there. */
static void add_resource(lh_pipeline *p, uint32_t device, uint32_t resource)
{
    uint32_t *end = &p->shared_at[device + 1];
    for (uint32_t i = p->shared_at[device]; i < *end; i++)
        if (p->shared[i] == resource)
            return;
    p->shared[(*end)++] = resource;
}

/* Adds the link resources that `name`, a device's data-parallel link, denotes
 * to the device's shared resources. They are the link of this name, or the
 * links whose names `name` joins by " + ". `part`: scratch for one name. */
static void add_named_resources(lh_pipeline *p, uint32_t device,
                                const char *name, char *part)
{
    uint32_t whole = lhi_resource_find(p, name);
    if (whole != LH_NONE) {
        add_resource(p, device, whole);
        return;
    }
    while (name) {
        const char *end = strstr(name, " + ");
        size_t length = end ? (size_t)(end - name) : strlen(name);
        memcpy(part, name, length);
        part[length] = '\0';
        uint32_t resource = lhi_resource_find(p, part);
        if (resource != LH_NONE)
            add_resource(p, device, resource);
        name = end ? end + 3 : NULL;
    }
}

/* Adds to *total the number of pieces into which a communication of chunk
 * `chunk` is cut, if its device shares a link with messages. A piece is a slice
 * of at most p->dp_piece_ns. Returns false if the numbers exceed the limits. */
static bool count_pieces(const lh_pipeline *p, uint32_t chunk,
                         int64_t transfer_ns, uint64_t *total)
{
    if (!lhi_shares_link(p, p->chunks[chunk].device))
        return true;
    uint64_t n = transfer_ns <= p->dp_piece_ns
                     ? 1
                     : (uint64_t)((transfer_ns - 1) / p->dp_piece_ns) + 1;
    *total += n;
    return n <= MAX_PIECES && *total <= MAX_ALL_PIECES;
}

/* Checks the longest piece, into which collectives on shared links are cut:
 * LH_EINPUT if it is negative, or so short that there are too many pieces. */
static lh_status check_pieces(const lh_pipeline *p,
                              const lhi_pipeline_origin *origin, lh_error *err)
{
    uint64_t total = 0;
    bool few = true;
    if (p->dp_piece_ns < 0)
        return lhi_fail(err, LH_EINPUT,
                        "pipeline: data_parallel.piece: must not be negative");
    if (p->dp_piece_ns == 0)
        return LH_OK;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        few = few && count_pieces(p, c, p->chunks[c].all_gather_ns, &total) &&
              count_pieces(p, c, p->chunks[c].reduce_scatter_ns, &total);
    for (uint32_t i = 0; few && i < p->n_dp_ops; i++)
        few = count_pieces(p, p->dp_ops[i].chunk, p->dp_ops[i].transfer_ns,
                           &total);
    if (few)
        return LH_OK;
    if (origin && origin->piece_node)
        return lhi_doc_fail(origin->doc, origin->piece_node, err, LH_EINPUT,
                            TOO_MANY_PIECES);
    return lhi_fail(err, LH_EINPUT,
                    "pipeline: data_parallel.piece: " TOO_MANY_PIECES);
}

lh_status lhi_pipeline_find_shared_links(lh_pipeline *p,
                                         const lh_pipeline_desc *desc,
                                         const lhi_pipeline_origin *origin,
                                         lh_error *err)
{
    p->dp_piece_ns = desc->dp_piece_ns;
    p->dp_priority = desc->dp_priority;
    if ((unsigned)p->dp_priority > LH_DP_FAIR)
        return lhi_fail(err, LH_EINPUT,
                        "pipeline: data_parallel.priority: unknown value %d",
                        (int)p->dp_priority);
    size_t longest = 0, most = 0;
    for (uint32_t d = 0; p->dp_links && d < p->n_devices; d++) {
        size_t length = p->dp_links[d] ? strlen(p->dp_links[d]) : 0;
        longest = length > longest ? length : longest;
        most += length / 4 + 1; /* a part has a character, 3 separate two */
    }
    char *part = LHI_NEW(p->mem, char, longest + 1);
    p->shared_at = LHI_NEW(p->mem, uint32_t, (size_t)p->n_devices + 1);
    p->shared = LHI_NEW(p->mem, uint32_t, most);
    if (!part || !p->shared_at || !p->shared)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < p->n_devices; d++) {
        p->shared_at[d + 1] = p->shared_at[d];
        if (p->dp_links && p->dp_links[d])
            add_named_resources(p, d, p->dp_links[d], part);
    }
    LHI_TRY(check_pieces(p, origin, err));
    if (p->shared_at[p->n_devices] > 0)
        return LH_OK;
    p->shared_at = p->shared = NULL;
    p->dp_piece_ns = 0; /* without effect */
    p->dp_priority = LH_DP_FIFO;
    return LH_OK;
}

bool lh_pipeline_shares_links(const lh_pipeline *pipeline, uint32_t device)
{
    return device == LH_NONE ? pipeline->shared_at != NULL
                             : lhi_shares_link(pipeline, device);
}

int64_t lhi_pipeline_dp_piece_ns(const lh_pipeline *pipeline)
{
    return pipeline->dp_piece_ns;
}

lh_dp_priority lhi_pipeline_dp_priority(const lh_pipeline *pipeline)
{
    return pipeline->dp_priority;
}
