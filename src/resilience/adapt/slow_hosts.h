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

/* Creates the record of slow hosts and links for the places (devices of
 * replicas) of `placement`, which must outlive it. It measures hops: traffic in
 * both directions between a device's replicas, if they communicate, and along
 * each pipeline link in each replica. Release with lhi_slow_hosts_free(). */
lh_status lhi_slow_hosts_make(const lh_host_placement *placement,
                              lhi_slow_hosts **out, lh_error *err);
void lhi_slow_hosts_free(lhi_slow_hosts *slow);

/* Returns the list of hops (traffic from one place to another) and its length
 * *n; borrowed. Their members `from` and `to` are places. */
const lhi_hop *lhi_slow_hosts_hops(const lhi_slow_hosts *slow, uint32_t *n);
/* Returns the pipeline link to which hop number `hop` belongs (a hop is the
 * traffic from one place to another). LH_NONE: the hop carries data-parallel
 * communication. */
uint32_t lhi_slow_hosts_link(const lhi_slow_hosts *slow, uint32_t hop);

/* Adds one iteration's measurements: pass_ns[place], the total pass time at
 * each place, and hop_ns[hop], the mean time of a message or collective on each
 * hop (traffic between two places); NAN: not measured. */
void lhi_slow_hosts_add(lhi_slow_hosts *slow, const double *pass_ns,
                        const double *hop_ns);
/* Sets hosts[place], the host at each place from the next iteration on; NULL:
 * the initial ones. Known slowdowns stay with their hosts, normal times with
 * the places. */
void lhi_slow_hosts_exchange(lhi_slow_hosts *slow, const uint32_t *hosts);

/* Returns all slowdowns found so far, per host and host link; borrowed until
 * the next call that changes them. *version increases with each change. */
const lh_host_slowdowns *lhi_slow_hosts_known(const lhi_slow_hosts *slow,
                                              uint32_t *version);

/* Writes the hosts, interfaces and links that are slow now into `text` (`room`
 * bytes), the first few by name; "": none. */
void lhi_slow_hosts_describe(const lhi_slow_hosts *slow, char *text,
                             size_t room);

/* Computes the measurements that an iteration would give if hosts and links had
 * the slowdowns `actual`: pass_ns[place] and hop_ns[hop] (a hop is the traffic
 * between two places), as lhi_slow_hosts_add() takes them. */
lh_status lhi_slow_hosts_emulate(const lhi_slow_hosts *slow,
                                 const lh_host_slowdowns *actual,
                                 double *pass_ns, double *hop_ns,
                                 lh_error *err);

#endif
