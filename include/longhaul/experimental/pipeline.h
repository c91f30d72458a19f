/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline's contents, its construction, and changed copies.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_PIPELINE_H
#define LONGHAUL_EXPERIMENTAL_PIPELINE_H

#include <longhaul/pipeline.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Size limits; larger pipelines are rejected. */
#define LH_MAX_DEVICES 65536u
#define LH_MAX_CHUNKS 65536u
#define LH_MAX_MICROBATCHES 1048576u
#define LH_MAX_PASSES (UINT64_C(1) << 26) /* chunks x microbatches */
#define LH_MAX_DP_OPS (1u << 24)

/* Consecutive layers on one device. B = D then W: it takes d_ns + w_ns and
 * changes memory by mem_d + mem_w. */
typedef struct lh_chunk {
    uint32_t device;
    int64_t f_ns, d_ns, w_ns;
    int64_t mem_f, mem_d, mem_w; /* net change per pass */
    int64_t mem_static;          /* resident for the whole iteration */
    /* Data parallelism on the device's own data-parallel link: before the first
     * F, after the last W or B. All 0: none. */
    int64_t all_gather_ns, reduce_scatter_ns, dp_latency_ns;
    /* Joint backward only: part of F's activations is offloaded to host storage
     * and reloaded before B; this is the copy time per direction. The offloaded
     * bytes are not in mem_f and mem_d; mem_static includes space for three
     * passes' worth. 0: no offloading (docs/theory/performance-model.md). */
    int64_t offload_ns;
} lh_chunk;

/* Identifies a forward, or a backward (D or B, depending on the schedule), of
 * one chunk on one microbatch. */
typedef struct lh_dp_pass {
    uint32_t chunk; /* LH_NONE: no pass */
    uint32_t microbatch;
    bool backward;
} lh_dp_pass;

/* A data-parallel communication's purpose in an elastic schedule
 * (docs/theory/elastic.md). */
typedef enum lh_dp_kind {
    LH_DP_ANY, /* not given */
    LH_DP_AGO, /* all-gather for updated parameters */
    LH_DP_AGF, /* all-gather for the forward of a later group */
    LH_DP_AGB, /* all-gather for the backward */
    LH_DP_RSG, /* reduce-scatter for a group's gradients */
    LH_DP_RSO, /* final reduce-scatter, before the optimizer */
} lh_dp_kind;

LH_API const char *lh_dp_kind_name(lh_dp_kind kind); /* "AGO"; "" of ANY */

/* A data-parallel communication within the iteration, for sharded parameters
 * and gradients. It is launched when a pass starts, queues on the device's
 * data-parallel link, and a pass may wait for it. All passes are on one device.
 * It arrives dp_latency_ns (the chunk's) after its transfer. */
typedef struct lh_dp_op {
    uint32_t chunk; /* the parameters' or gradients' owner */
    bool is_reduce_scatter;
    uint32_t bucket, n_buckets; /* part 0..n_buckets-1 */
    /* Fraction of the chunk's parameters carried by all buckets together, 0 <
     * share <= 1; 0 if the kind is not given. */
    lh_dp_kind kind;
    double share;
    int64_t transfer_ns;
    lh_dp_pass launch;
    lh_dp_pass needed_by; /* pass that waits for its arrival */
} lh_dp_op;

/* How messages and data-parallel pieces are ordered on a link that carries both
 * (docs/formats/pipeline.md, "Shared links"). */
typedef enum lh_dp_priority {
    LH_DP_FIFO,           /* first in, first out */
    LH_DP_PIPELINE_FIRST, /* waiting messages precede waiting pieces */
    LH_DP_FAIR,           /* a message and a piece share the rate equally */
} lh_dp_priority;

/* A link that carries messages from device `from` to device `to`. */
typedef struct lh_link {
    uint32_t from, to;
    int64_t latency_ns;  /* one-way, after the transfer */
    int64_t transfer_ns; /* link occupancy per message */
    const char *name;    /* links with equal names are one resource; NULL:
                          * "from-to" */
} lh_link;

/* A group of nearby devices, usually a datacenter, for display. */
typedef struct lh_site {
    const char *name;
} lh_site;

/* Input to lh_pipeline_make(), which copies it. NULL or 0 in optional members:
 * absent. */
typedef struct lh_pipeline_desc {
    size_t size; /* sizeof(lh_pipeline_desc) */
    uint32_t n_devices;
    uint32_t n_microbatches; /* with two directions, of each of them */
    bool joint;              /* backward is one pass B; else separate D and W */
    uint32_t n_chunks;
    const lh_chunk *chunks; /* in model order */
    uint32_t n_links;
    const lh_link *links;
    const int64_t *memory_limits; /* one per device, or NULL: no limit */
    const char *memory_unit;      /* e.g. "bytes"; may be NULL */
    uint32_t n_sites;
    const lh_site *sites;
    const uint32_t *device_sites; /* site per device; NULL: none */
    /* Operations launched with the same pass are queued in this order. */
    uint32_t n_dp_ops;
    const lh_dp_op *dp_ops;
    /* All-gathers per device issued at the start, in the order of the
     * chunks' first forwards. Each such forward issues the next one when it
     * starts. Equals the prefetch depth plus one; 0: all. */
    uint32_t n_initial_gathers;
    /* Sizes of the microbatch groups in forward and backward, for operations
     * that belong to such groups (method "elastic"). Each array adds up to
     * n_microbatches; both or neither. */
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
    /* Default receive mode for simulations and runs. */
    lh_receives receives;
    /* Per device: name of the network behind its data-parallel link, as a link
     * name; NULL entry: none. NULL: no names. Ignored for devices without
     * data-parallel communication. If the name, or a part of it between " + ",
     * is a name in `links`, the device's data-parallel communication occupies
     * that link together with its messages. Other names are for display. */
    const char *const *dp_links;
    /* On such shared links: maximum occupancy of one piece, 0: communication is
     * not cut; and the order of messages and pieces. Ignored if no link is
     * shared. */
    int64_t dp_piece_ns;
    lh_dp_priority dp_priority;
    /* Two directions (Chimera, DualPipe): the first half of the chunks is the
     * model, the second half is a copy of it with the same number of chunks.
     * Each half runs n_microbatches microbatches of its own. Gradients are
     * summed over both copies: a chunk's reduce-scatter starts when the last
     * passes of both copies have ended. */
    bool bidirectional;
    /* Duration of an overlapped F and B, relative to the sum of both; 0: pairs
     * run as two passes. Above 0 to 1. */
    double overlap_f_b;
    /* Slices per sequence; 0 or 1: sequences are whole. With k slices, slice s
     * of sequence q is microbatch q k + s: n_microbatches is a multiple of k.
     * Causal attention fixes a sequence's slice order on every chunk:
     * F ascending, D and B descending. The share `slice_attention` (0..1) of
     * each duration is attention to the same and earlier slices: slice s takes
     * the chunk's duration times 1 + slice_attention ((2 s + 1) / k - 1). */
    uint32_t n_slices;
    double slice_attention;
    /* Copies of the model, as with two directions but in any number: the chunks
     * of copy k are n_chunks / n_copies chunks from k * n_chunks / n_copies on.
     * 0: one, or two in a bidirectional pipeline. Above 2 without data-parallel
     * communication. */
    uint32_t n_copies;
} lh_pipeline_desc;

/* Creates a pipeline. LH_EINPUT: a value is out of range or contradicts
 * another; `err` names it. Release with lh_pipeline_free(). */
LH_API lh_status lh_pipeline_make(const lh_pipeline_desc *desc,
                                  lh_pipeline **out, lh_error *err);

/* Returns a description from which lh_pipeline_make() creates the same
 * pipeline. To modify a pipeline, describe it, replace arrays by modified
 * copies, and make a new one. `out->size` must be the caller's struct size.
 * Pointers in *out are owned by the pipeline and valid for its lifetime.
 *
 * LH_EUNSUPPORTED: the struct, from an older header, lacks a member that the
 * pipeline needs. */
LH_API lh_status lh_pipeline_describe(const lh_pipeline *pipeline,
                                      lh_pipeline_desc *out, lh_error *err);

/* Builds the same pipeline with host memory for activations. Each memory limit
 * is raised by `host_memory`, in the pipeline's unit; LH_NO_LIMIT removes the
 * limit. Activations above the device's own limit are held by the host.
 * lh_sim_options.host_copy_ns gives the copy time. The description and the text
 * form contain only the raised limits.
 *
 * LH_EINVAL: host_memory <= 0, or the pipeline has no limits. LH_EUNSUPPORTED:
 * it has overlapped passes. LH_EINFEASIBLE: a device cannot hold the static
 * memory of its chunks plus one pass, which must be on the device. */
LH_API lh_status lh_pipeline_with_host(const lh_pipeline *pipeline,
                                       int64_t host_memory, lh_pipeline **out,
                                       lh_error *err);

/* Builds the same pipeline with other delays on the links named `link`: a link
 * name; `a-b` for the links `a>b` and `b>a`; or two devices, `0-1` or `0>1`,
 * whose link is added if missing. Negative delays are left unchanged. Release
 * *out with lh_pipeline_free().
 *
 * LH_EINPUT: no such link, an ambiguous name, or no messages between the
 * devices; `err` lists the links. Otherwise as lh_pipeline_make(). */
LH_API lh_status lh_pipeline_set_link_delay(const lh_pipeline *pipeline,
                                            const char *link,
                                            int64_t latency_ns,
                                            int64_t transfer_ns,
                                            lh_pipeline **out, lh_error *err);

/* Returns chunk number `chunk`; borrowed. */
LH_API const lh_chunk *lh_pipeline_chunk(const lh_pipeline *pipeline,
                                         uint32_t chunk);
/* Returns the link count between devices that the pipeline defines. */
LH_API uint32_t lh_pipeline_n_links(const lh_pipeline *pipeline);
/* Returns link number `link`; borrowed. */
LH_API const lh_link *lh_pipeline_link(const lh_pipeline *pipeline,
                                       uint32_t link);
/* Returns data-parallel operation number `op`; borrowed. Operations are sorted
 * by launching pass (chunk, microbatch, forward before backward) and form one
 * contiguous array from index 0. */
LH_API const lh_dp_op *lh_pipeline_dp_op(const lh_pipeline *pipeline,
                                         uint32_t op);
/* Returns the pipeline's receive mode: when receives are posted unless options
 * override it. */
LH_API lh_receives lh_pipeline_receives(const lh_pipeline *pipeline);
LH_API const char *lh_receives_name(lh_receives receives); /* "late-fd" */
/* Returns the device's data-parallel network's name; NULL: none. */
LH_API const char *lh_pipeline_dp_link(const lh_pipeline *pipeline,
                                       uint32_t device);
/* Returns true if the device's data-parallel communication shares a link with
 * messages. LH_NONE: that of any device. */
LH_API bool lh_pipeline_shares_links(const lh_pipeline *pipeline,
                                     uint32_t device);
/* Returns true if a chunk offloads activations. */
LH_API bool lh_pipeline_offloads(const lh_pipeline *pipeline);
/* Returns the memory limit on the device itself; lower than
 * lh_pipeline_memory_limit() only with host memory. */
LH_API int64_t lh_pipeline_device_limit(const lh_pipeline *pipeline,
                                        uint32_t device);
/* Returns true if lh_pipeline_with_host() added host memory. */
LH_API bool lh_pipeline_has_host(const lh_pipeline *pipeline);
/* Returns the device's datacenter; LH_NONE: the pipeline has no datacenters. */
LH_API uint32_t lh_pipeline_device_site(const lh_pipeline *pipeline,
                                        uint32_t device);

/* Chunk placement on devices (CrossPipe: UD, Loop, Wave, BD). */
typedef enum lh_placement {
    LH_PLACEMENT_OTHER,
    LH_PLACEMENT_UD,   /* chunk c on device c */
    LH_PLACEMENT_LOOP, /* chunk c on device c mod P, at least 2P chunks */
    LH_PLACEMENT_WAVE, /* 2P chunks: forth and back */
    /* two directions: chunk c on device c, its copy P + c on P - 1 - c */
    LH_PLACEMENT_BD,
} lh_placement;

/* Returns the name of a placement of chunks on devices, such as "ud"; static
 * storage. */
LH_API const char *lh_placement_name(lh_placement placement);

#ifdef __cplusplus
}
#endif
#endif
