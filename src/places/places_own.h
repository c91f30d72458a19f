/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a placement (lh_host_placement).
 *
 * Input: a pipeline, the number of replicas, and the present slowdowns. Output:
 * each host's place, and the resulting times (longhaul/host_placement.h).
 *
 * - placement.c: a pipeline with a placement's slowdowns
 * - state_migration.c: state transfer from host to host
 * - exchange.c: search for the best placement
 * - exchange_text.c: its explanation; text_fragments.h: its parts
 * - layers_internal.h: the chunks' layers */
#ifndef LHI_PLACES_OWN_H
#define LHI_PLACES_OWN_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/pipeline_own.h"

#include <longhaul/places.h>

/* A placement problem: hosts, replicas and the times of the links between
 * hosts. */
struct lh_places {
    lhi_arena *mem;
    lh_pipeline *pipeline; /* with links for all messages */
    uint32_t n_replicas, n_devices, n_hosts;
    bool alike; /* all hosts are equivalent; else those of a device */
    /* Of each link; 0 if links differ: then only the pipeline's links are
     * known. */
    int64_t latency_ns, transfer_ns;
    double *gathers, *scatters;      /* per chunk, in messages */
    int64_t *state_ns;               /* per device */
    double *state_messages;          /* per device; negative: unknown */
};

/* Checks whether a host can take a place: all hosts are equivalent, or both
 * belong to the same device. */
static inline bool lhi_host_fits(const lh_places *places, uint32_t host,
                                 uint32_t place)
{
    return places->alike ||
           host % places->n_devices == place % places->n_devices;
}

/* Additional time over the normal one. */
typedef struct lhi_extra {
    int64_t latency_ns, transfer_ns;
} lhi_extra;

/* Validated lh_host_slowdowns as dense tables. */
typedef struct lhi_slow {
    uint32_t n_hosts;
    lhi_extra *links; /* [from * n_hosts + to] */
    double *slower;   /* per host */
} lhi_slow;

/* Validates slowdowns and converts them to tables in `mem`. */
lh_status lhi_slow_take(const lh_places *places, const lh_hosts_now *now,
                        lhi_arena *mem, lhi_slow *out, lh_error *err);

/* Returns the additional time on a link between hosts. */
static inline lhi_extra lhi_slow_link(const lhi_slow *slow, uint32_t from,
                                      uint32_t to)
{
    return slow->links[(size_t)from * slow->n_hosts + to];
}

/* All inputs of a pipeline's times: two host orders with equal views have equal
 * iteration times. */
typedef struct lhi_view {
    lhi_extra *links; /* per pipeline link */
    lhi_extra *rings; /* per device */
    double *slower;   /* per device */
} lhi_view;

/* Returns a view's size: its three arrays are contiguous from `links`. */
size_t lhi_view_bytes(const lh_places *places);
/* Allocates a view; false on allocation failure. */
bool lhi_view_make(const lh_places *places, lhi_arena *mem, lhi_view *out);
/* Computes a host order's view under the slowdowns. */
void lhi_view_fill(const lh_places *places, const lhi_slow *slow,
                   const uint32_t *hosts, lhi_view *view);
/* Builds the pipeline for a view. LH_EINPUT: a time exceeds a pipeline's limit.
 */
lh_status lhi_view_pipeline(const lh_places *places, const lhi_view *view,
                            lh_pipeline **out, lh_error *err);

/* Copies and validates each place's host; NULL: the initial ones. */
lh_status lhi_hosts_take(const lh_places *places, const uint32_t *given,
                         lhi_arena *mem, uint32_t **out, lh_error *err);

/* Plans the state transfer from the hosts in `from` to those in `to`. Returns
 * the total time, or -1 if a link's time is unknown. `vias`: relay per place;
 * NULL: the fastest one. `moves` needs capacity for all hosts, `free_at` for 2
 * * n_hosts. */
int64_t lhi_moves_plan(const lh_places *places, const lhi_slow *slow,
                       const uint32_t *from, const uint32_t *to,
                       const uint32_t *vias, int64_t *free_at, lh_move *moves,
                       uint32_t *n_moves);

/* Computes the migration time as lh_host_placement_migration() does, but with
 * the given relays; NULL: the fastest ones. `ways` receives the relay per
 * place, LH_NONE for a direct transfer; may be NULL. */
lh_status lhi_places_moving(const lh_places *places, const lh_hosts_now *now,
                            const uint32_t *from, const uint32_t *to,
                            const uint32_t *vias, uint32_t *ways,
                            int64_t *out_ns, lh_error *err);
/* Checks that the state's size in messages is known for every device; otherwise
 * LH_EUNSUPPORTED, because a slow link's time for it is unknown. */
lh_status lhi_places_know_state(const lh_places *places, lh_error *err);

/* Copies a placement with the pass times in `measured`, which has the same
 * chunks. Borrows from `places`. Release with lh_host_placement_free(). */
lh_status lhi_places_paced(const lh_places *places, const lh_pipeline *measured,
                           lh_places **out, lh_error *err);

enum { LHI_EXCHANGE_WHY = 700 };
/* Writes the explanation into `why`, which has capacity LHI_EXCHANGE_WHY. */
void lhi_exchange_say(const lh_places *places, const lhi_slow *slow,
                      const uint32_t *now_hosts, double lasts,
                      const lh_exchange *exchange, char *why);

#endif
