/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds on what a configuration can come to, in closed form, before any
 * pipeline of it is built: valid for every partition of the layers within the
 * largest ratio of chunks, every schedule, and whatever is not decided yet.
 * Proofs: docs/theory/plan-search.md. */
#ifndef LHI_FLOOR_H
#define LHI_FLOOR_H

#include "plan/layout/space.h"

typedef enum lhi_floor_kind {
    LHI_FLOOR_NONE,
    LHI_FLOOR_WORK,   /* all passes over all GPUs */
    LHI_FLOOR_LAYERS, /* whole layers: some device has so many */
    LHI_FLOOR_RAMP,   /* passes, behind the way to a device and back */
    LHI_FLOOR_PATH,   /* one microbatch there and back */
    LHI_FLOOR_LINK,   /* messages between two datacenters */
    LHI_FLOOR_STAY,   /* activations stay in memory until they are needed */
    LHI_FLOOR_MEMORY, /* does not fit */
    LHI_N_FLOORS
} lhi_floor_kind;

typedef struct lhi_floor {
    int64_t ns;           /* no iteration is shorter; INT64_MAX: does not fit */
    lhi_floor_kind kind;  /* which bound that is */
    int64_t missing;      /* bytes that some GPU lacks at least */
    uint32_t missing_in;  /* datacenter with such GPUs */
    int64_t memory_bytes; /* some GPU holds so much at least */
} lhi_floor;

const char *lhi_floor_name(lhi_floor_kind kind); /* "ramp" */

/* Nanoseconds of the passes over one microbatch. */
typedef struct lhi_floor_pass {
    int64_t f, d, w;
} lhi_floor_pass;

/* What it leaves in memory, what is there all along, and by how much what its
 * device needs in passing exceeds the least of all parts; in bytes. */
typedef struct lhi_floor_held {
    int64_t activation, weight_input, state, passing;
} lhi_floor_held;

enum { LHI_FLOOR_PARTS = 8 }; /* kinds of layers, embedding, head */

/* What no layer of the model falls below on a GPU of one datacenter. */
typedef struct lhi_floor_site {
    lhi_floor_pass parts[LHI_FLOOR_PARTS]; /* one of each */
    lhi_floor_held held[LHI_FLOOR_PARTS];
    double slowness;             /* every part takes so many times what it
                                    takes in the first datacenter, or more */
    lhi_floor_pass layer;        /* each the least of all layers */
    int64_t layer_fd, layer_all; /* least sums: F and D; F, D and W */
    lhi_floor_pass embedding, head;
    int64_t f, d, w;                         /* of the whole model */
    int64_t gather, reduce;                  /* data parallelism, of a layer */
    int64_t first_gather, first_reduce;      /* of the embedding, beside that */
    int64_t latency;                         /* of either, of a chunk */
    int64_t late;                            /* of reductions, after all else */
    int64_t optimizer;                       /* of the whole model */
    int64_t hold, embedding_hold, head_hold; /* static and one microbatch */
    int64_t model_hold;                      /* of the whole model */
    int64_t room; /* memory without what is reserved */
} lhi_floor_site;

/* What bounds are computed from: as many stages in order, where they are, and
 * how long messages take to the next one. */
typedef struct lhi_floor_case {
    uint32_t layers, stages, chunks_per_device, microbatches;
    lh_placement placement;
    uint32_t least_layers; /* that any chunk has */
    uint32_t n_without;    /* chunks that may have none where that is 0 */
    uint32_t n_of_part[LHI_FLOOR_PARTS]; /* how many the model has */
    uint32_t n_kinds;                    /* then come embedding and head */
    const uint32_t *kind_of;             /* of each layer */
    int64_t first_ns; /* the model's F, D and W in the first datacenter */
    const lhi_floor_site *sites;
    const uint32_t *at;   /* each stage's site; NULL: sites[0] for all */
    const int64_t *forth; /* from stage k to k + 1, latency and transfer */
    const int64_t *back;  /* from k + 1 to k; NULL: none of both known */
    int64_t wrap_forth, wrap_back; /* last stage to first, and first to last */
} lhi_floor_case;

/* The bounds. Each is on the pipeline's makespan, in ns. */
int64_t lhi_floor_work(const lhi_floor_case *c);
int64_t lhi_floor_layers(const lhi_floor_case *c);
int64_t lhi_floor_path(const lhi_floor_case *c);
int64_t lhi_floor_ramp(const lhi_floor_case *c);
/* Of one link with a transfer time, that takes `per_microbatch` messages of
 * each microbatch. */
int64_t lhi_floor_link(const lhi_floor_case *c, uint32_t per_microbatch,
                       int64_t transfer_ns, int64_t latency_ns);
/* The same with each layer's own times and memory, by trying all splits of the
 * layers: at least `low`, which is known, and at most `high`. With one chunk
 * per device or two; `low` for others. */
int64_t lhi_floor_split(const lhi_floor_case *c, lhi_arena *mem, int64_t low,
                        int64_t high);
/* What activations wait in memory for is a time that no schedule shortens, and
 * the memory of all devices together holds so many at once. */
int64_t lhi_floor_stay(const lhi_floor_case *c);
/* Bytes that some GPU lacks, whatever the partition; *site: which kind. */
int64_t lhi_floor_memory(const lhi_floor_case *c, uint32_t *site);

/* The fewest layers of any chunk, where `layers` are in `chunks` and the
 * largest has at most `ratio` times as many as the smallest. */
uint32_t lhi_floor_least_layers(uint32_t layers, uint32_t chunks, double ratio);

/* All of them for what `config` has decided. LH_EUNSUPPORTED: nothing below
 * works, `err` says why. */
typedef struct lhi_floors lhi_floors; /* with room to compute in */
lh_status lhi_floors_make(const lh_job *job, double ratio, lhi_floors **out,
                          lh_error *err);
void lhi_floors_free(lhi_floors *floors); /* NULL is fine */
/* Leaves memory out: for plans that hold less than their layouts. */
void lhi_floors_forget_memory(lhi_floors *floors);
lh_status lhi_floors_find(lhi_floors *floors, lhi_level level,
                          const lhi_config *config, lhi_floor *out,
                          lh_error *err);

/* The same of a whole configuration, with lhi_floor_split(): that takes longer,
 * and says no more than that nothing is below `below_ns`. */
lh_status lhi_floors_find_closer(lhi_floors *floors, const lhi_config *config,
                                 int64_t below_ns, lhi_floor *out,
                                 lh_error *err);

#endif
