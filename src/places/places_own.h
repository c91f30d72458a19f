/* SPDX-License-Identifier: Apache-2.0 */
/* What is inside an lh_places.
 *
 * In: a pipeline, how many replicas, and what is slow. Out: hosts' places, and
 * what they take (longhaul/places.h).
 * places.c: a pipeline as slow as its places make it.
 * state_moves.c: how state goes from host to host.
 * exchange.c: the best of all places.
 * exchange_words.c: that, said; place_words.h: with what.
 * layers_own.h: the layers of chunks. */
#ifndef LHI_PLACES_OWN_H
#define LHI_PLACES_OWN_H

#include "base/arena.h"
#include "base/fail.h"
#include "pipe/pipeline_own.h"

#include <longhaul/places.h>

struct lh_places {
    lhi_arena *mem;
    lh_pipeline *pipeline; /* with a link for all messages that there are */
    uint32_t n_replicas, n_devices, n_hosts;
    bool alike; /* all hosts; else those of a device are */
    /* Of each link; 0 where links differ: then only those of the pipeline are
     * known. */
    int64_t latency_ns, transfer_ns;
    double *gathers, *scatters;      /* per chunk, in messages */
    int64_t *state_ns;               /* per device */
    double *state_messages;          /* per device; negative: not known */
};

/* Whether a host may have a place: its own is one of the same device, or all
 * are alike. */
static inline bool lhi_host_fits(const lh_places *places, uint32_t host,
                                 uint32_t place)
{
    return places->alike ||
           host % places->n_devices == place % places->n_devices;
}

/* More than usual. */
typedef struct lhi_extra {
    int64_t latency_ns, transfer_ns;
} lhi_extra;

/* lh_hosts_now, checked and laid out. */
typedef struct lhi_slow {
    uint32_t n_hosts;
    lhi_extra *links; /* [from * n_hosts + to] */
    double *slower;   /* per host */
} lhi_slow;

lh_status lhi_slow_take(const lh_places *places, const lh_hosts_now *now,
                        lhi_arena *mem, lhi_slow *out, lh_error *err);

static inline lhi_extra lhi_slow_link(const lhi_slow *slow, uint32_t from,
                                      uint32_t to)
{
    return slow->links[(size_t)from * slow->n_hosts + to];
}

/* What a pipeline depends on, and nothing else: two orders of hosts with the
 * same take the same. */
typedef struct lhi_view {
    lhi_extra *links; /* per link of the pipeline */
    lhi_extra *rings; /* per device */
    double *slower;   /* per device */
} lhi_view;

/* All three lie in one piece of lhi_view_bytes(), from `links` on. */
size_t lhi_view_bytes(const lh_places *places);
bool lhi_view_make(const lh_places *places, lhi_arena *mem, lhi_view *out);
void lhi_view_fill(const lh_places *places, const lhi_slow *slow,
                   const uint32_t *hosts, lhi_view *view);
/* LH_EINPUT: a time is more than a pipeline may have. */
lh_status lhi_view_pipeline(const lh_places *places, const lhi_view *view,
                            lh_pipeline **out, lh_error *err);

/* A copy of the hosts of each place, checked; NULL: as they begin. */
lh_status lhi_hosts_take(const lh_places *places, const uint32_t *given,
                         lhi_arena *mem, uint32_t **out, lh_error *err);

/* How what places keep goes from the hosts of `from` to those of `to`: returns
 * the time, or -1 where a link's is not known. `vias`: per place, who passes it
 * on; NULL: whoever has it there soonest. `moves` has room for all hosts.
 * `free_at` is room for 2 * n_hosts. */
int64_t lhi_moves_plan(const lh_places *places, const lhi_slow *slow,
                       const uint32_t *from, const uint32_t *to,
                       const uint32_t *vias, int64_t *free_at, lh_move *moves,
                       uint32_t *n_moves);

/* As lh_places_moving(), by these vias; NULL: by the soonest. `ways`: these,
 * per place, LH_NONE where none passes anything on; may be NULL. */
lh_status lhi_places_moving(const lh_places *places, const lh_hosts_now *now,
                            const uint32_t *from, const uint32_t *to,
                            const uint32_t *vias, uint32_t *ways,
                            int64_t *out_ns, lh_error *err);
/* LH_EUNSUPPORTED: what a slow link takes for what a host keeps is not known. */
lh_status lhi_places_know_state(const lh_places *places, lh_error *err);

/* Places whose passes take what they do in `measured`, which has the same
 * chunks. Borrows from `places`. Release with lh_places_free(). */
lh_status lhi_places_paced(const lh_places *places, const lh_pipeline *measured,
                           lh_places **out, lh_error *err);

enum { LHI_EXCHANGE_WHY = 700 };
/* Fills in exchange->why, which has so much room. */
void lhi_exchange_say(const lh_places *places, const lhi_slow *slow,
                      const uint32_t *now_hosts, double lasts,
                      const lh_exchange *exchange, char *why);

#endif
