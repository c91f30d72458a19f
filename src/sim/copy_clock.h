/* SPDX-License-Identifier: Apache-2.0 */
/* When activations leave their devices and come back: each device has a stream
 * for that, which carries one copy at a time, in the order of their launch
 * (pipe/offload.h). Whoever runs the passes tells when each starts and ends, in
 * the order of its device, and asks when one may start. */
#ifndef LHI_COPY_CLOCK_H
#define LHI_COPY_CLOCK_H

#include "pipe/offload.h"
#include "pipe/schedule_own.h"

#include <longhaul/simulate.h>

typedef struct lhi_copy_clock {
    const lh_pipeline *p;  /* NULL: nothing is copied */
    lhi_offload *items;    /* device by device */
    uint32_t *next, *end;  /* per device: of its items */
    int64_t *free_ns;      /* per device */
    const size_t *offsets; /* per device: of its passes */
    int64_t *ready_ns;     /* per pass: its copies are done */
    lh_copy *done;         /* as many as items */
    uint32_t n_done;
} lhi_copy_clock;

/* Of one iteration from time 0 on. `offsets`: n_devices + 1, borrowed. In
 * `mem`, as is all that it points to. */
lh_status lhi_copies_make(const lh_pipeline *pipeline,
                          const lh_schedule *schedule, const size_t *offsets,
                          lhi_arena *mem, lhi_copy_clock *out, lh_error *err);

/* Raises *start to when pass `i` of the device may start. */
void lhi_copies_ready(const lhi_copy_clock *c, uint32_t device, uint32_t i,
                      int64_t *start);
void lhi_copies_started(lhi_copy_clock *c, uint32_t device, uint32_t i,
                        int64_t start);
void lhi_copies_ended(lhi_copy_clock *c, uint32_t device, uint32_t i,
                      int64_t now);

#endif
