/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a recording, and how its kinds of operations are called there. */
#ifndef LHI_OP_ROWS_H
#define LHI_OP_ROWS_H

#include "base/fail.h"
#include "diagnose/remarks.h"

#include <longhaul/diagnose.h>

#include <stdbool.h>
#include <stdint.h>

/* X(name, text, operation): as rows name them. */
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

typedef enum lhi_op_type {
#define LHI_OP_ENUM(name, text, operation) LHI_OP_##name,
    LHI_OP_LIST(LHI_OP_ENUM)
#undef LHI_OP_ENUM
        LHI_N_OPS
} lhi_op_type;

lh_operation lhi_op_operation(lhi_op_type op);
const char *lhi_op_name(lhi_op_type op);
/* LHI_N_OPS: none is called so. */
lhi_op_type lhi_op_find(const char *text, size_t len);
/* It is done by the worker itself and not by a network: its usual time is the
 * mean, a communication's the median. */
bool lhi_op_is_compute(lhi_op_type op);
bool lhi_op_is_pass(lhi_op_type op);
bool lhi_op_is_receive(lhi_op_type op);

enum {
    LHI_MOST_PLACES = 65535,
    LHI_MOST_STEPS = 16384,
    LHI_MOST_ROWS = 1 << 25, /* of a step */
};

typedef struct lhi_op_row {
    int64_t start_ns, ns;
    uint32_t rank, order; /* order: seq_id, among its kind on its rank */
    int32_t microbatch;   /* -1: none */
    uint16_t stage, replica;
    int16_t here, chunk; /* which chunk of the stage; of the model; -1 */
    uint8_t op;          /* lhi_op_type */
} lhi_op_row;

/* The rows of one step. */
typedef struct lhi_row_list {
    uint64_t step;
    lhi_op_row *rows;
    size_t n, room;
    bool ahead; /* receives are posted ahead of need, as in traces */
} lhi_row_list;

/* All steps whose rows are held, by step. */
typedef struct lhi_rows {
    lhi_row_list *lists;
    uint32_t n_lists, room;
    uint32_t last; /* the list that got the last row */
    size_t n;      /* rows in all of them */
    lhi_remark_counts *remarks;
    /* Takes the rows of a step that is over; a step that comes again is then an
     * error. NULL: everything is held. */
    lh_status (*close)(void *context, lhi_row_list *list, lh_error *err);
    void *context;
    uint64_t *closed;
    uint32_t n_closed, closed_room;
    size_t most; /* rows to hold before steps are closed */
} lhi_rows;

lh_status lhi_rows_add(lhi_rows *rows, uint64_t step, const lhi_op_row *row,
                       lh_error *err);
/* Receives of the step of the last row are posted ahead of need. */
void lhi_rows_post_ahead(lhi_rows *rows);
/* Closes all that is left, in order of steps. */
lh_status lhi_rows_close(lhi_rows *rows, lh_error *err);
void lhi_rows_fini(lhi_rows *rows);

#endif
