/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/methods/link_reservations.h"

#include <string.h>

/* Enlarges a link's list of reserved time intervals so that one more fits;
 * false: out of memory. */
static bool grow_intervals(lhi_arena *mem, lhi_link_reservations *b)
{
    if (b->first + b->count < b->room)
        return true;
    if (b->first > b->room / 2) {
        memmove(b->spans, b->spans + b->first, b->count * sizeof *b->spans);
    } else {
        uint32_t room = b->room ? b->room * 2 : 16;
        lhi_reserved_span *spans = LHI_NEW(mem, lhi_reserved_span, room);
        if (!spans)
            return false;
        if (b->count)
            memcpy(spans, b->spans + b->first, b->count * sizeof *spans);
        b->spans = spans;
        b->room = room;
    }
    b->first = 0;
    return true;
}

bool lhi_link_reserve(lhi_arena *mem, lhi_link_reservations *b, int64_t now_ns,
                      int64_t ready_ns, int64_t length_ns, int64_t *end_ns)
{
    while (b->count && b->spans[b->first].to_ns <= now_ns) {
        b->first++;
        b->count--;
    }
    int64_t at = ready_ns;
    uint32_t i = b->count;
    /* Most messages go to the end, so search backward from there. */
    while (i > 0 && b->spans[b->first + i - 1].to_ns > ready_ns)
        i--;
    for (; i < b->count; i++) {
        const lhi_reserved_span *s = &b->spans[b->first + i];
        if (at + length_ns <= s->from_ns)
            break;
        if (s->to_ns > at)
            at = s->to_ns;
    }
    *end_ns = at + length_ns;
    if (length_ns == 0)
        return true;
    if (i > 0 && b->spans[b->first + i - 1].to_ns == at) {
        b->spans[b->first + i - 1].to_ns = *end_ns;
        return true;
    }
    if (!grow_intervals(mem, b))
        return false;
    lhi_reserved_span *place = &b->spans[b->first + i];
    memmove(place + 1, place, (b->count - i) * sizeof *place);
    *place = (lhi_reserved_span){at, *end_ns};
    b->count++;
    return true;
}
