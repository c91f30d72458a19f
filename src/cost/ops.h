/* SPDX-License-Identifier: Apache-2.0 */
/* A layer operation by operation: what work.c adds up to times and held.c to
 * memory, apart. tests/unit/test_ops.c holds the three together. */
#ifndef LHI_OPS_H
#define LHI_OPS_H

#include "cost/work.h"

typedef struct lhi_op {
    const char *name; /* static storage */
    double stored;    /* bytes per GPU and microbatch */
    bool fixed;       /* cannot be made again from what else is stored */
    lhi_work again;   /* of making it again */
} lhi_op;

/* Into `ops`, room for LH_COST_MAX_OPS; returns how many. */
uint32_t lhi_ops_layer(const lhi_shape *shape, uint32_t layer, lhi_op *ops);

#endif
