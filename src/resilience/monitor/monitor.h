/* SPDX-License-Identifier: Apache-2.0 */
/* Events and estimates of a monitor. */
#ifndef LHI_RESILIENCE_MONITOR_MONITOR_H
#define LHI_RESILIENCE_MONITOR_MONITOR_H

#include <longhaul/experimental/monitor.h>

/* Sets the schedule that runs from the next iteration on and the simulator's
 * message options for it (`sim`, copied; NULL: unchanged), and simulates its
 * iteration time without slowdowns. */
lh_status lhi_monitor_set_schedule_and_path(lh_monitor *monitor,
                                            const lh_schedule *schedule,
                                            const lh_sim_options *sim,
                                            lh_error *err);

/* Returns the events (changes detected) of the last added iteration, and their
 * number; borrowed until the next one is added. */
const lh_monitor_event *lhi_monitor_events(const lh_monitor *monitor,
                                           uint32_t *n);

/* Returns the current estimates for link `l` in ns: message delay, latency and
 * transfer time. */
lh_link_estimate lhi_monitor_link(const lh_monitor *monitor, uint32_t link);

/* Returns the current estimate of the duration in ns of a chunk's `kind` passes
 * (F, D, W or B). */
lh_pass_estimate lhi_monitor_pass(const lh_monitor *monitor, uint32_t chunk,
                                  lh_pass_kind kind);

/* Returns the estimated offset of clock b relative to clock a, in ns, with its
 * error. */
lh_clock_estimate lhi_monitor_clock(const lh_monitor *monitor, uint32_t a,
                                    uint32_t b);

#endif
