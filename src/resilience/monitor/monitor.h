/* SPDX-License-Identifier: Apache-2.0 */
/* Events and estimates of a monitor. */
#ifndef LHI_RESILIENCE_MONITOR_MONITOR_H
#define LHI_RESILIENCE_MONITOR_MONITOR_H

#include <longhaul/experimental/monitor.h>

/* Sets the schedule and the message options (`sim`, copied; NULL: unchanged)
 * from the next iteration on. */
lh_status lhi_monitor_set_schedule_and_path(lh_monitor *monitor,
                                            const lh_schedule *schedule,
                                            const lh_sim_options *sim,
                                            lh_error *err);

/* Returns events caused by the last added iteration; borrowed until the next.
 */
const lh_monitor_event *lhi_monitor_events(const lh_monitor *monitor,
                                           uint32_t *n);

/* Returns the link's current estimate. */
lh_link_estimate lhi_monitor_link(const lh_monitor *monitor, uint32_t link);

/* Returns the current estimate for a chunk's passes of one kind. */
lh_pass_estimate lhi_monitor_pass(const lh_monitor *monitor, uint32_t chunk,
                                  lh_pass_kind kind);

/* Returns the offset of clock b against clock a. */
lh_clock_estimate lhi_monitor_clock(const lh_monitor *monitor, uint32_t a,
                                    uint32_t b);

#endif
