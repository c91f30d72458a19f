/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates background traffic alone. */
#include "network/optical/simulation.h"

#include "base/heap.h"
#include "base/options.h"

/* Fails with LH_EINVAL if load, holding time, slots, rates, candidate routes or
 * nodes of the background traffic are out of range. */
static lh_status check_traffic(const lh_topology *topology, const lh_traffic *t,
                               lh_error *err)
{
    uint32_t n = topology->n_nodes;
    if (!(t->erlang > 0 && t->erlang <= 1e6) ||
        !(t->holding_s >= 1e-6 && t->holding_s <= 1e6))
        return lhi_fail(err, LH_EINVAL, "load or holding time out of range");
    lhi_background b = {.erlang = t->erlang, .holding_ns = t->holding_s * 1e9};
    if (!lhi_background_is_sparse(&b))
        return lhi_fail(err, LH_EINVAL,
                        "the interval between requests is "
                        "below %d ns",
                        LHI_MIN_REQUEST_GAP_NS);
    bool by_rate = t->gbps_max > 0;
    if (t->slots < 1 || t->slots > LHI_MAX_SLOTS ||
        t->guard_slots >= t->slots ||
        (!by_rate && (t->slots_min < 1 || t->slots_max < t->slots_min ||
                      t->slots_max > t->slots - t->guard_slots)))
        return lhi_fail(err, LH_EINVAL, "slots out of range");
    if (t->by_gsnr && (t->adaptive || !by_rate))
        return lhi_fail(err, LH_EINVAL,
                        "by_gsnr needs rates, and excludes adaptive");
    if (t->by_gsnr && topology->gn)
        return lhi_fail(err, LH_EINVAL,
                        "by_gsnr assumes lines of standard fibre, but the "
                        "topology has the lines of a GNPy network");
    if (by_rate && (t->gbps_min < 1 || t->gbps_min > t->gbps_max ||
                    t->gbps_max > LHI_MAX_BACKGROUND_GBPS))
        return lhi_fail(err, LH_EINVAL, "rates out of range");
    if (t->k < 1 || t->k > LHI_MAX_CANDIDATES)
        return lhi_fail(err, LH_EINVAL, "1 to %d candidate routes",
                        LHI_MAX_CANDIDATES);
    if (t->from >= n || t->to >= n)
        return lhi_fail(err, LH_EINVAL, "there is no such node");
    return LH_OK;
}

/* Background traffic simulation state. */
typedef struct traffic_state {
    lhi_network *network;
    lhi_circuits circuits;
    lhi_arrivals arrivals;
    lhi_heap heap;
    uint64_t seq;
    int64_t now;
    double held_ns;
} traffic_state;

/* Advances the clock to time_ns, and adds the occupied spectrum slots times the
 * elapsed ns to f->held_ns. */
static void advance_clock(traffic_state *f, int64_t time_ns)
{
    f->held_ns += (double)f->circuits.held * (double)(time_ns - f->now);
    f->now = time_ns;
}

/* Processes the background traffic's next request, after the releases of
 * circuits before it. *refused: no candidate path was free. Returns false on
 * allocation failure. */
static bool process_request(traffic_state *f, bool *refused)
{
    lhi_event e;
    while (f->heap.count && f->heap.items[0].time_ns <= f->arrivals.next_ns) {
        lhi_heap_pop(&f->heap, &e);
        advance_clock(f, e.time_ns);
        lhi_circuits_release(&f->circuits, (uint32_t)e.payload);
    }
    advance_clock(f, f->arrivals.next_ns);
    lhi_arrival a = lhi_arrivals_next(&f->arrivals);
    const lhi_paths *paths = lhi_network_paths(f->network, a.from, a.to);
    lhi_circuit_grant grant;
    if (!paths)
        return false;
    *refused = a.gbps > 0
                   ? !lhi_assignment_first_fit_rate(&f->circuits.spectrum,
                                                    paths, a.gbps, &grant)
                   : !lhi_assignment_first_fit(&f->circuits.spectrum, paths,
                                               paths->count, a.slots, &grant);
    if (*refused)
        return true;
    uint32_t at = lhi_circuits_allocate(&f->circuits, &grant);
    e = (lhi_event){
        .time_ns = f->now + a.holding_ns, .seq = f->seq++, .payload = at};
    return at != LH_NONE && lhi_heap_push(&f->heap, e);
}

/* Simulates `warm_up` requests. Then counts the refused ones among the next
 * `requests` requests and averages the occupied spectrum slots, into *out. */
static lh_status simulate_requests(traffic_state *f, uint64_t warm_up,
                                   uint64_t requests, lh_traffic_result *out,
                                   lh_error *err)
{
    lh_traffic_result r = {.requests = requests};
    int64_t begin_ns = 0;
    for (uint64_t i = 0; i < warm_up + requests; i++) {
        bool refused;
        if (i == warm_up) {
            begin_ns = f->now;
            f->held_ns = 0;
        }
        if (!process_request(f, &refused))
            return lhi_fail_nomem(err);
        r.refused += i >= warm_up && refused;
    }
    if (f->now > begin_ns)
        r.carried_slots = f->held_ns / (double)(f->now - begin_ns);
    *out = r;
    return LH_OK;
}

lh_status lh_traffic_run(const lh_topology *topology, const lh_traffic *traffic,
                         uint64_t seed, uint64_t warm_up, uint64_t requests,
                         lh_traffic_result *out, lh_error *err)
{
    lh_traffic t;
    LHI_TRY(LHI_OPTIONS_COPY(lh_traffic, &t, traffic, err));
    LHI_TRY(check_traffic(topology, &t, err));
    static const lhi_reach any = {INT64_MAX, 75000};
    traffic_state f = {0};
    LHI_TRY(lhi_network_make(topology, t.k, t.slots, t.shared_fibre,
                             t.adaptive ? lhi_adaptive_reaches : &any,
                             t.adaptive ? LHI_N_ADAPTIVE : 1, &f.network, err));
    f.network->guard_slots = t.guard_slots;
    lhi_background b = {.erlang = t.erlang,
                        .holding_ns = t.holding_s * 1e9,
                        .slots_min = t.slots_min,
                        .slots_max = t.slots_max,
                        .gbps_min = t.gbps_min,
                        .gbps_max = t.gbps_max,
                        .from = t.from,
                        .to = t.to};
    lhi_arrivals_init(&f.arrivals, &b, topology->n_nodes, seed);
    lh_status status =
        t.by_gsnr ? lhi_network_rate_by_load(f.network, err) : LH_OK;
    if (status == LH_OK)
        status = lhi_circuits_make(f.network, &f.circuits, err);
    if (status == LH_OK)
        status = simulate_requests(&f, warm_up, requests, out, err);
    lhi_heap_fini(&f.heap);
    lhi_circuits_fini(&f.circuits);
    lhi_network_free(f.network);
    return status;
}
