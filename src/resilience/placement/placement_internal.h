/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a placement (lh_host_placement).
 *
 * Input: a pipeline, the replica count, and the present slowdowns. Output: each
 * host's place, and the resulting times
 * (longhaul/experimental/host_placement.h).
 *
 * - placement.c: a pipeline with a placement's slowdowns
 * - state_migration.c: state transfer from host to host
 * - exchange.c: search for the best placement
 * - exchange_text.c: its explanation; text_fragments.h: its parts
 * - layers_internal.h: the chunks' layers */
#ifndef LHI_RESILIENCE_PLACEMENT_PLACEMENT_INTERNAL_H
#define LHI_RESILIENCE_PLACEMENT_PLACEMENT_INTERNAL_H

#include "base/arena.h"
#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/host_placement.h>

/* A placement problem: hosts, replicas and the times of the links between
 * hosts. */
struct lh_host_placement {
    lhi_arena *mem;
    lh_pipeline *pipeline; /* with links for all messages */
    uint32_t n_replicas, n_devices, n_hosts;
    bool hosts_are_equivalent; /* all hosts are equivalent; else a device's */
    /* Of each link; 0 if links differ: then only the pipeline's links are
     * known. */
    int64_t latency_ns, transfer_ns;
    double *gather_messages, *scatter_messages; /* per chunk, in messages */
    int64_t *state_ns;                          /* per device */
    double *state_messages; /* per device; negative: unknown */
};

/* Checks whether a host can take a place: all hosts are equivalent, or both
 * belong to the same device. */
static inline bool lhi_host_placement_can_host(const lh_host_placement *places,
                                               uint32_t host, uint32_t place)
{
    return places->hosts_are_equivalent ||
           host % places->n_devices == place % places->n_devices;
}

/* Additional time over the normal one. */
typedef struct lhi_additional_time {
    int64_t latency_ns, transfer_ns;
} lhi_additional_time;

/* Validated lh_host_slowdowns as dense tables. */
typedef struct lhi_host_slowdown_tables {
    uint32_t n_hosts;
    lhi_additional_time *links; /* [from * n_hosts + to] */
    double *pass_factors;       /* per host */
} lhi_host_slowdown_tables;

/* Checks the slowdowns `given` and converts them to tables per host and per
 * pair of hosts, *out, allocated in `mem`. */
lh_status lhi_host_slowdowns_check(const lh_host_placement *places,
                                   const lh_host_slowdowns *now, lhi_arena *mem,
                                   lhi_host_slowdown_tables *out,
                                   lh_error *err);

/* Returns the additional time on a link between hosts. */
static inline lhi_additional_time
lhi_host_slowdowns_link(const lhi_host_slowdown_tables *slow, uint32_t from,
                        uint32_t to)
{
    return slow->links[(size_t)from * slow->n_hosts + to];
}

/* All inputs of a pipeline's times: two host orders with equal views have equal
 * iteration times. */
typedef struct lhi_placement_view {
    lhi_additional_time *links; /* per pipeline link */
    lhi_additional_time *rings; /* per device */
    double *pass_factors;       /* per device */
} lhi_placement_view;

/* Returns the size in bytes of a view's three contiguous arrays. A view holds
 * the slowdowns per link, data-parallel ring and device that one host order
 * leads to. */
size_t lhi_placement_view_bytes(const lh_host_placement *places);
/* Allocates a view's three arrays in `mem`: the slowdowns per link,
 * data-parallel ring and device that one host order leads to. Returns false on
 * allocation failure. */
bool lhi_placement_view_make(const lh_host_placement *places, lhi_arena *mem,
                             lhi_placement_view *out);
/* Computes one replica's view with host hosts[i] at place i: for each link,
 * data-parallel ring and device the largest slowdown over all replicas. */
void lhi_placement_view_fill(const lh_host_placement *places,
                             const lhi_host_slowdown_tables *slow,
                             const uint32_t *hosts, lhi_placement_view *view);
/* Builds the pipeline with the slowdowns of `view` (per link, ring and device).
 * LH_EINPUT: a time exceeds the limit for pipeline times. */
lh_status lhi_placement_view_pipeline(const lh_host_placement *places,
                                      const lhi_placement_view *view,
                                      lh_pipeline **out, lh_error *err);

/* Copies `given`, the host at each place, into *out, allocated in `mem`, and
 * checks it; NULL: the initial hosts. */
lh_status lhi_host_placement_copy_hosts(const lh_host_placement *places,
                                        const uint32_t *given, lhi_arena *mem,
                                        uint32_t **out, lh_error *err);

/* Plans the transfers of training state when each place i (a device of a
 * replica) goes from host from[i] to host to[i]: one entry in `moves` (room for
 * n_hosts) per place with a new host. Returns the ns until the last transfer
 * arrives; -1: a link's time is unknown. vias[i]: relay of place i's state,
 * LH_NONE: direct; `vias` NULL: the fastest routes. free_at: scratch, 2 *
 * n_hosts. */
int64_t lhi_host_placement_plan_transfers(
    const lh_host_placement *places, const lhi_host_slowdown_tables *slow,
    const uint32_t *from, const uint32_t *to, const uint32_t *vias,
    int64_t *free_at, lh_host_move *moves, uint32_t *n_moves);

/* Computes the time in ns to exchange hosts: from[i] to to[i] at place i, NULL:
 * the initial ones. vias[i]: relay of place i's training state, LH_NONE:
 * direct; `vias` NULL: the fastest relays, written to `ways` unless NULL.
 * `now`: slowdowns, NULL: none. LH_EINVAL: `from` or `to` is no permutation, or
 * a value in `now` is out of range. LH_EUNSUPPORTED: a slow link's time is
 * unknown. */
lh_status lhi_host_placement_migration(const lh_host_placement *places,
                                       const lh_host_slowdowns *now,
                                       const uint32_t *from, const uint32_t *to,
                                       const uint32_t *vias, uint32_t *ways,
                                       int64_t *out_ns, lh_error *err);
/* Fails with LH_EUNSUPPORTED unless the size of every device's training state,
 * in messages, is known; otherwise its transfer time over a slow link would be
 * unknown. */
lh_status lhi_host_placement_check_state(const lh_host_placement *places,
                                         lh_error *err);

/* Copies the host placement model with the pass times of `measured`, which has
 * the same chunks. The copy borrows from `places`. Release with
 * lh_host_placement_free(). */
lh_status lhi_host_placement_with_times(const lh_host_placement *places,
                                        const lh_pipeline *measured,
                                        lh_host_placement **out, lh_error *err);

/* Capacity for a host exchange's reason, in bytes. */
enum { LHI_EXCHANGE_REASON_SIZE = 700 };
/* Writes why the hosts are exchanged into `why` (LHI_EXCHANGE_REASON_SIZE
 * bytes): slow links and hosts, and the moves. now_hosts[i]: host now at place
 * i; `lasts`: iterations over which the exchange saves time. */
void lhi_host_exchange_explain(const lh_host_placement *places,
                               const lhi_host_slowdown_tables *slow,
                               const uint32_t *now_hosts, double lasts,
                               const lh_host_exchange *exchange, char *why);

#endif
