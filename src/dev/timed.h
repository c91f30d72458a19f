/* SPDX-License-Identifier: Apache-2.0 */
/* What the timed device tells beyond what all devices do. */
#ifndef LHI_TIMED_H
#define LHI_TIMED_H

#include "dev/dev.h"

/* Passes that began too late for their deadlines to be chained. */
typedef struct lhi_timed_slips {
    uint64_t n;
    int64_t lost_ns;  /* by all of them */
    int64_t worst_ns; /* the latest start of any pass, slipped or not */
} lhi_timed_slips;

/* Of a timed device, since the last call. */
lhi_timed_slips lhi_timed_take_slips(lhi_device *device);

/* From the next pass on passes, and data-parallel communication, take their
 * times in `pipeline`, which has the same chunks as the device's. */
void lhi_timed_take_times(lhi_device *device, const lh_pipeline *pipeline);
/* A chunk with its times of now. */
const lh_chunk *lhi_timed_chunk(const lhi_device *device, uint32_t chunk);

#endif
