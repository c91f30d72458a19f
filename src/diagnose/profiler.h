/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of PyTorch's profiler (Kineto: Chrome trace events, JSON) as rows of a
 * recording.
 *
 * profiler_events.c: from a file to its ranges and what the GPU did for them.
 * profiler_ranges.c: from these to operations of a rank. profiler_places.c:
 * which stage and replica a rank is. profiler_clocks.c: how far the clocks of
 * ranks are apart. profiler_messages.c: which receive is of which send, and how
 * long messages took. profiler_read.c: all of it, for all ranks. */
#ifndef LHI_PROFILER_H
#define LHI_PROFILER_H

#include "diagnose/rank_map.h"
#include "diagnose/unzip.h"

/* What an operation is told from, besides lhi_op_type and LHI_RANGE_...: what
 * a library of communication names itself. */
enum {
    LHI_RANGE_SEND = LHI_N_RANGES,
    LHI_RANGE_RECV,
    LHI_RANGE_SUM, /* all-reduce, reduce-scatter */
    LHI_RANGE_OTHER,
};

/* A range of a file, or a launch or a kernel of its GPU. Times are those of
 * the rank's clock, in ns. */
typedef struct lhi_named_range {
    int64_t start_ns, end_ns;
    int64_t chunk, microbatch, step; /* -1: none */
    uint8_t is;                      /* lhi_op_type or LHI_RANGE_... */
} lhi_named_range;

typedef struct lhi_kernel {
    int64_t start_ns, end_ns; /* of a launch: when the CPU made it */
    uint64_t correlation;
    bool is_launch, communicates;
} lhi_kernel;

/* Processes that communicate together. */
typedef struct lhi_rank_group {
    uint32_t *ranks;
    uint32_t n;
} lhi_rank_group;

/* An operation of a rank. */
typedef struct lhi_rank_op {
    int64_t start_ns, end_ns;
    int64_t cpu_ns, cpu_end_ns; /* of its range: the GPU's work comes later */
    int64_t step;               /* -1: of none */
    int32_t chunk, microbatch;  /* -1: none */
    uint8_t op;                 /* lhi_op_type */
    bool timed_by_gpu;
    bool waited; /* of a receive: the pass waited for it, so that it ended then
                  */
} lhi_rank_op;

/* What one rank did. */
typedef struct lhi_profiled {
    char *file;
    uint32_t rank; /* LH_NONE: the file does not say */
    uint32_t world;
    uint32_t stage, replica;
    lhi_rank_group *groups;
    uint32_t n_groups;
    lhi_rank_op *ops;
    size_t n_ops, ops_room;
    bool no_steps; /* no range of a step: steps are counted */
} lhi_profiled;

/* All ranks. */
typedef struct lhi_profiler {
    const lh_rank_map *map; /* NULL: none */
    lhi_remark_counts *remarks;
    lhi_profiled *ranks;
    uint32_t n_ranks, room;
    bool *name_used; /* of the map's names */
} lhi_profiler;

/* Reads one more file. */
lh_status lhi_profiler_add(lhi_profiler *p, lhi_unzip *zip, const char *name,
                           lh_error *err);
/* Puts all operations into `rows`. */
lh_status lhi_profiler_end(lhi_profiler *p, lhi_rows *rows, lh_error *err);
void lhi_profiler_fini(lhi_profiler *p);

#endif
