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

/* Returns a timed device's slips since the last call and resets them. */
lhi_timed_slips lhi_timed_read_slips(lhi_device *device);

/* Takes pass and data-parallel communication times from `pipeline` from the
 * next pass on. It must have the same chunks as the device's pipeline. */
void lhi_timed_set_pipeline(lhi_device *device, const lh_pipeline *pipeline);
/* Returns a chunk with its current times. */
const lh_chunk *lhi_timed_find_chunk(const lhi_device *device, uint32_t chunk);

#endif
