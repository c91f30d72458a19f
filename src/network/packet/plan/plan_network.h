/* SPDX-License-Identifier: Apache-2.0 */
/* One iteration of a plan whose messages between datacenters are delivered by a
 * packet simulation, or by times drawn from one. */
#ifndef LHI_NETWORK_PACKET_PLAN_PLAN_NETWORK_H
#define LHI_NETWORK_PACKET_PLAN_PLAN_NETWORK_H

#include "network/packet/plan/plan_links.h"
#include "network/packet/simulation.h"

/* One iteration's input. */
typedef struct lhi_plan_iteration {
    const lh_plan *plan;
    const lhi_plan_links *links;
    uint32_t sample; /* LH_PACKET_ALL, or messages of each sender */
    uint64_t seed;
    bool (*progress)(void *context, uint64_t events);
    void *context;
} lhi_plan_iteration;

/* One iteration's result, per entry of its links; the caller allocates the
 * arrays. */
typedef struct lhi_plan_iteration_result {
    int64_t makespan_ns;
    double *const *message_ns; /* [link][message] */
    lh_packet_counters *counters;
    lh_packet_record *records; /* zeroed; NULL: none */
} lhi_plan_iteration_result;

/* Simulates the schedule with its messages between datacenters packet by packet
 * into *out. */
lh_status lhi_plan_iteration_simulate(const lhi_plan_iteration *iteration,
                                      lhi_plan_iteration_result *out,
                                      lh_error *err);

#endif
