/* SPDX-License-Identifier: Apache-2.0 */
/* The timed device's functions beyond the device interface. */
#ifndef LHI_RUNTIME_DEVICE_TIMED_H
#define LHI_RUNTIME_DEVICE_TIMED_H

#include "runtime/device/device.h"

/* Passes that started too late to keep their chained deadlines. */
typedef struct lhi_timed_slips {
    uint64_t n;
    int64_t lost_ns;  /* total */
    int64_t worst_ns; /* latest start of any pass, slipped or not */
} lhi_timed_slips;

/* Returns how many passes of a timed device started late and the time lost,
 * since the last call, and resets both. */
lhi_timed_slips lhi_timed_read_slips(lhi_device *device);

/* Replaces the device's pass and data-parallel communication times by those of
 * `pipeline`, which must have the same chunks, from the next pass on. */
void lhi_timed_set_pipeline(lhi_device *device, const lh_pipeline *pipeline);
/* Returns the timed device's chunk with model-wide index `chunk`, with its
 * current pass and communication times. */
const lh_chunk *lhi_timed_find_chunk(const lhi_device *device, uint32_t chunk);

#endif
