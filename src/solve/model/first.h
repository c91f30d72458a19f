/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine could end an operation first: a tournament, so that only what
 * has changed is looked at again. */
#ifndef LHI_FIRST_H
#define LHI_FIRST_H

#include "solve/model/shop.h"

typedef struct lhi_first {
    uint32_t n, n_leaves; /* machines; a power of two */
    int64_t *end;         /* per machine; FAR: it has nothing to run */
    uint32_t *winner; /* [1] of all, [2 i], [2 i + 1] of the halves of i's */
    bool *stale;      /* per machine: to be looked at again */
    uint32_t *list;   /* of those */
    uint32_t n_stale;
} lhi_first;

lh_status lhi_first_make(lhi_first *first, uint32_t n_machines, lhi_arena *mem,
                         lh_error *err);
/* Nobody has anything to run, and all are to be looked at. */
void lhi_first_begin(lhi_first *first);
void lhi_first_stale(lhi_first *first, uint32_t machine);
/* A machine to be looked at, or NONE. */
uint32_t lhi_first_next(lhi_first *first);
void lhi_first_set(lhi_first *first, uint32_t machine, int64_t end);
/* Of those with the least end the one that comes first, or NONE. */
uint32_t lhi_first_get(const lhi_first *first);

#endif
