/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the slow links between hosts, slow network interfaces and slow hosts
 * from the times of each iteration's hops and passes.
 *
 * A hop is the traffic from one host to another: pipeline messages, or one
 * host's part of data-parallel communication. Host r * n_devices + d is device
 * d of replica r. Sequence lengths may vary: all devices of a replica process
 * the same sequences, so each replica's passes and messages are divided by its
 * work, the lower median over its devices of pass time / normal pass time.
 * Data-parallel hops carry equal bytes in all iterations. A drift detector
 * per hop and host finds changes. Rules: docs/theory/monitor.md.
 *
 * No threads, files or clock. Times are nanoseconds. */
#ifndef LHI_RESILIENCE_MONITOR_HOST_LOCALISER_H
#define LHI_RESILIENCE_MONITOR_HOST_LOCALISER_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* One hop. */
typedef struct lhi_hop {
    uint32_t from, to;  /* hosts */
    bool is_collective; /* else pipeline messages of one replica */
} lhi_hop;

/* Kinds of slow elements. */
typedef enum lhi_slow_kind {
    LHI_SLOW_LINK,      /* from host a to b */
    LHI_SLOW_INTERFACE, /* of host a, `sends`: outgoing, else incoming */
    LHI_SLOW_HOST       /* passes of host a */
} lhi_slow_kind;

/* A slow element. */
typedef struct lhi_slow_element {
    lhi_slow_kind kind;
    uint32_t a, b;
    bool sends;
    uint32_t hop;  /* link: its hop; interface: that with the largest factor */
    double factor; /* duration / normal duration; 1: the latter is 0 */
    double extra_ns; /* per message or collective of `hop`; host: passes */
} lhi_slow_element;

typedef struct lhi_host_localiser lhi_host_localiser;

/* Creates the localiser, which finds slow hosts and links, for n_replicas *
 * n_devices hosts and n_hops hops (traffic from one host to another), which are
 * copied. Release with lhi_host_localiser_free(). */
lh_status lhi_host_localiser_make(uint32_t n_replicas, uint32_t n_devices,
                                  uint32_t n_hops, const lhi_hop *hops,
                                  lhi_host_localiser **out, lh_error *err);
void lhi_host_localiser_free(lhi_host_localiser *localiser);

/* Adds one iteration: pass_ns[host], each host's total pass time, and
 * hop_ns[hop], the mean time of a hop's messages; NAN: not measured. The first
 * eight iterations must be without slowdowns. Returns whether the list of slow
 * elements was rebuilt. */
bool lhi_host_localiser_add(lhi_host_localiser *localiser,
                            const double *pass_ns, const double *hop_ns);

/* Treats all hops and hosts as normal again, without slow elements, and ignores
 * the next two iterations. To be called when other hosts, with equal normal
 * times, take the places. */
void lhi_host_localiser_reset(lhi_host_localiser *localiser);

/* Returns the slow elements, with the fewest elements that explain all slow
 * hops, once they have not changed for two iterations; until then the earlier
 * ones. Borrowed until the next call of lhi_host_localiser_add(). */
const lhi_slow_element *
lhi_host_localiser_slow(const lhi_host_localiser *localiser, uint32_t *n);

#endif
