/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

#include <stdlib.h>

void lhi_heap_fini(lhi_heap *heap)
{
    free(heap->items);
    *heap = (lhi_heap){0};
}

/* Checks whether event `a` precedes `b`: by time, then rank, then sequence
 * number. */
static bool is_before(const lhi_event *a, const lhi_event *b)
{
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns;
    if (a->rank != b->rank)
        return a->rank < b->rank;
    return a->seq < b->seq;
}

bool lhi_heap_push(lhi_heap *heap, lhi_event event)
{
    if (heap->count == heap->capacity) {
        size_t room = heap->capacity ? heap->capacity * 2 : 64;
        lhi_event *items = realloc(heap->items, room * sizeof *items);
        if (!items)
            return false;
        heap->items = items;
        heap->capacity = room;
    }
    size_t i = heap->count++;
    while (i > 0) {
        size_t parent = (i - 1) / 2;
        if (!is_before(&event, &heap->items[parent]))
            break;
        heap->items[i] = heap->items[parent];
        i = parent;
    }
    heap->items[i] = event;
    return true;
}

bool lhi_heap_pop(lhi_heap *heap, lhi_event *out)
{
    if (heap->count == 0)
        return false;
    *out = heap->items[0];
    lhi_event last = heap->items[--heap->count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count &&
            is_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!is_before(&heap->items[child], &last))
            break;
        heap->items[i] = heap->items[child];
        i = child;
    }
    if (heap->count)
        heap->items[i] = last;
    return true;
}
