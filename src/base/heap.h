/* SPDX-License-Identifier: Apache-2.0 */
/* A binary min-heap of timed events, ordered by (time, rank, seq). */
#ifndef LHI_HEAP_H
#define LHI_HEAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

typedef struct lhi_event {
    int64_t time_ns;
    uint64_t rank; /* order among events of one time */
    uint64_t seq;  /* order among events of one time and rank */
    uint64_t what; /* the caller's */
} lhi_event;

typedef struct lhi_heap {
    lhi_event *items;
    size_t count, room;
} lhi_heap;

void lhi_heap_fini(lhi_heap *heap);
bool lhi_heap_push(lhi_heap *heap, lhi_event event); /* false: no memory */
bool lhi_heap_pop(lhi_heap *heap, lhi_event *out);   /* false: empty */

#endif
