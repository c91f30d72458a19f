/* SPDX-License-Identifier: Apache-2.0 */
/* Occupied spectrum and its circuits. */
#include "network/optical/load_gsnr.h"
#include "network/optical/simulation.h"

#include <stdlib.h>

lh_status lhi_circuits_make(const lhi_network *network, lhi_circuits *out,
                            lh_error *err)
{
    uint32_t fibres = lhi_network_n_fibres(network);
    uint32_t n_words = (network->slots + 63) / 64;
    *out = (lhi_circuits){.unused = LH_NONE};
    out->spectrum = (lhi_spectrum){
        .n_fibres = fibres,
        .slots = network->slots,
        .guard = network->guard_slots,
        .n_words = n_words,
        .busy = calloc((size_t)fibres * n_words, sizeof(uint64_t))};
    if (!out->spectrum.busy)
        return lhi_fail_nomem(err);
    if (!network->lines)
        return LH_OK;
    out->spectrum.load = calloc(1, sizeof *out->spectrum.load);
    if (!out->spectrum.load)
        return lhi_fail_nomem(err);
    return lhi_load_gsnr_init(network, out->spectrum.load, err);
}

void lhi_circuits_fini(lhi_circuits *circuits)
{
    if (circuits->spectrum.load)
        lhi_load_gsnr_fini(circuits->spectrum.load);
    free(circuits->spectrum.load);
    free(circuits->spectrum.busy);
    free(circuits->items);
    *circuits = (lhi_circuits){0};
}

/* Doubles the circuit array's capacity; false on allocation failure. */
static bool grow_circuits(lhi_circuits *c)
{
    uint32_t room = c->room ? c->room * 2 : 64;
    if (room > UINT32_MAX / 2)
        return false;
    lhi_circuit *items = realloc(c->items, room * sizeof *items);
    if (!items)
        return false;
    c->items = items;
    c->room = room;
    return true;
}

uint32_t lhi_circuits_allocate(lhi_circuits *circuits,
                               const lhi_circuit_grant *grant)
{
    lhi_circuits *c = circuits;
    uint32_t at = c->unused;
    if (at != LH_NONE) {
        c->unused = c->items[at].next_unused;
    } else {
        if (c->count == c->room && !grow_circuits(c))
            return LH_NONE;
        at = c->count++;
    }
    lhi_spectrum_set(&c->spectrum, grant->path, grant->first, grant->slots,
                     true);
    c->held += (uint64_t)grant->slots * grant->path->hops;
    c->items[at] = (lhi_circuit){.path = grant->path,
                                 .first = grant->first,
                                 .slots = grant->slots,
                                 .mbps = grant->mbps,
                                 .job = LH_NONE,
                                 .task = LH_NONE};
    if (c->spectrum.load && !lhi_load_gsnr_add(c->spectrum.load, at, grant))
        return LH_NONE;
    return at;
}

void lhi_circuits_release(lhi_circuits *circuits, uint32_t circuit)
{
    lhi_circuits *c = circuits;
    lhi_circuit *item = &c->items[circuit];
    assert(item->slots > 0);
    if (c->spectrum.load)
        lhi_load_gsnr_remove(c->spectrum.load, circuit);
    lhi_spectrum_set(&c->spectrum, item->path, item->first, item->slots, false);
    c->held -= (uint64_t)item->slots * item->path->hops;
    item->slots = 0;
    item->next_unused = c->unused;
    c->unused = circuit;
}

void lhi_arrivals_init(lhi_arrivals *arrivals, const lhi_background *background,
                       uint32_t n_nodes, uint64_t seed)
{
    bool some = background->erlang > 0;
    *arrivals = (lhi_arrivals){
        .background = background,
        .n_nodes = n_nodes,
        .random = {.state = seed ^ UINT64_C(0xB5297A4D)},
        .next_ns = some ? 0 : INT64_MAX,
        .gap_ns = some ? background->holding_ns / background->erlang : 0};
}

lhi_arrival lhi_arrivals_next(lhi_arrivals *arrivals)
{
    const lhi_background *b = arrivals->background;
    lhi_random *r = &arrivals->random;
    lhi_arrival a = {.from = b->from, .to = b->to};
    if (b->from == b->to) {
        a.from = lhi_random_below(r, arrivals->n_nodes);
        a.to = lhi_random_below(r, arrivals->n_nodes - 1);
        a.to += a.to >= a.from;
    }
    if (b->gbps_max > 0)
        a.gbps =
            b->gbps_min + lhi_random_below(r, b->gbps_max - b->gbps_min + 1);
    else
        a.slots =
            b->slots_min + lhi_random_below(r, b->slots_max - b->slots_min + 1);
    a.holding_ns = lhi_random_exponential(r, b->holding_ns);
    arrivals->next_ns += lhi_random_exponential(r, arrivals->gap_ns);
    return a;
}
