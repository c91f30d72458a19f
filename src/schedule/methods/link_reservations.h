/* SPDX-License-Identifier: Apache-2.0 */
/* Times at which messages occupy a link, for dispatcher.c. */
#ifndef LHI_SCHEDULE_METHODS_LINK_RESERVATIONS_H
#define LHI_SCHEDULE_METHODS_LINK_RESERVATIONS_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* A link's reserved time intervals, sorted and disjoint. Intervals that ended
 * before any message can still be sent are dropped. */
typedef struct lhi_reserved_span {
    int64_t from_ns, to_ns;
} lhi_reserved_span;

/* Reservations on one link. */
typedef struct lhi_link_reservations {
    lhi_reserved_span *spans;
    uint32_t first, count, room; /* spans[first .. first + count - 1] */
} lhi_link_reservations;

/* Reserves the earliest free gap of length_ns on a link from ready_ns on
 * (CrossPipe, section 4.2.3) and sets *end_ns to its end. No later message
 * starts before now_ns, so earlier gaps are dropped. Returns false if out of
 * memory. */
bool lhi_link_reserve(lhi_arena *mem, lhi_link_reservations *b, int64_t now_ns,
                      int64_t ready_ns, int64_t length_ns, int64_t *end_ns);

#endif
