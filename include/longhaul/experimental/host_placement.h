/* SPDX-License-Identifier: Apache-2.0 */
/* Host assignment to a job's placements, and exchanges that shorten the
 * iteration when hosts or links are slow (Adaptra, arXiv:2504.19232, section 6;
 * Falcon). A pipeline with P devices and R replicas runs on R x P hosts.
 * Placement r x P + d is device d of replica r; initially it is held by the
 * host with the same number.
 *
 * Assumptions: without slowdowns, all hosts are equal, and so are all links
 * between hosts. If the pipeline's links or device memories differ, only hosts
 * of the same device are equal, and only they exchange placements. Neighbouring
 * devices of a replica exchange messages. A device's replicas form a ring for
 * data-parallel communication (replica r sends to r + 1), as fast as its
 * slowest link. A slow link's effect therefore depends on its traffic, which a
 * host exchange changes. Rules: docs/theory/host-placement.md.
 *
 * No threads, files or clock. Times are nanoseconds.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_HOST_PLACEMENT_H
#define LONGHAUL_EXPERIMENTAL_HOST_PLACEMENT_H

#include <longhaul/experimental/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most hosts in a placement. */
#define LH_MAX_HOSTS 1024u

typedef struct lh_host_placement
    lh_host_placement; /* immutable after creation */

/* Options for lh_host_placement_make(). */
typedef struct lh_host_placement_options {
    size_t size;         /* sizeof(lh_host_placement_options) */
    uint32_t n_replicas; /* 0: 1 */
    /* Per chunk: traffic of one ring link in its all-gather and in its
     * reduce-scatter, as a number of messages. NULL: derived from the times on
     * a pipeline link. */
    const double *gather_messages, *scatter_messages;
    /* Per device: time to send its host's state (weights and moments) over a
     * link without slowdowns. NULL: zero. */
    const int64_t *state_ns;
    /* The state's size as a number of messages; NULL: derived from state_ns. */
    const double *state_messages;
} lh_host_placement_options;

/* Creates a model for hosts that exchange places (devices of replicas).
 * `pipeline` is one replica without slowdowns; its data-parallel times are
 * those of a ring over all replicas. Links that it lacks take no time. Release
 * with lh_host_placement_free(). LH_EUNSUPPORTED: links share a resource, or
 * data-parallel operations run within the iteration. LH_EINVAL: an option is
 * out of range. */
LH_API lh_status lh_host_placement_make(
    const lh_pipeline *pipeline, const lh_host_placement_options *options,
    lh_host_placement **out, lh_error *err);
LH_API void
lh_host_placement_free(lh_host_placement *places); /* frees; NULL is a no-op */

/* Extra delay on the link from one host to another. */
typedef struct lh_host_link_delay {
    uint32_t from, to;
    int64_t latency_ns, transfer_ns; /* transfer: per message */
} lh_host_link_delay;

/* Current slowdowns. */
typedef struct lh_host_slowdowns {
    size_t size; /* sizeof(lh_host_slowdowns) */
    uint32_t n_links;
    const lh_host_link_delay *links; /* several entries for one pair add up */
    const double
        *pass_factors; /* per host: factor on its passes, >= 1; NULL: 1 */
} lh_host_slowdowns;

/* Builds one replica's pipeline with host hosts[i] at place i (NULL: the
 * initial ones) under the slowdowns `now` (NULL: none). Each link and device
 * has its longest time over all replicas, since replicas wait for each other:
 * exact if the slowdowns are all in one replica or equal in all, else an upper
 * bound. Release with lh_pipeline_free(). LH_EINVAL: `hosts` is no permutation,
 * or a value in `now` is out of range. */
LH_API lh_status lh_host_placement_pipeline(const lh_host_placement *places,
                                            const lh_host_slowdowns *now,
                                            const uint32_t *hosts,
                                            lh_pipeline **out, lh_error *err);

/* Options for lh_host_placement_find_exchange(). */
typedef struct lh_host_exchange_options {
    size_t size;               /* sizeof(lh_host_exchange_options) */
    const uint32_t *hosts;     /* current host per placement; NULL: initial */
    const lh_sim_options *sim; /* message options; NULL: defaults */
    double benefit_steps;      /* iterations that benefit; 0: 10^6 */
    /* Up to this number of hosts, all orders are evaluated; above it, hill
     * climbing with exchanges of two hosts. 0: 8, which is also the maximum. */
    uint32_t max_exhaustive_hosts;
} lh_host_exchange_options;

/* Transfer of a placement's state from its old host to its new host. */
typedef struct lh_host_move {
    uint32_t place, from, to;
    uint32_t relay; /* relaying host; LH_NONE: sent directly */
    int64_t start_ns, end_ns;
} lh_host_move;

/* A proposed host exchange with its predicted effect and its transfers. */
typedef struct lh_host_exchange {
    bool is_exchange; /* true if the exchange saves more than it costs */
    uint32_t n_hosts;
    const uint32_t *hosts; /* host per placement afterwards; unchanged if no
                            * exchange */
    int64_t current_ns, predicted_ns; /* iteration time, before and after */
    int64_t move_ns; /* migration time; each host sends one item at a time and
                      * receives one */
    uint32_t n_moves;
    const lh_host_move *moves;
    bool is_exhaustive;   /* all orders were evaluated */
    uint64_t n_evaluated; /* host orders considered */
    uint64_t n_simulated; /* orders that differ in link traffic */
    const char *why;      /* explanation in one or two sentences */
} lh_host_exchange;

/* Searches for the order of hosts over the places that minimises the time of
 * the coming iterations, migration included. Ties: fewest moves, then the
 * smallest host numbers. Release with lh_host_exchange_free(). Errors as in
 * lh_host_placement_pipeline() and lh_simulate(). */
LH_API lh_status lh_host_placement_find_exchange(
    const lh_host_placement *places, const lh_host_slowdowns *now,
    const lh_schedule *schedule, const lh_host_exchange_options *options,
    lh_host_exchange **out, lh_error *err);
/* Frees a host exchange; ignores NULL. */
LH_API void lh_host_exchange_free(lh_host_exchange *exchange);

#ifdef __cplusplus
}
#endif
#endif
