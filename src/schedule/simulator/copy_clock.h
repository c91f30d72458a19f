/* SPDX-License-Identifier: Apache-2.0 */
/* Models activation offloading: when activations leave their devices and
 * return, and the copies to host memory that lengthen passes. Each device has
 * one copy stream that carries one copy at a time, in launch order
 * (schedule/pipeline/offload.h). The simulator reports each pass's start and
 * end, in the device's order, and queries when a pass may start. */
#ifndef LHI_SCHEDULE_SIMULATOR_COPY_CLOCK_H
#define LHI_SCHEDULE_SIMULATOR_COPY_CLOCK_H

#include "schedule/pipeline/offload.h"
#include "schedule/pipeline/schedule_internal.h"

#include <longhaul/experimental/simulate.h>

/* Copy streams for all devices. */
typedef struct lhi_copy_clock {
    const lh_pipeline *p;    /* NULL: no copies */
    lhi_offload_copy *items; /* by device */
    uint32_t *next, *end;    /* per device: range in `items` */
    int64_t *free_ns;        /* per device */
    const size_t *offsets;   /* per device: first pass */
    int64_t *ready_ns;       /* per pass: its copies' end */
    lh_offload_copy *done;   /* executed copies; capacity as `items` */
    uint32_t n_done;
} lhi_copy_clock;

/* Initialises the clock of offload copies for one iteration from time 0.
 * offsets[d]: index of device d's first pass, n_devices + 1 entries, borrowed.
 * All memory belongs to `mem`. */
lh_status lhi_copy_clock_init(const lh_pipeline *pipeline,
                              const lh_schedule *schedule,
                              const size_t *offsets, lhi_arena *mem,
                              lhi_copy_clock *out, lh_error *err);

/* Raises *start (ns) to the time at which all offload copies that pass number i
 * of the device needs are complete. */
void lhi_copy_clock_get_start(const lhi_copy_clock *c, uint32_t device,
                              uint32_t i, int64_t *start);
/* Launches the copies of offloaded activations back to the device that begin
 * when pass number i of the device starts, at time `start` (ns). */
void lhi_copy_clock_on_start(lhi_copy_clock *c, uint32_t device, uint32_t i,
                             int64_t start);
/* Launches the copies that offload activations to storage after pass number i
 * of the device, which ended at time `now` (ns). */
void lhi_copy_clock_on_end(lhi_copy_clock *c, uint32_t device, uint32_t i,
                           int64_t now);

/* Finds the activations that are moved to host memory, those of an F that
 * exceeds its device's own limit. They depend only on the devices' orders.
 * *out: host_copy_ns for every pass that copies, 0 for the others, by
 * offsets[d] + position, in `mem`. */
lh_status lhi_find_host_copies(const lh_pipeline *pipeline,
                               const lh_schedule *schedule,
                               int64_t host_copy_ns, const size_t *offsets,
                               lhi_arena *mem, int64_t **out, lh_error *err);

#endif
