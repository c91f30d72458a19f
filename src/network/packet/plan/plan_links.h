/* SPDX-License-Identifier: Apache-2.0 */
/* The links between datacenters that a plan's messages cross. */
#ifndef LHI_NETWORK_PACKET_PLAN_PLAN_LINKS_H
#define LHI_NETWORK_PACKET_PLAN_PLAN_LINKS_H

#include "base/arena.h"

#include <longhaul/experimental/packets.h>
#include <longhaul/experimental/plan.h>

/* A link that messages cross. */
typedef struct lhi_plan_link {
    const char *name;      /* of the pipeline's links */
    const char *from, *to; /* datacenters; borrowed from the plan */
    lh_packet_link link;   /* one sender stands for a replica's GPUs */
    uint32_t gpus;         /* of a replica, which send one message */
    double planned_ns;     /* of a message */
    uint32_t n_messages;   /* of a replica in an iteration */
    /* Per device: its number among those that send over the link; LH_NONE: does
     * not send. */
    uint32_t *senders;
    uint32_t n_senders;
} lhi_plan_link;

/* All of them. */
typedef struct lhi_plan_links {
    lhi_plan_link *links;
    uint32_t n;
    uint32_t *of_link; /* per lh_pipeline_link(): its entry; LH_NONE */
} lhi_plan_links;

/* Finds the links that the plan's messages cross, in *out. LH_EUNSUPPORTED: a
 * link lacks settings, its times are measured, replicas send a message over
 * different links, or there is no link. */
lh_status lhi_plan_links_find(const lh_plan *plan, lhi_arena *mem,
                              lhi_plan_links *out, lh_error *err);

#endif
