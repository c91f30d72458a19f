/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of a timeline for the analysis: use of links, and slackness
 * between devices. */
#include "schedule/simulator/timeline.h"

#include <stdlib.h>

/* A change in a link's queue length. */
typedef struct queue_change {
    int64_t time_ns;
    uint32_t resource;
    int32_t change;
} queue_change;

/* Compares changes of a link's queue by time; departures precede arrivals at
 * the same time (qsort()). */
static int compare_arrivals(const void *a, const void *b)
{
    const queue_change *x = a, *y = b;
    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->change - y->change; /* departures first: no queue at an instant */
}

/* Adds the transfer times, at full rate, of data-parallel pieces (slices of
 * collectives) to the busy times of the links that they share with messages. */
static void add_pieces(const lh_pipeline *p, const lh_timeline *t,
                       lh_link_use *links)
{
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        const lhi_dp_piece *piece = &t->pieces[i];
        uint32_t d = t->collectives[piece->collective].device;
        for (uint32_t k = p->shared_at[d]; k < p->shared_at[d + 1]; k++)
            links[p->shared[k]].busy_ns += piece->transfer_ns;
    }
}

lh_status lhi_analysis_compute_link_use(const lh_pipeline *p,
                                        const lh_timeline *t, lhi_arena *mem,
                                        lhi_arena *scratch, lh_link_use **out,
                                        lh_error *err)
{
    lh_link_use *links = LHI_NEW(mem, lh_link_use, t->n_resources);
    queue_change *events =
        LHI_NEW(scratch, queue_change, 2 * (size_t)t->n_messages);
    uint32_t *waiting = LHI_NEW(scratch, uint32_t, t->n_resources);
    size_t n = 0;
    if (!links || !events || !waiting)
        return lhi_fail_nomem(err);
    for (uint32_t r = 0; r < t->n_resources; r++) {
        links[r].name = lhi_arena_strdup(mem, t->resource_names[r]);
        if (!links[r].name)
            return lhi_fail_nomem(err);
    }
    for (uint32_t i = 0; i < t->n_messages; i++) {
        const lh_message *m = &t->messages[i];
        if (m->resource == LH_NONE)
            continue;
        lh_link_use *use = &links[m->resource];
        use->n_messages++;
        use->busy_ns += p->dp_priority == LH_DP_FAIR
                            ? p->links[m->link].transfer_ns /* at full rate */
                            : m->sent_ns - m->depart_ns;
        use->queued_ns += m->depart_ns - m->ready_ns;
        if (m->depart_ns == m->ready_ns)
            continue;
        events[n++] = (queue_change){m->ready_ns, m->resource, 1};
        events[n++] = (queue_change){m->depart_ns, m->resource, -1};
    }
    add_pieces(p, t, links);
    if (n)
        qsort(events, n, sizeof *events, compare_arrivals);
    for (size_t i = 0; i < n; i++) {
        uint32_t r = events[i].resource;
        waiting[r] += (uint32_t)events[i].change;
        if (waiting[r] > links[r].max_queue)
            links[r].max_queue = waiting[r];
    }
    *out = links;
    return LH_OK;
}

/* Counts the forwards at the beginning of a device's order, before its first
 * other pass. */
static uint32_t count_warmup(const lh_schedule *s, uint32_t d)
{
    uint32_t n = 0;
    while (n < s->counts[d] && s->orders[d][n].kind == LH_F)
        n++;
    return n;
}

lh_status lhi_analysis_find_slack(const lh_pipeline *p, const lh_timeline *t,
                                  const lh_schedule *s, lhi_arena *mem,
                                  lhi_arena *scratch, lh_slack **out,
                                  uint32_t *n_out, lh_error *err)
{
    if (p->placement != LH_PLACEMENT_UD || p->n_devices < 2)
        return LH_OK;
    uint32_t n = p->n_devices - 1;
    lh_slack *slacks = LHI_NEW(mem, lh_slack, n);
    int64_t *tolerances = LHI_NEW(scratch, int64_t, n);
    if (!slacks || !tolerances)
        return lhi_fail_nomem(err);
    LHI_TRY(
        lhi_sim_find_tolerances(p, s, &t->options, scratch, tolerances, err));
    for (uint32_t i = 0; i < n; i++) {
        lh_slack *k = &slacks[i];
        k->warmup = count_warmup(s, i);
        k->slackness = (int64_t)k->warmup - count_warmup(s, i + 1);
        k->tolerance_ns = tolerances[i];
        k->delay_ns = lhi_round_trip_ns(p, i) / 2;
    }
    *out = slacks;
    *n_out = n;
    return LH_OK;
}
