/* SPDX-License-Identifier: Apache-2.0 */
/* An lh_pipeline's members. Immutable after lh_pipeline_make().
 *
 * Input: a description (longhaul/pipeline.h), pass orders
 * (longhaul/schedule.h). Output: checked values with derived data: each
 * chunk's message routes, links with equal names merged into one resource,
 * the kind of placement, operations indexed by the pass that launches them.
 * - pipeline.c: description to pipeline and back
 * - dp.c: its data-parallel operations, groups and prefetch depth
 * - shared_links.c: links that data-parallel communication shares
 * - fingerprint.c: hashes to detect equivalent pipelines
 * - link_names.c: lookup of user-supplied link names (link_names.h)
 * - delay_injection.c: the same pipeline with other delays
 * - offload.h: activation offloading
 * - schedule.c: schedules (schedule_internal.h), and passes as text
 * - file/: their files (file/pipe_file.h) */
#ifndef LHI_SCHEDULE_PIPELINE_PIPELINE_INTERNAL_H
#define LHI_SCHEDULE_PIPELINE_PIPELINE_INTERNAL_H

#include "base/arena.h"
#include "base/integer_math.h"
#include "format/document/tree.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/schedule.h>

/* The message route between neighbouring chunks. */
typedef struct lhi_route {
    bool message;      /* false: same device, no transfer */
    uint32_t link;     /* index; LH_NONE: no link, no delay */
    uint32_t resource; /* the link's resource */
    int64_t transfer_ns, latency_ns;
} lhi_route;

/* A checked pipeline with its derived data. */
struct lh_pipeline {
    lhi_arena *mem;
    uint32_t n_devices, n_microbatches, n_chunks, n_links, n_sites;
    bool joint;
    bool bidirectional; /* more than one copy */
    uint32_t n_copies;  /* of the model: 1, with two directions 2 */
    double overlap_f_b; /* 0: no overlapped pairs */
    uint32_t n_slices;  /* of a sequence; 1: whole sequences */
    double slice_attention;
    bool has_collectives; /* some chunk has an all-gather or reduce-scatter */
    bool offloads;        /* some chunk's activations are offloaded */
    lh_chunk *chunks;
    lh_link *links;
    int64_t *memory_limits; /* per device; LH_NO_LIMIT */
    bool has_limits;
    int64_t *device_limits;  /* without host memory; NULL: equal */
    const char *memory_unit; /* "" if none */
    lh_site *sites;
    uint32_t *device_sites;
    /* Derived. */
    uint32_t n_resources;
    const char **resource_names; /* "from-to" for unnamed links */
    uint32_t *resources_by_name; /* indices in strcmp() order */
    uint32_t *resource_routes;   /* per resource: routes that use it */
    uint32_t *link_resources;    /* per link */
    lhi_route *forward;          /* [c]: from chunk c to c+1; last chunks:
                                  * unused */
    lhi_route *backward;         /* [c]: from chunk c to c-1; first chunks:
                                  * unused */
    lh_placement placement;
    /* Operations sorted by the index of their launching pass, see
     * lhi_pass_index(): pass i launches dp_first[i]..dp_first[i + 1] - 1 and
     * waits for dp_waits[i] operations. Both are NULL if there are no
     * operations. */
    uint32_t n_dp_ops;
    lh_dp_op *dp_ops;
    uint32_t *dp_first, *dp_waits;
    uint32_t first_gathers;    /* 0: all */
    bool has_deferred_gathers; /* some device has more, and issues the remaining
                                * ones later */
    uint32_t n_enqueue, n_dequeue;
    uint32_t *enqueue, *dequeue;
    lh_receives receives;
    const char **dp_links; /* per device; NULL: all unnamed */
    /* Link resources that device d's data-parallel communication shares with
     * messages: shared[shared_at[d]]..shared[shared_at[d + 1] - 1], without
     * duplicates. NULL: no device shares a link. */
    uint32_t *shared_at, *shared;
    int64_t dp_piece_ns; /* 0: communication is not cut */
    lh_dp_priority dp_priority;
    /* Per resource: the time in an iteration before which it accepts no
     * messages. Used only for states in an event timeline, never in a
     * description; NULL: 0. */
    int64_t *blocked_until_ns;
};

/* Returns how many chunks a microbatch passes: those of one copy of the model.
 */
static inline uint32_t lhi_count_direction_chunks(const lh_pipeline *p)
{
    return p->n_chunks / p->n_copies;
}

/* Checks whether a chunk is the first of its copy: its F needs no other pass.
 */
static inline bool lhi_is_first_chunk(const lh_pipeline *p, uint32_t chunk)
{
    return chunk % lhi_count_direction_chunks(p) == 0;
}

/* Checks whether a chunk is the last of its copy: its D or B needs only its own
 * F. */
static inline bool lhi_is_last_chunk(const lh_pipeline *p, uint32_t chunk)
{
    return (chunk + 1) % lhi_count_direction_chunks(p) == 0;
}

/* Returns the chunk of the other direction with the same parameters; LH_NONE:
 * the pipeline does not have two copies. */
static inline uint32_t lhi_get_copy(const lh_pipeline *p, uint32_t chunk)
{
    uint32_t half = p->n_chunks / 2;
    return p->n_copies != 2 ? LH_NONE
           : chunk < half   ? chunk + half
                            : chunk - half;
}

/* Blocks all messages on the resource of link number `link` until until_ns,
 * counted from the iteration's start. */
lh_status lhi_pipeline_block_link(lh_pipeline *p, uint32_t link,
                                  int64_t until_ns, lh_error *err);

/* NULL-terminated, indexed by lh_receives. */
extern const char *const lhi_receives_names[];

/* A description's source, for messages: the document, and its chunk, link,
 * operation and piece nodes (each may be NULL). */
typedef struct lhi_pipeline_origin {
    const lhi_doc *doc;
    const lhi_node *const *chunk_nodes;
    const lhi_node *const *link_nodes;
    const lhi_node *const *op_nodes;
    const lhi_node *piece_node; /* of data_parallel.piece */
} lhi_pipeline_origin;

/* Returns the index of an F, or of a D or B; they are adjacent for one chunk
 * and microbatch. W passes have no index, as they neither launch nor wait for
 * operations. */
static inline size_t lhi_pass_index(const lh_pipeline *p, uint32_t chunk,
                                    uint32_t microbatch, bool backward)
{
    return 2 * ((size_t)chunk * p->n_microbatches + microbatch) + backward;
}

/* Copies the prefetch depth (all-gathers issued ahead of use) from a
 * description. */
lh_status lhi_pipeline_copy_prefetch(lh_pipeline *p,
                                     const lh_pipeline_desc *desc,
                                     lh_error *err);
/* Copies the enqueue and dequeue group sizes from a description. */
lh_status lhi_pipeline_copy_dp_groups(lh_pipeline *p,
                                      const lh_pipeline_desc *desc,
                                      lh_error *err);
/* Copies each device's data-parallel link name; call it after copying the
 * operations. */
lh_status lhi_pipeline_copy_dp_links(lh_pipeline *p,
                                     const lh_pipeline_desc *desc,
                                     lh_error *err);
/* Returns the number of pieces in which a data-parallel communication of
 * `transfer_ns` occupies a shared link. */
static inline uint32_t lhi_count_pieces(const lh_pipeline *p,
                                        int64_t transfer_ns)
{
    int64_t piece = p->dp_piece_ns;
    return piece == 0 || transfer_ns <= piece
               ? 1
               : (uint32_t)((transfer_ns - 1) / piece + 1);
}
/* Checks whether device `device` shares a link. */
static inline bool lhi_shares_link(const lh_pipeline *p, uint32_t device)
{
    return p->shared_at && p->shared_at[device] < p->shared_at[device + 1];
}
/* Checks whether data-parallel communication uses link number `link` too. */
static inline bool lhi_is_shared_link(const lh_pipeline *p, uint32_t link)
{
    const uint32_t n = p->shared_at ? p->shared_at[p->n_devices] : 0;
    for (uint32_t i = 0; i < n; i++)
        if (p->link_resources[link] == p->shared[i])
            return true;
    return false;
}
/* NULL-terminated, indexed by lh_dp_priority. */
extern const char *const lhi_dp_priority_names[];
/* lh_dp_kind names, starting with LH_DP_AGO; NULL-terminated. */
extern const char *const lhi_dp_kind_names[];
/* Finds the links that data-parallel communication shares with messages. Copies
 * the rules for these links: the longest piece of a collective, and the
 * priority. Call it after copying the data-parallel link names and naming the
 * resources. */
lh_status lhi_pipeline_find_shared_links(lh_pipeline *p,
                                         const lh_pipeline_desc *desc,
                                         const lhi_pipeline_origin *origin,
                                         lh_error *err);

/* Checks a description's data-parallel operations, sorts them by launching
 * pass and copies them. */
lh_status lhi_pipeline_copy_dp_ops(lh_pipeline *p, const lh_pipeline_desc *desc,
                                   const lhi_pipeline_origin *origin,
                                   lh_error *err);

/* Returns the link resource with that name, or LH_NONE. Links with equal names
 * share a resource. */
uint32_t lhi_resource_find(const lh_pipeline *pipeline, const char *name);
/* Checks whether a link connects different datacenters; true for all links if
 * the pipeline has fewer than two. */
bool lhi_link_is_inter_site(const lh_pipeline *pipeline, const lh_link *link);

/* Builds a pipeline from a description; `origin` (may be NULL) is its source,
 * for messages. */
lh_status lhi_pipeline_make(const lh_pipeline_desc *desc,
                            const lhi_pipeline_origin *origin,
                            lh_pipeline **out, lh_error *err);

/* Builds a pipeline from a modified description of `from`. If `from` has host
 * memory, preserves the devices' own limits, which a description lacks. */
lh_status lhi_pipeline_rebuild(const lh_pipeline *from,
                               const lh_pipeline_desc *desc, lh_pipeline **out,
                               lh_error *err);
/* Copies a pipeline, including the devices' own memory limits if it has host
 * memory. */
lh_status lhi_pipeline_copy(const lh_pipeline *pipeline, lh_pipeline **out,
                            lh_error *err);

/* A hash that is equal for pipelines with the same schedules and times: equal
 * numbers of their chunks, routes, operations and limits. Other pipelines
 * collide with probability about 2^-100. */
typedef struct lhi_fingerprint {
    uint64_t a, b;
} lhi_fingerprint;
/* Computes a pipeline's fingerprint, a hash over everything that affects its
 * schedules. Searches use it to recognise equal pipelines. */
lhi_fingerprint lhi_pipeline_fingerprint(const lh_pipeline *pipeline);

/* Fails with LH_EINFEASIBLE: the device needs `need` memory, above its limit;
 * the message names both. */
lh_status lhi_fail_memory_limit(const lh_pipeline *pipeline, uint32_t device,
                                int64_t need, lh_error *err);

/* Returns the device's turnaround for one microbatch before it replies to the
 * preceding device (t in Adaptra's equation 1): F and the input gradient, which
 * a joint backward completes only together with the weight gradient. */
static inline int64_t lhi_turnaround_ns(const lh_pipeline *p, uint32_t chunk)
{
    const lh_chunk *c = &p->chunks[chunk];
    return c->f_ns + c->d_ns + (p->joint ? c->w_ns : 0);
}

/* Returns the communication round trip from a chunk to the next and back. */
static inline int64_t lhi_round_trip_ns(const lh_pipeline *p, uint32_t chunk)
{
    const lhi_route *there = &p->forward[chunk];
    const lhi_route *back = &p->backward[chunk + 1];
    return there->transfer_ns + there->latency_ns + back->transfer_ns +
           back->latency_ns;
}

/* Rounds a duration of at most 2^53 ns to the nearest ns. */
static inline int64_t lhi_round_ns(double exact)
{
    int64_t below = (int64_t)exact; /* exact + 0.5 may be rounded itself */
    return below + (exact - (double)below >= 0.5);
}

/* Scales the mean duration of a chunk's slices to the slice that `microbatch`
 * is. */
static inline int64_t lhi_scale_to_slice(const lh_pipeline *p,
                                         uint32_t microbatch, int64_t ns)
{
    if (p->n_slices == 1)
        return ns;
    double position = 2.0 * (microbatch % p->n_slices) + 1;
    return lhi_round_ns(
        (double)ns * (1 + p->slice_attention * (position / p->n_slices - 1)));
}

/* Checks whether a pass is part of a pair that runs overlapped. */
static inline bool lhi_is_overlapped(const lh_pipeline *p, const lh_pass *pass)
{
    return pass->overlapped && p->overlap_f_b > 0;
}

/* Returns a pass's duration. An overlapped F's duration is its part
 * of the pair's duration; its output is available at the pair's end. */
static inline int64_t lhi_pass_duration(const lh_pipeline *p,
                                        const lh_pass *pass)
{
    const lh_chunk *chunk = &p->chunks[pass->chunk];
    const uint32_t m = pass->microbatch;
    if (lhi_is_overlapped(p, pass)) {
        int64_t alone =
            pass->kind == LH_F ? chunk->f_ns : chunk->d_ns + chunk->w_ns;
        return lhi_round_ns((double)alone * p->overlap_f_b);
    }
    switch (pass->kind) {
    case LH_F:
        return lhi_scale_to_slice(p, m, chunk->f_ns);
    case LH_D:
        return lhi_scale_to_slice(p, m, chunk->d_ns);
    case LH_B:
        return lhi_scale_to_slice(p, m, chunk->d_ns) +
               lhi_scale_to_slice(p, m, chunk->w_ns);
    default:
        return pass->n_parts == 1
                   ? lhi_scale_to_slice(p, m, chunk->w_ns)
                   : lhi_split_evenly(lhi_scale_to_slice(p, m, chunk->w_ns),
                                      pass->part, pass->n_parts);
    }
}

/* Returns the net memory change by a pass. */
static inline int64_t lhi_pass_memory_change(const lh_chunk *chunk,
                                             const lh_pass *pass)
{
    switch (pass->kind) {
    case LH_F:
        return chunk->mem_f;
    case LH_D:
        return chunk->mem_d;
    case LH_B:
        return chunk->mem_d + chunk->mem_w;
    default:
        return pass->n_parts == 1
                   ? chunk->mem_w
                   : lhi_split_evenly(chunk->mem_w, pass->part, pass->n_parts);
    }
}

#endif
