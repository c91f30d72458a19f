/* SPDX-License-Identifier: Apache-2.0 */
/* State transfer from previous hosts of places to new ones. Each host sends one
 * transfer and receives one at a time, greedily by place, which gives a
 * feasible time. If the direct link is slow, a third host relays the state
 * after it has received all of it (store and forward), if that is faster.
 */
#include "resilience/placement/placement_internal.h"

#include <math.h>

/* Returns the time in ns to send the training state of `device` (parameters and
 * optimizer state) over the link from host `from` to host `to`, with its
 * slowdown; -1: unknown. */
static int64_t compute_hop_time(const lh_host_placement *s,
                                const lhi_host_slowdown_tables *slow,
                                uint32_t device, uint32_t from, uint32_t to)
{
    lhi_additional_time x = lhi_host_slowdowns_link(slow, from, to);
    if (x.transfer_ns > 0 && s->state_messages[device] < 0)
        return -1;
    double more = s->state_messages[device] > 0
                      ? s->state_messages[device] * (double)x.transfer_ns
                      : 0;
    double all = (double)s->state_ns[device] + round(more) +
                 (double)s->latency_ns + (double)x.latency_ns;
    return all < 0x1p60 ? (int64_t)all : -1;
}

/* Times at which the hosts' links are free. */
typedef struct host_links {
    int64_t *out, *in; /* per host: time at which it is free again */
} host_links;

/* Returns the later of two times. */
static int64_t get_later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Computes when move m's training state arrives over relay host `via` (LH_NONE:
 * directly), in ns, and sets m->start_ns; returns -1 if a link's transfer time
 * is unknown. `w`: when each host can send and receive again. */
static int64_t compute_route_arrival(const lh_host_placement *s,
                                     const lhi_host_slowdown_tables *slow,
                                     host_links w, uint32_t via,
                                     lh_host_move *m)
{
    uint32_t device = m->place % s->n_devices;
    if (via == LH_NONE) {
        int64_t ns = compute_hop_time(s, slow, device, m->from, m->to);
        m->start_ns = get_later(w.out[m->from], w.in[m->to]);
        return ns < 0 ? -1 : m->start_ns + ns;
    }
    int64_t first = compute_hop_time(s, slow, device, m->from, via);
    int64_t second = compute_hop_time(s, slow, device, via, m->to);
    if (first < 0 || second < 0)
        return -1;
    m->start_ns = get_later(w.out[m->from], w.in[via]);
    return get_later(get_later(m->start_ns + first, w.out[via]), w.in[m->to]) +
           second;
}

/* Chooses the relay host (or none) for move `m` with the earliest arrival, and
 * sets its times. `via`: the only relay to try, LH_NONE for none; NULL: tries
 * the direct link and all hosts. `w`: when each host can send and receive
 * again. False: no route's transfer time is known. */
static bool find_route(const lh_host_placement *s,
                       const lhi_host_slowdown_tables *slow, host_links w,
                       const uint32_t *via, lh_host_move *m)
{
    lh_host_move best = *m;
    best.end_ns = -1;
    for (uint32_t k = 0; k <= slow->n_hosts; k++) {
        lh_host_move one = *m;
        one.relay = k == 0 ? LH_NONE : k - 1;
        if (one.relay == m->from || one.relay == m->to ||
            (via ? one.relay != *via
                 : one.relay != LH_NONE &&
                       !lhi_host_placement_can_host(s, one.relay, m->place)))
            continue;
        one.end_ns = compute_route_arrival(s, slow, w, one.relay, &one);
        if (one.end_ns >= 0 && (best.end_ns < 0 || one.end_ns < best.end_ns))
            best = one;
    }
    *m = best;
    return best.end_ns >= 0;
}

int64_t lhi_host_placement_plan_transfers(
    const lh_host_placement *s, const lhi_host_slowdown_tables *slow,
    const uint32_t *from, const uint32_t *to, const uint32_t *vias,
    int64_t *free_at, lh_host_move *moves, uint32_t *n_moves)
{
    host_links w = {free_at, free_at + slow->n_hosts};
    int64_t all = 0;
    *n_moves = 0;
    for (uint32_t h = 0; h < 2 * slow->n_hosts; h++)
        free_at[h] = 0;
    for (uint32_t i = 0; i < s->n_hosts; i++) {
        lh_host_move *m = &moves[*n_moves];
        *m = (lh_host_move){.place = i, .from = from[i], .to = to[i]};
        if (from[i] == to[i])
            continue;
        if (!find_route(s, slow, w, vias ? &vias[i] : NULL, m))
            return -1;
        if (m->relay != LH_NONE) {
            uint32_t device = i % s->n_devices;
            w.in[m->relay] = m->start_ns + compute_hop_time(s, slow, device,
                                                            m->from, m->relay);
            w.out[m->from] = w.in[m->relay];
            w.out[m->relay] = m->end_ns;
        } else {
            w.out[m->from] = m->end_ns;
        }
        w.in[m->to] = m->end_ns;
        all = get_later(all, m->end_ns);
        ++*n_moves;
    }
    return all;
}

/* Fails with LH_EUNSUPPORTED: the size of the hosts' training state, in
 * messages, is unknown, so a transfer's time over a slow link is, too. */
static lh_status fail_unknown(lh_error *err)
{
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the time of a slow link for the state of a host is "
                    "unknown: set the state's size in messages");
}

lh_status lhi_host_placement_check_state(const lh_host_placement *s,
                                         lh_error *err)
{
    for (uint32_t d = 0; d < s->n_devices; d++)
        if (s->state_messages[d] < 0)
            return fail_unknown(err);
    return LH_OK;
}

/* Arguments for lhi_host_placement_migration(). */
typedef struct transfer_request {
    const lh_host_slowdowns *now;
    const uint32_t *from, *to, *vias;
    uint32_t *ways;
} transfer_request;

/* Checks a migration request (old and new hosts, relays), plans its transfers
 * of training state, and stores the total time in *out (ns) and the relays in
 * a->ways. */
static lh_status plan_transfers(const lh_host_placement *s,
                                const transfer_request *a, lhi_arena *mem,
                                int64_t *out, lh_error *err)
{
    lhi_host_slowdown_tables slow;
    uint32_t *before, *then, n_moves;
    LHI_TRY(lhi_host_slowdowns_check(s, a->now, mem, &slow, err));
    LHI_TRY(lhi_host_placement_copy_hosts(s, a->from, mem, &before, err));
    LHI_TRY(lhi_host_placement_copy_hosts(s, a->to, mem, &then, err));
    int64_t *free_at = LHI_NEW(mem, int64_t, 2 * (size_t)s->n_hosts);
    lh_host_move *moves = LHI_NEW(mem, lh_host_move, (size_t)s->n_hosts + 1);
    if (!free_at || !moves)
        return lhi_fail_nomem(err);
    int64_t ns = lhi_host_placement_plan_transfers(
        s, &slow, before, then, a->vias, free_at, moves, &n_moves);
    if (ns < 0)
        return fail_unknown(err);
    for (uint32_t i = 0; a->ways && i < s->n_hosts; i++)
        a->ways[i] = LH_NONE;
    for (uint32_t i = 0; a->ways && i < n_moves; i++)
        a->ways[moves[i].place] = moves[i].relay;
    *out = ns;
    return LH_OK;
}

lh_status lhi_host_placement_migration(const lh_host_placement *places,
                                       const lh_host_slowdowns *now,
                                       const uint32_t *from, const uint32_t *to,
                                       const uint32_t *vias, uint32_t *ways,
                                       int64_t *out_ns, lh_error *err)
{
    const transfer_request a = {now, from, to, vias, ways};
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = plan_transfers(places, &a, mem, out_ns, err);
    lhi_arena_free(mem);
    return status;
}
