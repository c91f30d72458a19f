/* SPDX-License-Identifier: Apache-2.0 */
/* A binary min-heap of timed events, ordered by (time, rank, seq). */
#ifndef LHI_BASE_HEAP_H
#define LHI_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A timed event. */
typedef struct lhi_event {
    int64_t time_ns;
    uint64_t rank;    /* order among events with equal times */
    uint64_t seq;     /* order among equal times and ranks */
    uint64_t payload; /* caller's payload */
} lhi_event;

/* The heap; zero-initialise it. */
typedef struct lhi_heap {
    lhi_event *items;
    size_t count, capacity;
} lhi_heap;

/* Frees the heap's memory. */
void lhi_heap_fini(lhi_heap *heap);
/* Adds an event to the heap; false on allocation failure. */
bool lhi_heap_push(lhi_heap *heap, lhi_event event);
/* Removes the first event by time, rank and sequence number; false if the heap
 * is empty. */
bool lhi_heap_pop(lhi_heap *heap, lhi_event *out);

#endif
