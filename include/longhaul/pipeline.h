/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduling problem alone: chunks of a model on devices, links between
 * the devices, microbatches, memory. Text form: docs/formats/pipeline.md.
 *
 * Times are nanoseconds, memory is in whatever unit the file uses. A pipeline
 * never changes once made and may be shared between threads. */
#ifndef LONGHAUL_PIPELINE_H
#define LONGHAUL_PIPELINE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What fits: beyond these a pipeline is refused. */
#define LH_MAX_DEVICES 65536u
#define LH_MAX_CHUNKS 65536u
#define LH_MAX_MICROBATCHES 1048576u
#define LH_MAX_PASSES (UINT64_C(1) << 26) /* chunks x microbatches */
#define LH_MAX_DP_OPS (1u << 24)
#define LH_NO_LIMIT INT64_MAX /* memory limit: none */
#define LH_NONE UINT32_MAX    /* "no such index" */

typedef struct lh_pipeline lh_pipeline;

/* Consecutive layers on one device. B = D then W takes d_ns + w_ns and
 * changes memory by mem_d + mem_w. */
typedef struct lh_chunk {
    uint32_t device;
    int64_t f_ns, d_ns, w_ns;
    int64_t mem_f, mem_d, mem_w; /* net change by one pass */
    int64_t mem_static;          /* held from beginning to end */
    /* Data parallelism, on the device's own data-parallel link: before the
     * first F, after the last W or B. All 0: none. */
    int64_t all_gather_ns, reduce_scatter_ns, dp_latency_ns;
    /* Of a joint backward: what part of what F leaves goes to storage of the
     * host and is back before B, and how long that takes, each way. Not in
     * mem_f and mem_d; mem_static has room for what three passes leave. 0:
     * nothing goes (docs/theory/performance-model.md). */
    int64_t offload_ns;
} lh_chunk;

/* A forward, or the backward (D or B, whichever a schedule runs), of one chunk
 * on one microbatch. */
typedef struct lh_dp_point {
    uint32_t chunk; /* LH_NONE: no pass */
    uint32_t microbatch;
    bool backward;
} lh_dp_point;

/* What a data-parallel communication of an elastic schedule is for
 * (docs/theory/elastic.md). */
typedef enum lh_dp_kind {
    LH_DP_ANY, /* not said */
    LH_DP_AGO, /* all-gather of what the optimizer has updated */
    LH_DP_AGF, /* all-gather for the forward of a later group */
    LH_DP_AGB, /* all-gather for the backward */
    LH_DP_RSG, /* reduce-scatter of a group's gradients */
    LH_DP_RSO, /* the last reduce-scatter, before the optimizer */
} lh_dp_kind;

LH_API const char *lh_dp_kind_name(lh_dp_kind kind); /* "AGO"; "" of ANY */

/* A data-parallel communication in the middle of the iteration, as sharded
 * parameters and gradients need them: it is launched when a pass starts, takes
 * the device's own data-parallel link behind what was launched before, and a
 * pass may wait for it. All on one device; arrives the chunk's dp_latency_ns
 * after its transfer. */
typedef struct lh_dp_op {
    uint32_t chunk; /* whose parameters, or gradients */
    bool is_reduce_scatter;
    uint32_t bucket, n_buckets; /* part 0..n_buckets-1 of it */
    /* The share of the chunk's parameters that all of its buckets together
     * carry, 0 < share <= 1; 0 where the kind is not said. */
    lh_dp_kind kind;
    double share;
    int64_t transfer_ns;
    lh_dp_point launch;
    lh_dp_point before; /* waits until it has arrived */
} lh_dp_op;

/* Messages from device `from` to device `to`. */
typedef struct lh_link {
    uint32_t from, to;
    int64_t latency_ns;  /* one way, after the transfer */
    int64_t transfer_ns; /* how long one message occupies the link */
    const char *name;    /* links named alike are one; NULL: "from-to" */
} lh_link;

/* When a receive is posted, and so when a rendezvous transfer may start. */
typedef enum lh_receives {
    LH_RECEIVES_EARLY,   /* ahead of need: a message is ready when made */
    LH_RECEIVES_LATE,    /* when the receiver gets to the pass in need */
    LH_RECEIVES_LATE_FD, /* the same, W passes before it do not delay */
} lh_receives;

/* Devices that are close together, for pictures: usually a datacenter. */
typedef struct lh_site {
    const char *name;
} lh_site;

/* What lh_pipeline_make() copies. Option-like fields that are NULL or 0 are
 * absent. */
typedef struct lh_pipeline_desc {
    size_t size; /* sizeof(lh_pipeline_desc) */
    uint32_t n_devices, n_microbatches;
    bool joint; /* backward is B only; else D and W are separate passes */
    uint32_t n_chunks;
    const lh_chunk *chunks; /* in model order */
    uint32_t n_links;
    const lh_link *links;
    const int64_t *memory_limits; /* one per device, or NULL: no limit */
    const char *memory_unit;      /* e.g. "bytes"; may be NULL */
    uint32_t n_sites;
    const lh_site *sites;
    const uint32_t *device_sites; /* site of each device; NULL: none */
    /* Those launched with the same pass go in this order. */
    uint32_t n_dp_ops;
    const lh_dp_op *dp_ops;
    /* How many all-gathers of a device are issued at the start, in the order of
     * the chunks' first forwards; each such forward issues the next as it
     * starts. One more than the prefetch depth; 0: all of them. */
    uint32_t first_gathers;
    /* Microbatches that go forward, and backward, together, where the
     * operations belong to such groups: those of the method "elastic". Each
     * adds up to n_microbatches; both or neither. */
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
    /* When receives are posted, where simulations and runs do not say. */
    lh_receives receives;
    /* What each device's own data-parallel link stands for: the name of the
     * network that its communications cross, as a link's name, for people; NULL
     * where it has none. NULL: nowhere. Dropped where a device has no
     * data-parallel communication. */
    const char *const *dp_links;
} lh_pipeline_desc;

/* LH_EINPUT: a value is out of range or contradicts another; `err` says
 * which. Release with lh_pipeline_free(). */
LH_API lh_status lh_pipeline_make(const lh_pipeline_desc *desc,
                                  lh_pipeline **out, lh_error *err);

/* Reads text in the pipeline format; `name` is what messages call it. */
LH_API lh_status lh_pipeline_parse(const char *text, size_t len,
                                   const char *name, lh_pipeline **out,
                                   lh_error *err);
LH_API lh_status lh_pipeline_read(const char *path, lh_pipeline **out,
                                  lh_error *err);
LH_API void lh_pipeline_free(lh_pipeline *pipeline); /* NULL is fine */

/* What lh_pipeline_make() makes the same pipeline of. To change a pipeline,
 * describe it, let the description point to changed copies of its arrays, and
 * make another. `out->size` says how large the caller's struct is. All that
 * *out points to is the pipeline's own and lives as long as that.
 * LH_EUNSUPPORTED: the pipeline has something that a smaller struct, of an
 * older header, has no field for. */
LH_API lh_status lh_pipeline_describe(const lh_pipeline *pipeline,
                                      lh_pipeline_desc *out, lh_error *err);

/* The same pipeline on devices that leave activations in host memory until they
 * need them: each memory limit is higher by `host_memory`, in the pipeline's
 * unit; LH_NO_LIMIT: there is none any more. What a device then holds beyond
 * its own limit rests in the host. What copies between the two take is a matter
 * of lh_sim_options.host_copy_ns. The description and the text of such a
 * pipeline have the raised limits alone.
 * LH_EINVAL: host_memory is 0 or less, or the pipeline has no limits.
 * LH_EINFEASIBLE: a device has no room for what its chunks hold throughout and
 * for what one pass takes, which have to be on the device. */
LH_API lh_status lh_pipeline_with_host(const lh_pipeline *pipeline,
                                       int64_t host_memory, lh_pipeline **out,
                                       lh_error *err);

/* The same pipeline with other delays on the links that `link` names: a name
 * that the pipeline gives to links; `a-b` for those called `a>b` and `b>a`; or
 * two devices, `0-1` or `0>1`, whose link is added where there is none. A delay
 * below 0 stays as it is. Release *out with lh_pipeline_free().
 * LH_EINPUT: there is no such link, the name may be several, or no messages go
 * there; `err` says which links there are. Else as lh_pipeline_make(). */
LH_API lh_status lh_pipeline_inject(const lh_pipeline *pipeline,
                                    const char *link, int64_t latency_ns,
                                    int64_t transfer_ns, lh_pipeline **out,
                                    lh_error *err);

/* The pipeline in its canonical text form (JSON, nanoseconds, shorthands
 * written out), which reads back to the same pipeline and the same text.
 * Release *text with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_pipeline_format(const lh_pipeline *pipeline, char **text,
                                    size_t *len, lh_error *err);

LH_API uint32_t lh_pipeline_n_devices(const lh_pipeline *pipeline);
LH_API uint32_t lh_pipeline_n_chunks(const lh_pipeline *pipeline);
LH_API uint32_t lh_pipeline_n_microbatches(const lh_pipeline *pipeline);
LH_API bool lh_pipeline_is_joint(const lh_pipeline *pipeline);
LH_API const lh_chunk *lh_pipeline_chunk(const lh_pipeline *pipeline,
                                         uint32_t chunk);
LH_API uint32_t lh_pipeline_n_links(const lh_pipeline *pipeline);
LH_API const lh_link *lh_pipeline_link(const lh_pipeline *pipeline,
                                       uint32_t link);
LH_API uint32_t lh_pipeline_n_dp_ops(const lh_pipeline *pipeline);
/* In the order of their launching passes: by chunk, microbatch, forward before
 * backward. All of them lie in one array, from number 0 on. */
LH_API const lh_dp_op *lh_pipeline_dp_op(const lh_pipeline *pipeline,
                                         uint32_t op);
/* The description's; 0: all. */
LH_API uint32_t lh_pipeline_first_gathers(const lh_pipeline *pipeline);
LH_API lh_receives lh_pipeline_receives(const lh_pipeline *pipeline);
LH_API const char *lh_receives_name(lh_receives receives); /* "late-fd" */
/* The description's, of the device's data-parallel link; NULL: no name. */
LH_API const char *lh_pipeline_dp_link(const lh_pipeline *pipeline,
                                       uint32_t device);
/* LH_NO_LIMIT where there is none. */
LH_API int64_t lh_pipeline_memory_limit(const lh_pipeline *pipeline,
                                        uint32_t device);
/* Whether some chunk's activations leave their device. */
LH_API bool lh_pipeline_offloads(const lh_pipeline *pipeline);
/* What of that is on the device itself: less with host memory only. */
LH_API int64_t lh_pipeline_device_limit(const lh_pipeline *pipeline,
                                        uint32_t device);
LH_API bool lh_pipeline_has_host(const lh_pipeline *pipeline);
/* "" where the file names none. */
LH_API const char *lh_pipeline_memory_unit(const lh_pipeline *pipeline);
LH_API uint32_t lh_pipeline_n_sites(const lh_pipeline *pipeline);
LH_API const char *lh_pipeline_site_name(const lh_pipeline *pipeline,
                                         uint32_t site);
/* LH_NONE where the pipeline has no sites. */
LH_API uint32_t lh_pipeline_device_site(const lh_pipeline *pipeline,
                                        uint32_t device);

/* How chunks lie on devices (DESIGN: UD, Loop, Wave). */
typedef enum lh_placement {
    LH_PLACEMENT_OTHER,
    LH_PLACEMENT_UD,   /* chunk c on device c */
    LH_PLACEMENT_LOOP, /* chunk c on device c mod P, at least 2P chunks */
    LH_PLACEMENT_WAVE, /* 2P chunks: there and back */
} lh_placement;

LH_API lh_placement lh_pipeline_placement(const lh_pipeline *pipeline);
LH_API const char *lh_placement_name(lh_placement placement);

#ifdef __cplusplus
}
#endif
#endif
