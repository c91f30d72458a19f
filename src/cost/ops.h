/* SPDX-License-Identifier: Apache-2.0 */
/* A layer as separate operations: work.c sums their times and resident_memory.c
 * their memory. tests/unit/test_ops.c checks that the three agree. */
#ifndef LHI_OPS_H
#define LHI_OPS_H

#include "cost/work.h"

/* One operation of a layer. */
typedef struct lhi_op {
    const char *name; /* static string */
    double stored;    /* bytes per GPU and microbatch */
    bool fixed;       /* not recomputable from other stored data */
    lhi_work again;   /* work to recompute it */
} lhi_op;

/* Lists a layer's operations in `ops`, an array of LH_COST_MAX_OPS; returns
 * their number. */
uint32_t lhi_ops_layer(const lhi_shape *shape, uint32_t layer, lhi_op *ops);

#endif
