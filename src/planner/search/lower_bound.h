/* SPDX-License-Identifier: Apache-2.0 */
/* Closed-form lower bounds for a configuration before its pipeline is built.
 * They hold for every layer partition within the largest ratio of chunks, every
 * schedule, and all undecided values. Proofs: docs/theory/plan-search.md. */
#ifndef LHI_PLANNER_SEARCH_LOWER_BOUND_H
#define LHI_PLANNER_SEARCH_LOWER_BOUND_H

#include "planner/layout/space.h"

/* Lower-bound kinds. */
typedef enum lhi_bound_kind {
    LHI_BOUND_NONE,
    LHI_BOUND_WORK,   /* all passes over all GPUs */
    LHI_BOUND_LAYERS, /* integral layers: some device has at least this many */
    LHI_BOUND_WARMUP, /* warm-up bound: passes plus path to a device and back */
    LHI_BOUND_PATH,   /* one microbatch forward and back */
    LHI_BOUND_LINK,   /* messages between two datacenters */
    LHI_BOUND_RESIDENCY, /* activation residency limits concurrency */
    LHI_BOUND_MEMORY,    /* does not fit */
    LHI_N_BOUND_KINDS
} lhi_bound_kind;

/* A lower bound and its origin. */
typedef struct lhi_lower_bound {
    int64_t ns;           /* least iteration time; INT64_MAX: does not fit */
    lhi_bound_kind kind;  /* the binding bound */
    int64_t missing;      /* least bytes that some GPU lacks */
    uint32_t missing_in;  /* datacenter of that GPU */
    int64_t memory_bytes; /* least memory of the fullest GPU */
} lhi_lower_bound;

/* Returns the name for a lower bound's kind in plan files, such as "work" or
 * "memory"; "unknown" outside the enum. Static storage. */
const char *lhi_bound_kind_name(lhi_bound_kind kind);

/* Pass durations for one microbatch, in ns. */
typedef struct lhi_bound_pass {
    int64_t f, d, w;
} lhi_bound_pass;

/* A part's memory, in bytes: activations retained after a pass; state; and by
 * how much the device's transient memory exceeds the least over all parts. */
typedef struct lhi_bound_memory_part {
    int64_t activation, weight_input, state, transient;
} lhi_bound_memory_part;

enum { LHI_BOUND_PARTS = 8 }; /* kinds of layers, embedding, head */

/* The model layers' least costs on a GPU in one datacenter. */
typedef struct lhi_bound_site {
    lhi_bound_pass parts[LHI_BOUND_PARTS]; /* per part */
    lhi_bound_memory_part part_memory[LHI_BOUND_PARTS];
    double slowness;             /* least slowdown of every part relative to the
                                  * first datacenter */
    lhi_bound_pass layer;        /* each the least over all layers */
    int64_t layer_fd, layer_all; /* least sums: F and D; F, D and W */
    lhi_bound_pass embedding, head;
    int64_t f, d, w; /* whole model */
    /* data-parallel communication, per layer */
    int64_t gather, reduce;
    int64_t first_gather, first_reduce; /* additional, for the embedding */
    /* gather or reduction latency, per chunk */
    int64_t latency;
    /* late part of reductions, after all else */
    int64_t late_reduce;
    int64_t optimizer; /* whole model */
    /* static memory and one microbatch */
    int64_t layer_memory, embedding_memory, head_memory;
    int64_t model_memory; /* whole model */
    int64_t capacity;     /* usable memory */
} lhi_bound_site;

/* Bound inputs: the stages in order, their sites, and the message times between
 * neighbours. */
typedef struct lhi_bound_case {
    uint32_t layers, stages, chunks_per_device, microbatches;
    lh_placement placement;
    uint32_t least_layers;   /* least layers of any chunk */
    uint32_t n_empty_chunks; /* chunks that may have none, if that is 0 */
    uint32_t n_of_part[LHI_BOUND_PARTS]; /* number in the model */
    uint32_t n_kinds;                    /* followed by embedding and head */
    const uint32_t *kind_of;             /* per layer */
    int64_t first_ns; /* the model's F, D and W in the first datacenter */
    const lhi_bound_site *sites;
    const uint32_t *site_of_stage; /* site per stage; NULL: sites[0] for all */
    const int64_t *forward_hops;   /* stage k to k + 1, latency and transfer */
    const int64_t *backward_hops;  /* k + 1 to k; NULL: neither is known */
    int64_t wrap_forth, wrap_back; /* last stage to first, and first to last */
} lhi_bound_case;

/* Returns the work bound on the makespan in ns: all passes over all stages. A
 * stage that is slower than the first datacenter by a factor s does at most
 * n / s of the work in time n. */
int64_t lhi_bound_compute_work(const lhi_bound_case *c);
/* Returns the layer bound on the makespan in ns: some device has at least
 * layers / stages layers, rounded up. */
int64_t lhi_bound_compute_layers(const lhi_bound_case *c);
/* Returns the path bound on the makespan in ns, from one microbatch. Its path
 * is the first chunk's gather, all chunks' F, their D and the messages between
 * them. The first chunk's W and its reduction follow. */
int64_t lhi_bound_compute_path(const lhi_bound_case *c);
/* Returns the warm-up bound on the makespan in ns: each device's passes, plus
 * the path of the first microbatch to it and of the last one back. */
int64_t lhi_bound_compute_warmup(const lhi_bound_case *c);
/* Returns the link bound on the makespan in ns: a link carries one message at a
 * time, for `transfer_ns`, which arrives `latency_ns` later. `per_microbatch`:
 * messages on this link for each microbatch. With one chunk per device, all its
 * messages are F or D messages on the microbatch's path. */
int64_t lhi_bound_compute_link(const lhi_bound_case *c, uint32_t per_microbatch,
                               int64_t transfer_ns, int64_t latency_ns);
/* Computes the partition bound on the makespan, in ns: the least makespan, by
 * bisection between `low` (a known bound) and `high`, that some layer partition
 * may meet with each layer's own times and memory. Supports one or two chunks
 * per device; otherwise returns `low`. */
int64_t lhi_bound_compute_partition(const lhi_bound_case *c, lhi_arena *mem,
                                    int64_t low, int64_t high);
/* Returns the activation-residency bound on the makespan in ns: each
 * microbatch's activations stay resident for a minimum time, and the total
 * memory limits how many are resident at once. */
int64_t lhi_bound_compute_residency(const lhi_bound_case *c);
/* Computes the bytes that some GPU lacks under any layer partition; 0: the
 * model may fit. *site: the datacenter, or set of them, with the least memory.
 */
int64_t lhi_bound_compute_missing_memory(const lhi_bound_case *c,
                                         uint32_t *site);

/* Returns the fewest layers that a chunk can have if `layers` are in `chunks`
 * chunks. The largest chunk has at most `ratio` times as many as the
 * smallest. */
uint32_t lhi_bound_compute_least_layers(uint32_t layers, uint32_t chunks,
                                        double ratio);

/* Costs of a job's layers and links for lower bounds; includes scratch memory.
 */
typedef struct lhi_bound_inputs lhi_bound_inputs;
/* Creates the bound inputs for a job: costs of its layers and links. `ratio`:
 * largest ratio of layers between chunks. */
lh_status lhi_bound_inputs_make(const lh_job *job, double ratio,
                                lhi_bound_inputs **out, lh_error *err);
/* Frees the bound inputs; NULL is allowed. */
void lhi_bound_inputs_free(lhi_bound_inputs *floors);
/* Disables the memory bounds, for plans that may need less memory than their
 * layouts' pipelines, such as elastic plans. */
void lhi_bound_inputs_ignore_memory(lhi_bound_inputs *floors);
/* Computes in *out the largest lower bound over all plans with the values that
 * `config` has decided on `level` (depth in the search tree). */
lh_status lhi_bound_inputs_compute(lhi_bound_inputs *floors, lhi_level level,
                                   const lhi_config *config,
                                   lhi_lower_bound *out, lh_error *err);

/* Computes in *ns a lower bound on the F, D and W of the whole model for one
 * microbatch of a configuration with decided tensor, context and expert degrees
 * and micro_batch, on a datacenter's GPUs. */
lh_status lhi_bound_inputs_compute_passes(lhi_bound_inputs *floors,
                                          const lhi_config *config,
                                          uint32_t datacenter, int64_t *ns,
                                          lh_error *err);

/* Computes a complete configuration's lower bound including
 * lhi_bound_compute_partition(): slower, and only up to `below_ns`. */
lh_status lhi_bound_inputs_compute_tight(lhi_bound_inputs *floors,
                                         const lhi_config *config,
                                         int64_t below_ns, lhi_lower_bound *out,
                                         lh_error *err);

#endif
