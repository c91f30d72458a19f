/* SPDX-License-Identifier: Apache-2.0 */
/* Reader for PyTorch profiler traces (Kineto: Chrome trace events, JSON) as
 * rows in a recording.
 *
 * - profiler_events.c: a file's ranges and their GPU work
 * - profiler_nsight.c: the same from an export of Nsight Systems
 * - profiler_cpu.c: a file's CPU operators
 * - profiler_passes.c: passes of a file without ranges, from its operators
 * - profiler_ranges.c: a rank's operations from these
 * - profiler_positions.c: stages of ranks whose passes do not name their chunk
 * - profiler_ranks.c: a rank's stage and replica
 * - profiler_clocks.c: clock offsets between ranks
 * - profiler_messages.c: matches receives with sends and computes transfer
 *   times
 * - profiler_activity.c: a file's times of computation and communication
 * - profiler_read.c: the whole conversion for all ranks */
#ifndef LHI_REPORT_DIAGNOSIS_PROFILER_H
#define LHI_REPORT_DIAGNOSIS_PROFILER_H

#include "report/diagnosis/gzip_stream.h"
#include "report/diagnosis/rank_activity.h"
#include "report/diagnosis/rank_map.h"

/* Range kinds that communication libraries name themselves, besides
 * lhi_op_type. */
enum {
    LHI_RANGE_SEND = LHI_N_RANGES,
    LHI_RANGE_RECV,
    LHI_RANGE_REDUCE, /* all-reduce, reduce-scatter */
    LHI_RANGE_OTHER,
};

/* A range in a file, or a launch or a kernel on its GPU. Times are in ns on the
 * rank's clock. */
typedef struct lhi_named_range {
    int64_t start_ns, end_ns;
    int64_t chunk, microbatch, step; /* -1: none */
    uint8_t kind;                    /* lhi_op_type or LHI_RANGE_... */
} lhi_named_range;

/* A launch or kernel, matched by correlation id. */
typedef struct lhi_kernel {
    int64_t start_ns, end_ns; /* for a launch: the CPU's call */
    uint64_t correlation;
    bool is_launch, communicates, is_copy;
} lhi_kernel;

/* A CPU operator's kind. */
typedef enum lhi_cpu_kind {
    LHI_CPU_OTHER,
    LHI_CPU_AUTOGRAD, /* a backward pass function */
    LHI_CPU_SEND,     /* to another rank */
    LHI_CPU_RECV,
    LHI_CPU_COMMUNICATION, /* collectives; the libraries' waits */
} lhi_cpu_kind;

/* A CPU thread's outermost operator, or a communication library's range. */
typedef struct lhi_cpu_op {
    int64_t start_ns, end_ns;
    int64_t first_number, last_number; /* autograd's; -1: none */
    size_t order;                      /* in the file */
    lhi_cpu_kind kind;
    bool is_range; /* a library's range, which is not nested in operators */
    int64_t thread;
} lhi_cpu_op;

/* A process group. */
typedef struct lhi_rank_group {
    uint32_t *ranks;
    uint32_t n;
} lhi_rank_group;

/* A rank's operation. */
typedef struct lhi_rank_op {
    int64_t start_ns, end_ns;
    int64_t cpu_ns, cpu_end_ns; /* its CPU range; its GPU work runs later */
    int64_t step;               /* -1: outside any step */
    int32_t chunk, microbatch;  /* -1: none */
    uint8_t op;                 /* lhi_op_type */
    bool timed_by_gpu;
    bool is_exact; /* receive: a pass waited for it, so its end is exact */
} lhi_rank_op;

/* One of a rank's files: its part of the operations, and its activity. */
typedef struct lhi_profiled_file {
    char *name; /* owned; NULL: the rank's */
    size_t first_op, n_ops;
    lhi_activity activity;
} lhi_profiled_file;

/* One rank's operations. */
typedef struct lhi_profiled_rank {
    char *file;    /* the first one */
    uint32_t rank; /* LH_NONE: absent from the file */
    uint32_t world;
    uint32_t stage, replica;
    lhi_rank_group *groups;
    uint32_t n_groups;
    lhi_rank_op *ops;
    size_t n_ops, ops_room;
    lhi_profiled_file *files;
    size_t n_files, files_room;
    bool no_steps;         /* no step ranges: steps are counted */
    lhi_activity activity; /* of all files */
} lhi_profiled_rank;

/* Profiler reader state for all ranks. */
typedef struct lhi_profiler {
    const lh_rank_map *map; /* NULL: none */
    lhi_defect_counts *remarks;
    lhi_profiled_rank *ranks;
    uint32_t n_ranks, room;
    bool *name_used; /* per name in the map */
} lhi_profiler;

/* Reads one PyTorch profiler file and adds the operations in it to its rank. */
lh_status lhi_profiler_read_file(lhi_profiler *p, lhi_gzip_stream *zip,
                                 const char *name, lh_error *err);
/* Reads a file that Nsight Systems exported (--type jsonlines): one rank for
 * each process in it. */
lh_status lhi_profiler_read_nsight(lhi_profiler *p, lhi_gzip_stream *zip,
                                   const char *name, lh_error *err);
/* Checks the ranks against the map. A single file that lacks a rank number gets
 * the number 0. LH_EINPUT: a name in the map matched no range, or the map lacks
 * a rank. */
lh_status lhi_profiler_check_map(lhi_profiler *p, lh_error *err);
/* Adds all ranks' operations to `rows`, step by step, after
 * lhi_profiler_check_map(). */
lh_status lhi_profiler_write_rows(lhi_profiler *p, lhi_rows *rows,
                                  lh_error *err);
/* Frees the operations and names of all ranks of the profiler. */
void lhi_profiler_fini(lhi_profiler *p);

#endif
