/* SPDX-License-Identifier: Apache-2.0 */
/* The slow links, interfaces and hosts of a run, from the times measured at its
 * places. The run may exchange hosts: what was found about them stays known
 * while no traffic shows it. */
#ifndef LHI_RESILIENCE_ADAPT_SLOW_HOSTS_H
#define LHI_RESILIENCE_ADAPT_SLOW_HOSTS_H

#include "resilience/monitor/host_localiser.h"

#include <longhaul/experimental/host_placement.h>
#include <stddef.h>

typedef struct lhi_slow_hosts lhi_slow_hosts;

/* Creates it for the places of `placement`, which must outlive it, with the
 * initial hosts. Hops: in both directions between all replicas of a device,
 * if it has data-parallel communication, and along the pipeline's links in each
 * replica. Release with lhi_slow_hosts_free(). */
lh_status lhi_slow_hosts_make(const lh_host_placement *placement,
                              lhi_slow_hosts **out, lh_error *err);
void lhi_slow_hosts_free(lhi_slow_hosts *slow);

/* Returns the hops; from and to are places. */
const lhi_hop *lhi_slow_hosts_hops(const lhi_slow_hosts *slow, uint32_t *n);
/* Returns the link of the pipeline that hop number `hop` follows; LH_NONE: it
 * is data-parallel. */
uint32_t lhi_slow_hosts_link(const lhi_slow_hosts *slow, uint32_t hop);

/* Adds an iteration: the total pass time of each place, and the mean time of a
 * message or collective on each hop; NAN: not measured. */
void lhi_slow_hosts_add(lhi_slow_hosts *slow, const double *pass_ns,
                        const double *hop_ns);
/* Sets the host at each place from the next iteration on; NULL: the initial
 * ones. The normal times of the places stay. */
void lhi_slow_hosts_exchange(lhi_slow_hosts *slow, const uint32_t *hosts);

/* Returns the known slowdowns; borrowed until the next call that changes them.
 * *version: a number that changes with them. */
const lh_host_slowdowns *lhi_slow_hosts_known(const lhi_slow_hosts *slow,
                                              uint32_t *version);

/* Writes the elements that are slow with the present hosts into `text`, of
 * `room` bytes, the first few by name; "": none. */
void lhi_slow_hosts_describe(const lhi_slow_hosts *slow, char *text,
                             size_t room);

/* Writes the times that would be measured under the actual slowdowns `actual`
 * of emulated hosts and links into pass_ns and hop_ns: of the pipeline's
 * messages, and of data-parallel communication in a ring. */
lh_status lhi_slow_hosts_emulate(const lhi_slow_hosts *slow,
                                 const lh_host_slowdowns *actual,
                                 double *pass_ns, double *hop_ns,
                                 lh_error *err);

#endif
