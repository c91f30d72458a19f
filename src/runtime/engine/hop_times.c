/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/hop_times.h"

#include "resilience/monitor/clocks.h"

#include <math.h>
#include <stdlib.h>

struct lhi_hop_times {
    const lhi_slow_hosts *slow;
    uint32_t n_stages, n_places, n_hops;
    double *pass_ns, *hop_ns;
    lhi_clock_offset *clocks; /* per hop from the lower place */
};

lh_status lhi_hop_times_make(const lhi_job *job, const lhi_slow_hosts *slow,
                             lhi_hop_times **out, lh_error *err)
{
    lhi_hop_times *t = calloc(1, sizeof *t);
    if (!t)
        return lhi_fail_nomem(err);
    t->slow = slow;
    t->n_stages = job->exec->n_ranks;
    t->n_places = t->n_stages * lhi_grid_count_copies(&job->grid);
    lhi_slow_hosts_hops(slow, &t->n_hops);
    t->pass_ns = calloc(t->n_places, sizeof *t->pass_ns);
    t->hop_ns = calloc(t->n_hops + (size_t)1, sizeof *t->hop_ns);
    t->clocks = calloc(t->n_hops + (size_t)1, sizeof *t->clocks);
    if (!t->pass_ns || !t->hop_ns || !t->clocks) {
        lhi_hop_times_free(t);
        return lhi_fail_nomem(err);
    }
    *out = t;
    return LH_OK;
}

/* Frees the measurement of hop times; ignores NULL. */
void lhi_hop_times_free(lhi_hop_times *t)
{
    if (!t)
        return;
    free(t->pass_ns);
    free(t->hop_ns);
    free(t->clocks);
    free(t);
}

/* Returns the observed data-parallel messages from place `from` to place `to`
 * in the observations parts[place]; NULL: none. */
static const lhi_net_hop *find_hop(const lhi_rank_observation *parts,
                                   uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < parts[to].head.n_hops; i++)
        if (parts[to].hops[i].place == from && parts[to].hops[i].hop.n > 0)
            return &parts[to].hops[i].hop;
    return NULL;
}

/* Returns the offset in ns of the clock at a hop's receiving place from the
 * clock at its sending place, estimated from the messages in both directions;
 * *known: false without such messages. */
static double compare_clocks(lhi_hop_times *t,
                             const lhi_rank_observation *parts, uint32_t hop,
                             uint64_t step, bool *known)
{
    const lhi_hop *h = &lhi_slow_hosts_hops(t->slow, &t->n_hops)[hop];
    const bool reversed = h->from > h->to;
    const uint32_t a = reversed ? h->to : h->from,
                   b = reversed ? h->from : h->to;
    *known = true;
    if (parts[a].head.clock == parts[b].head.clock)
        return 0;
    const lhi_net_hop *there = find_hop(parts, a, b),
                      *back = find_hop(parts, b, a);
    *known = there && back;
    if (!*known)
        return 0;
    /* Each direction of a hop keeps its own estimate. */
    const double offset = lhi_clock_offset_add(
        &t->clocks[hop], step, (double)there->since_sent_ns / there->n,
        (double)back->since_sent_ns / back->n);
    return reversed ? -offset : offset;
}

/* Returns the mean time of a hop's data-parallel messages in ns; NAN: it has
 * none, or unknown clocks. */
static double compute_collective_time(lhi_hop_times *t,
                                      const lhi_rank_observation *parts,
                                      uint32_t hop, uint64_t step)
{
    bool known;
    const lhi_hop *h = &lhi_slow_hosts_hops(t->slow, &t->n_hops)[hop];
    const lhi_net_hop *seen = find_hop(parts, h->from, h->to);
    const double offset = compare_clocks(t, parts, hop, step, &known);
    if (!seen || !known)
        return NAN;
    return fmin((double)seen->since_sent_ns / seen->n - offset,
                (double)seen->since_posted_ns / seen->n);
}

void lhi_hop_times_compute(lhi_hop_times *t, const lhi_rank_observation *parts,
                           const lhi_iteration_observation *observation,
                           uint64_t step, lhi_measured_iteration *whole)
{
    const lhi_hop *hops = lhi_slow_hosts_hops(t->slow, &t->n_hops);
    for (uint32_t p = 0; p < t->n_places; p++) {
        t->pass_ns[p] = 0;
        for (uint32_t i = 0; i < parts[p].head.n_passes; i++)
            t->pass_ns[p] +=
                (double)(parts[p].rows[i].ended_ns - parts[p].rows[i].ready_ns);
    }
    for (uint32_t i = 0; i < t->n_hops; i++)
        t->hop_ns[i] = hops[i].is_collective
                           ? compute_collective_time(t, parts, i, step)
                           : lhi_iteration_observation_link_time(
                                 observation, hops[i].from / t->n_stages,
                                 lhi_slow_hosts_link(t->slow, i));
    whole->pass_ns = t->pass_ns;
    whole->hop_ns = t->hop_ns;
}
