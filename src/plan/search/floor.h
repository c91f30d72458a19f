/* SPDX-License-Identifier: Apache-2.0 */
/* Closed-form lower bounds for a configuration before its pipeline is built.
 * They hold for every layer partition within the largest ratio of chunks, every
 * schedule, and all undecided values. Proofs: docs/theory/plan-search.md. */
#ifndef LHI_FLOOR_H
#define LHI_FLOOR_H

#include "plan/layout/space.h"

/* Kinds of lower bounds. */
typedef enum lhi_floor_kind {
    LHI_FLOOR_NONE,
    LHI_FLOOR_WORK,   /* all passes over all GPUs */
    LHI_FLOOR_LAYERS, /* integral layers: some device has at least this many */
    LHI_FLOOR_RAMP,   /* warm-up bound: passes plus path to a device and back */
    LHI_FLOOR_PATH,   /* one microbatch forward and back */
    LHI_FLOOR_LINK,   /* messages between two datacenters */
    LHI_FLOOR_STAY,   /* activation residency limits concurrency */
    LHI_FLOOR_MEMORY, /* does not fit */
    LHI_N_FLOORS
} lhi_floor_kind;

/* A lower bound and its origin. */
typedef struct lhi_floor {
    int64_t ns;           /* least iteration time; INT64_MAX: does not fit */
    lhi_floor_kind kind;  /* the binding bound */
    int64_t missing;      /* least bytes that some GPU lacks */
    uint32_t missing_in;  /* datacenter of that GPU */
    int64_t memory_bytes; /* least memory of the fullest GPU */
} lhi_floor;

const char *lhi_floor_name(lhi_floor_kind kind); /* "ramp" */

/* Pass durations for one microbatch, in ns. */
typedef struct lhi_floor_pass {
    int64_t f, d, w;
} lhi_floor_pass;

/* Memory of a part, in bytes: activations retained after a pass; state; and by
 * how much the device's transient memory exceeds the least over all parts. */
typedef struct lhi_floor_held {
    int64_t activation, weight_input, state, passing;
} lhi_floor_held;

enum { LHI_FLOOR_PARTS = 8 }; /* kinds of layers, embedding, head */

/* Least costs of the model's layers on a GPU of one datacenter. */
typedef struct lhi_floor_site {
    lhi_floor_pass parts[LHI_FLOOR_PARTS]; /* per part */
    lhi_floor_held held[LHI_FLOOR_PARTS];
    double slowness;             /* least slowdown of every part relative to the
                                  * first datacenter */
    lhi_floor_pass layer;        /* each the least over all layers */
    int64_t layer_fd, layer_all; /* least sums: F and D; F, D and W */
    lhi_floor_pass embedding, head;
    int64_t f, d, w;                         /* whole model */
    /* data-parallel communication, per layer */
    int64_t gather, reduce;
    int64_t first_gather, first_reduce;      /* additional, for the embedding */
    /* gather or reduction latency, per chunk */
    int64_t latency;
    /* late part of reductions, after all else */
    int64_t late;
    int64_t optimizer;                       /* whole model */
    /* static memory and one microbatch */
    int64_t hold, embedding_hold, head_hold;
    int64_t model_hold;                      /* whole model */
    int64_t room; /* usable memory */
} lhi_floor_site;

/* Bound inputs: the stages in order, their sites, and the message times between
 * neighbours. */
typedef struct lhi_floor_case {
    uint32_t layers, stages, chunks_per_device, microbatches;
    lh_placement placement;
    uint32_t least_layers; /* least layers of any chunk */
    uint32_t n_without;    /* chunks that may have none, if that is 0 */
    uint32_t n_of_part[LHI_FLOOR_PARTS]; /* number in the model */
    uint32_t n_kinds;                    /* followed by embedding and head */
    const uint32_t *kind_of;             /* per layer */
    int64_t first_ns; /* the model's F, D and W in the first datacenter */
    const lhi_floor_site *sites;
    const uint32_t *at;   /* site per stage; NULL: sites[0] for all */
    const int64_t *forth; /* stage k to k + 1, latency and transfer */
    const int64_t *back;  /* k + 1 to k; NULL: neither is known */
    int64_t wrap_forth, wrap_back; /* last stage to first, and first to last */
} lhi_floor_case;

/* Each returns a lower bound on the pipeline's makespan, in ns. This one: total
 * work. */
int64_t lhi_floor_work(const lhi_floor_case *c);
/* Bounds by integral layers per device. */
int64_t lhi_floor_layers(const lhi_floor_case *c);
/* Bounds by the path of one microbatch. */
int64_t lhi_floor_path(const lhi_floor_case *c);
/* Bounds by warm-up and cool-down of each device. */
int64_t lhi_floor_ramp(const lhi_floor_case *c);
/* The same for one link with this transfer time and `per_microbatch` messages
 * per microbatch. */
int64_t lhi_floor_link(const lhi_floor_case *c, uint32_t per_microbatch,
                       int64_t transfer_ns, int64_t latency_ns);
/* Partition bound: uses each layer's own times and memory, and tries all
 * partitions of the layers. Returns at least `low`, a known bound, and at most
 * `high`. Supports one or two chunks per device; otherwise returns `low`. */
int64_t lhi_floor_split(const lhi_floor_case *c, lhi_arena *mem, int64_t low,
                        int64_t high);
/* Activation-residency bound: no schedule shortens the time that activations
 * are needed, and the total memory limits how many are resident at once. */
int64_t lhi_floor_stay(const lhi_floor_case *c);
/* Computes the bytes that some GPU lacks under any partition; *site: its site.
 */
int64_t lhi_floor_memory(const lhi_floor_case *c, uint32_t *site);

/* Returns the fewest layers of any chunk when `layers` are in `chunks` and the
 * largest has at most `ratio` times as many as the smallest. */
uint32_t lhi_floor_least_layers(uint32_t layers, uint32_t chunks, double ratio);

/* Computes all bounds for a configuration's decided values. LH_EUNSUPPORTED:
 * nothing below works; `err` has the reason. */
typedef struct lhi_floors lhi_floors; /* includes scratch memory */
/* Creates the bound inputs for a job; `ratio` limits the chunk sizes. */
lh_status lhi_floors_make(const lh_job *job, double ratio, lhi_floors **out,
                          lh_error *err);
void lhi_floors_free(lhi_floors *floors); /* NULL is allowed */
/* Disables the memory bounds, for plans that need less memory than their
 * layouts. */
void lhi_floors_forget_memory(lhi_floors *floors);
/* Computes the best bound for a configuration's decided values. */
lh_status lhi_floors_find(lhi_floors *floors, lhi_level level,
                          const lhi_config *config, lhi_floor *out,
                          lh_error *err);

/* The same for a complete configuration, with lhi_bound_compute_partition():
 * slower, and only up to `below_ns`. */
lh_status lhi_floors_find_closer(lhi_floors *floors, const lhi_config *config,
                                 int64_t below_ns, lhi_floor *out,
                                 lh_error *err);

#endif
