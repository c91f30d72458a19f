/* SPDX-License-Identifier: Apache-2.0 */
/* Event heap and ring buffers of a packet simulation. */
#include "network/packet/state.h"

#include <stdlib.h>
#include <string.h>

/* --- rings --- */

bool lhi_ring_push(lhi_ring *ring, const void *item, size_t bytes)
{
    if (ring->count == ring->capacity) {
        uint32_t capacity = ring->capacity ? 2 * ring->capacity : 16;
        char *items = malloc(capacity * bytes);
        if (!items)
            return false;
        uint32_t first = ring->capacity - ring->head;
        if (ring->count > 0) {
            memcpy(items, (char *)ring->items + ring->head * bytes,
                   first * bytes);
            memcpy(items + first * bytes, ring->items, ring->head * bytes);
        }
        free(ring->items);
        ring->items = items;
        ring->capacity = capacity;
        ring->head = 0;
    }
    uint32_t at = (ring->head + ring->count++) & (ring->capacity - 1);
    memcpy((char *)ring->items + at * bytes, item, bytes);
    return true;
}

/* --- events --- */

/* Checks whether event `a` is processed before `b`: at an earlier time or, at
 * the same time, with a lower source number. */
static inline bool is_before(const lhi_packet_event *a,
                             const lhi_packet_event *b)
{
    return a->ps != b->ps ? a->ps < b->ps : a->source < b->source;
}

/* Restores the order of the event heap (four children per node): inserts event
 * `e` at index `i` or below, moving earlier events up. */
static void sift_down(lhi_packet_sim *sim, lhi_packet_event e, uint32_t i)
{
    lhi_packet_event *heap = sim->heap;
    for (;;) {
        uint32_t child = 4 * i + 1, n = sim->n_heap;
        if (child >= n)
            break;
        uint32_t last = child + 4 < n ? child + 4 : n, least = child;
        for (uint32_t k = child + 1; k < last; k++)
            if (is_before(&heap[k], &heap[least]))
                least = k;
        if (!is_before(&heap[least], &e))
            break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = e;
}

void lhi_packet_sim_schedule(lhi_packet_sim *sim, uint64_t ps, uint32_t source)
{
    const lhi_packet_event e = {ps, source};
    uint32_t i = sim->n_heap++;
    while (i > 0) {
        uint32_t parent = (i - 1) / 4;
        if (!is_before(&e, &sim->heap[parent]))
            break;
        sim->heap[i] = sim->heap[parent];
        i = parent;
    }
    sim->heap[i] = e;
}

void lhi_packet_sim_pop(lhi_packet_sim *sim)
{
    lhi_packet_event last = sim->heap[--sim->n_heap];
    if (sim->n_heap > 0)
        sift_down(sim, last, 0);
}

void lhi_packet_sim_replace_first(lhi_packet_sim *sim, uint64_t ps,
                                  uint32_t source)
{
    sift_down(sim, (lhi_packet_event){ps, source}, 0);
}
