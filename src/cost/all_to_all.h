/* SPDX-License-Identifier: Apache-2.0 */
/* Everyone of a group sends to everyone, wherever the members are. */
#ifndef LHI_ALL_TO_ALL_H
#define LHI_ALL_TO_ALL_H

#include "cost/cost_links.h"

/* The members of a group in one datacenter. Numbers need not be whole where
 * GPUs that share an expert lie on both sides of a boundary. */
typedef struct lhi_part {
    uint32_t datacenter;
    double members;
    double near;    /* on the node that has fewest of them */
    double nodes;   /* over which they lie */
    double senders; /* GPUs that use a link from here at once */
} lhi_part;

typedef struct lhi_members {
    double size;
    uint32_t n;
    lhi_part at[LH_MAX_DATACENTERS];
} lhi_members;

/* What goes from a GPU to the others. */
typedef struct lhi_exchange {
    lh_dispatcher dispatcher;
    double copies; /* of a token: experts_per_token */
} lhi_exchange;

/* Of one byte on each GPU, all copies together: ns, where that takes longest,
 * and the latencies. `options` with defaults filled in. */
typedef struct lhi_exchange_time {
    double ns_per_byte, latency_ns;
    double wire_ns_per_byte; /* of the GPU's own interface; least: 0 */
} lhi_exchange_time;

lh_status lhi_all_to_all(const lh_job *job, const lhi_members *members,
                         const lhi_exchange *exchange,
                         const lh_cost_options *options, lhi_busiest *known,
                         lhi_exchange_time *out, lh_error *err);

/* Of each byte that a GPU sends to others on its node, and elsewhere, where that
 * takes longest; and the latencies. 0: there are none of these. */
typedef struct lhi_exchange_paths {
    double near_ns_per_byte, near_latency_ns;
    double far_ns_per_byte, far_latency_ns;
} lhi_exchange_paths;

lh_status lhi_all_to_all_paths(const lh_job *job, const lhi_members *members,
                               const lh_cost_options *options,
                               lhi_busiest *known, lhi_exchange_paths *out,
                               lh_error *err);

/* Bytes that one GPU of a part sends, of one byte, to each member elsewhere. */
double lhi_all_to_all_share(const lhi_members *members, uint32_t part,
                            const lhi_exchange *exchange);

/* No group of `size` with members here takes less, wherever the others are, if
 * of `step` GPUs one at most is a member. Fewer neighbours on the node than fit
 * there may be better, for two networks work at once; links between datacenters
 * are no faster than the interface of a GPU. */
lh_status lhi_all_to_all_least(const lh_job *job, uint32_t datacenter,
                               double size, uint32_t step,
                               const lhi_exchange *exchange,
                               const lh_cost_options *options,
                               lhi_exchange_time *out, lh_error *err);

#endif
