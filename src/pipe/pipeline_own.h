/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_pipeline. Immutable after lh_pipeline_make().
 *
 * In: a description (longhaul/pipeline.h), orders of passes
 * (longhaul/schedule.h). Out: checked values, with what follows from them: the
 * way that each chunk's messages take, links named alike as one resource, the
 * kind of placement, operations by the pass that launches them.
 * pipeline.c: from a description to a pipeline and back. dp.c: its
 * data-parallel operations, groups and prefetch depth. fingerprint.c: which
 * pipelines are alike. link_names.c: links by what people call them
 * (link_names.h). injected.c: the same pipeline with other delays. offload.h:
 * which activations leave their device. schedule.c: schedules
 * (schedule_own.h), and passes as texts. file/: their files
 * (file/pipe_file.h). */
#ifndef LHI_PIPELINE_OWN_H
#define LHI_PIPELINE_OWN_H

#include "base/arena.h"
#include "doc/doc.h"

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>

/* A way for messages between neighbouring chunks. */
typedef struct lhi_route {
    bool message;      /* false: same device, handed over in place */
    uint32_t link;     /* index, LH_NONE: no link, arrives at once */
    uint32_t resource; /* of the link */
    int64_t transfer_ns, latency_ns;
} lhi_route;

struct lh_pipeline {
    lhi_arena *mem;
    uint32_t n_devices, n_microbatches, n_chunks, n_links, n_sites;
    bool joint;
    bool has_collectives; /* some chunk has an all-gather or reduce-scatter */
    bool offloads;        /* some chunk's activations leave */
    lh_chunk *chunks;
    lh_link *links;
    int64_t *memory_limits; /* per device; LH_NO_LIMIT */
    bool has_limits;
    int64_t *device_limits;  /* those without host memory; NULL: the same */
    const char *memory_unit; /* "" if none */
    lh_site *sites;
    uint32_t *device_sites;
    /* Derived. */
    uint32_t n_resources;
    const char **resource_names; /* "from-to" for unnamed links */
    uint32_t *resources_by_name; /* numbers in the order of strcmp() */
    uint32_t *resource_routes;   /* per resource: routes that take it */
    uint32_t *link_resources;    /* per link */
    lhi_route *forward;          /* [c]: from chunk c to c+1; last unused */
    lhi_route *backward;         /* [c]: from chunk c to c-1; first unused */
    lh_placement placement;
    /* Operations by the number of their launching point, see lhi_point();
     * those of point i are dp_first[i]..dp_first[i + 1] - 1, and dp_waits[i]
     * have to arrive before it. Both NULL where there is no operation. */
    uint32_t n_dp_ops;
    lh_dp_op *dp_ops;
    uint32_t *dp_first, *dp_waits;
    uint32_t first_gathers; /* 0: all */
    bool gathers_late; /* some device has more of them, and so issues the rest
                          later */
    uint32_t n_enqueue, n_dequeue;
    uint32_t *enqueue, *dequeue;
    lh_receives receives;
    const char **dp_links; /* per device; NULL: no device's has a name */
    /* Per resource: in an iteration it takes messages only from then on. Of
     * states of a course alone, in no description; NULL: at once. */
    int64_t *held_ns;
};

/* Until then the link's resource takes no messages. */
lh_status lhi_pipeline_hold(lh_pipeline *p, uint32_t link, int64_t until_ns,
                            lh_error *err);

/* NULL-terminated, by value of lh_receives. */
extern const char *const lhi_receives_names[];

/* Where a description came from, for messages: the document, and the nodes of
 * its chunks, links and operations (each may be NULL). */
typedef struct lhi_pipeline_origin {
    const lhi_doc *doc;
    const lhi_node *const *chunk_nodes;
    const lhi_node *const *link_nodes;
    const lhi_node *const *op_nodes;
} lhi_pipeline_origin;

/* The number of an F, or of a D or B: neighbours for one chunk and microbatch.
 * What a W would launch or wait for has no number. */
static inline size_t lhi_point(const lh_pipeline *p, uint32_t chunk,
                               uint32_t microbatch, bool backward)
{
    return 2 * ((size_t)chunk * p->n_microbatches + microbatch) + backward;
}

/* dp.c: checks, sorts and numbers the operations of a description. */
lh_status lhi_prefetch_take(lh_pipeline *p, const lh_pipeline_desc *desc,
                            lh_error *err);
lh_status lhi_dp_groups_take(lh_pipeline *p, const lh_pipeline_desc *desc,
                             lh_error *err);
/* What each device's data-parallel link is called; after the operations. */
lh_status lhi_dp_links_take(lh_pipeline *p, const lh_pipeline_desc *desc,
                            lh_error *err);
/* Of lh_dp_kind, from LH_DP_AGO on; ends in NULL. */
extern const char *const lhi_dp_kind_names[];

lh_status lhi_dp_ops_take(lh_pipeline *p, const lh_pipeline_desc *desc,
                          const lhi_pipeline_origin *origin, lh_error *err);

/* The resource of that name; LH_NONE: there is none. */
uint32_t lhi_resource_find(const lh_pipeline *pipeline, const char *name);
/* Whether a link of the pipeline's devices is one between its sites; where it
 * has fewer than two, all are. */
bool lhi_link_is_far(const lh_pipeline *pipeline, const lh_link *link);

lh_status lhi_pipeline_make(const lh_pipeline_desc *desc,
                            const lhi_pipeline_origin *origin,
                            lh_pipeline **out, lh_error *err);

/* A pipeline as `from` was described, with changes. Devices keep the limits of
 * their own, which a description has not got, where `from` has host memory. */
lh_status lhi_pipeline_remake(const lh_pipeline *from,
                              const lh_pipeline_desc *desc, lh_pipeline **out,
                              lh_error *err);
lh_status lhi_pipeline_copy(const lh_pipeline *pipeline, lh_pipeline **out,
                            lh_error *err);

/* The same for pipelines that are alike in all that schedules and their times
 * depend on: the numbers of their chunks, ways, operations and limits. Others
 * have another, but by a chance of about one in 2^100. */
typedef struct lhi_fingerprint {
    uint64_t a, b;
} lhi_fingerprint;
lhi_fingerprint lhi_pipeline_fingerprint(const lh_pipeline *pipeline);

/* LH_EINFEASIBLE with the one message for it. */
lh_status lhi_fail_memory(const lh_pipeline *pipeline, uint32_t device,
                          int64_t need, lh_error *err);

/* How long a device takes for one microbatch before it answers the device
 * before it (t in Adaptra's equation 1): F and the input gradient, which a
 * joint backward gives only with the weight gradient. */
static inline int64_t lhi_turn_ns(const lh_pipeline *p, uint32_t chunk)
{
    const lh_chunk *c = &p->chunks[chunk];
    return c->f_ns + c->d_ns + (p->joint ? c->w_ns : 0);
}

/* From a chunk to the next and back, on the way only. */
static inline int64_t lhi_round_trip_ns(const lh_pipeline *p, uint32_t chunk)
{
    const lhi_route *there = &p->forward[chunk];
    const lhi_route *back = &p->backward[chunk + 1];
    return there->transfer_ns + there->latency_ns + back->transfer_ns +
           back->latency_ns;
}

/* The share of part `part` of `n_parts` in `total`; the shares add up. */
static inline int64_t lhi_share(int64_t total, uint32_t part, uint32_t n_parts)
{
    int64_t each = total / n_parts, rest = total % n_parts;
    return each + rest * (part + 1) / n_parts - rest * part / n_parts;
}

/* How long a pass of `chunk` takes. */
static inline int64_t lhi_pass_time(const lh_chunk *chunk, const lh_pass *pass)
{
    switch (pass->kind) {
    case LH_F:
        return chunk->f_ns;
    case LH_D:
        return chunk->d_ns;
    case LH_B:
        return chunk->d_ns + chunk->w_ns;
    default:
        return pass->n_parts == 1
                   ? chunk->w_ns
                   : lhi_share(chunk->w_ns, pass->part, pass->n_parts);
    }
}

/* The net change of memory by a pass. */
static inline int64_t lhi_pass_memory(const lh_chunk *chunk,
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
                   : lhi_share(chunk->mem_w, pass->part, pass->n_parts);
    }
}

#endif
