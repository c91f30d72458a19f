/* SPDX-License-Identifier: Apache-2.0 */
/* A recording's rows, with the names for their operation kinds. */
#ifndef LHI_REPORT_DIAGNOSIS_OP_ROWS_H
#define LHI_REPORT_DIAGNOSIS_OP_ROWS_H

#include "base/fail.h"
#include "report/diagnosis/defects.h"

#include <longhaul/experimental/diagnose.h>

#include <stdbool.h>
#include <stdint.h>

/* X(name, text, operation): kinds with their names in rows. */
#define LHI_OP_LIST(X)                                                         \
    X(FORWARD, "forward-compute", FORWARD_COMPUTE)                             \
    X(BACKWARD, "backward-compute", BACKWARD_COMPUTE)                          \
    X(INPUT, "backward-input", BACKWARD_INPUT)                                 \
    X(WEIGHT, "backward-weight", BACKWARD_WEIGHT)                              \
    X(FORWARD_SEND, "forward-send", FORWARD_PP_COMM)                           \
    X(FORWARD_RECV, "forward-recv", FORWARD_PP_COMM)                           \
    X(BACKWARD_SEND, "backward-send", BACKWARD_PP_COMM)                        \
    X(BACKWARD_RECV, "backward-recv", BACKWARD_PP_COMM)                        \
    X(ALL_GATHER, "params-all-gather", PARAMS_ALL_GATHER)                      \
    X(REDUCE_SCATTER, "grads-reduce-scatter", GRADS_REDUCE_SCATTER)            \
    X(SEPARATE, "separate-grads-all-reduce", SEPARATE_GRADS_ALL_REDUCE)        \
    X(LAYERNORM, "layernorm-grads-all-reduce", LAYERNORM_GRADS_ALL_REDUCE)     \
    X(EMBEDDING, "embedding-grads-all-reduce", EMBEDDING_GRADS_ALL_REDUCE)     \
    X(CLIP, "optimizer-clip-main-grad", OPTIMIZER_CLIP)                        \
    X(OPTIMIZER, "optimizer", OPTIMIZER)                                       \
    X(GC, "gc", GC)

/* Row operation kinds. */
typedef enum lhi_op_type {
#define LHI_OP_ENUM(name, text, operation) LHI_OP_##name,
    LHI_OP_LIST(LHI_OP_ENUM)
#undef LHI_OP_ENUM
        LHI_N_OPS
} lhi_op_type;

/* Returns the public operation (lh_operation) to which an internal kind
 * belongs. */
lh_operation lhi_op_operation(lhi_op_type op);
/* Returns an operation kind's name in recording tables. */
const char *lhi_op_name(lhi_op_type op);
/* Returns the operation kind with that name, or LHI_N_OPS. */
lhi_op_type lhi_op_find(const char *text, size_t len);
/* Checks whether the worker itself runs an operation kind, not the network.
 * Its typical time is the mean; a communication's is the median. */
bool lhi_op_is_compute(lhi_op_type op);
/* Checks whether an operation kind is a forward or backward pass. */
bool lhi_op_is_pass(lhi_op_type op);
/* Checks whether an operation kind is a receive between stages. */
bool lhi_op_is_receive(lhi_op_type op);

enum {
    LHI_MAX_STAGES_OR_REPLICAS = 65535,
    LHI_MAX_RECORDED_STEPS = 16384,
    LHI_MAX_STEP_ROWS = 1 << 25, /* per step */
};

/* One rank's operation; times in ns. */
typedef struct lhi_op_row {
    int64_t start_ns, ns;
    uint32_t rank, index; /* order: seq_id among the rank's rows of its kind */
    int32_t microbatch;   /* -1: none */
    uint16_t stage, replica;
    int16_t stage_chunk,
        chunk;  /* chunk number on the stage; in the model; -1: none */
    uint8_t op; /* lhi_op_type */
} lhi_op_row;

/* One step's rows. */
typedef struct lhi_row_list {
    uint64_t step;
    lhi_op_row *rows;
    size_t n, room;
    bool is_preposted; /* receives are pre-posted, as in traces */
} lhi_row_list;

/* All steps in memory, by step. */
typedef struct lhi_rows {
    lhi_row_list *lists;
    uint32_t n_lists, room;
    uint32_t latest_list; /* latest row's list */
    size_t n;             /* rows in all lists */
    lhi_defect_counts *remarks;
    /* Consumes a completed step's rows; later rows for the same step are then
     * an error. NULL: all rows stay in memory. */
    lh_status (*close)(void *context, lhi_row_list *list, lh_error *err);
    void *context;
    uint64_t *closed;
    uint32_t n_closed, closed_room;
    size_t max_rows; /* rows in memory before steps are closed */
} lhi_rows;

/* Adds an operation to its step. If too many operations are in memory, first
 * closes other steps: passes them to the callback rows->close. */
lh_status lhi_rows_add(lhi_rows *rows, uint64_t step, const lhi_op_row *row,
                       lh_error *err);
/* Marks the latest operation's step as one with pre-posted receives: receives
 * that start before their pass needs them, so that transfers overlap with
 * passes. */
void lhi_rows_mark_preposted(lhi_rows *rows);
/* Closes all remaining steps in order: passes each to the callback
 * rows->close. */
lh_status lhi_rows_close(lhi_rows *rows, lh_error *err);
/* Frees all operations that are not yet passed to rows->close. */
void lhi_rows_fini(lhi_rows *rows);

#endif
