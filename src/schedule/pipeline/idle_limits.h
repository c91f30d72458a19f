/* SPDX-License-Identifier: Apache-2.0 */
/* Idle time of devices, from which a schedule is known to be too slow before
 * its simulation has ended. */
#ifndef LHI_SCHEDULE_PIPELINE_IDLE_LIMITS_H
#define LHI_SCHEDULE_PIPELINE_IDLE_LIMITS_H

#include "schedule/pipeline/pipeline_internal.h"

/* Computes, per device, the idle time in ns before its last pass from which the
 * makespan is at least useless_ns: useless_ns minus the device's passes and the
 * least reduce-scatter after the last of them. INT64_MAX on all devices if
 * durations vary (overlapped pairs, slices), or for a useless_ns of
 * INT64_MAX. */
void lhi_pipeline_compute_idle_limits(const lh_pipeline *pipeline,
                                      int64_t useless_ns, int64_t *limits);

/* Checks whether every link carries messages from only one sending device;
 * `sender`: scratch, one entry per link resource. */
bool lhi_pipeline_has_private_links(const lh_pipeline *pipeline,
                                    uint32_t *sender);

#endif
