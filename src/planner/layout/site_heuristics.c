/* SPDX-License-Identifier: Apache-2.0 */
/* Groupings for many datacenters: a few good orders through all, cut into equal
 * parts, and clusters of nearby ones. */
#include "planner/layout/site_search_internal.h"

#include <math.h>
#include <string.h>

/* Orders tried: at most MOST_ORDERS, or FEWER_ORDERS with more than VERY_MANY
 * datacenters. Improvement passes per order: MOST_ROUNDS. */
enum { MOST_ORDERS = 8, FEWER_ORDERS = 2, MOST_ROUNDS = 4, VERY_MANY = 16 };

/* State for one list. */
typedef struct placement_generator {
    const lhi_placement_case *c;
    uint32_t n;
    uint32_t *site; /* datacenters with capacity for a rank */
    double *hop;    /* [i * n + j]: from site[i] to site[j] */
    uint32_t *order, *best, *cluster;
    bool *used;
    double best_ns;
    lh_status (*take)(void *context, const lhi_placement_draft *d,
                      lh_error *err);
    void *context;
} placement_generator;

/* Returns the sum of the message times between neighbours along an order of
 * datacenters, in ns. */
static double compute_length(const placement_generator *m,
                             const uint32_t *order)
{
    double ns = 0;
    for (uint32_t i = 0; i + 1 < m->n; i++)
        ns += m->hop[(size_t)order[i] * m->n + order[i + 1]];
    return ns;
}

/* Orders the datacenters from `start` on, each time going to the nearest one
 * left, by message time. */
static void order_by_nearest(placement_generator *m, uint32_t start)
{
    memset(m->used, 0, m->n * sizeof *m->used);
    m->order[0] = start;
    m->used[start] = true;
    for (uint32_t i = 1; i < m->n; i++) {
        uint32_t last = m->order[i - 1], next = m->n;
        for (uint32_t j = 0; j < m->n; j++)
            if (!m->used[j] &&
                (next == m->n || m->hop[(size_t)last * m->n + j] <
                                     m->hop[(size_t)last * m->n + next]))
                next = j;
        m->order[i] = next;
        m->used[next] = true;
    }
}

/* Improves the order of datacenters by 2-opt: reverses sections while the sum
 * of the message times between neighbours becomes shorter. */
static void improve_by_2opt(placement_generator *m)
{
    const uint32_t n = m->n;
    uint32_t *o = m->order;
    bool better = true;
    for (int round = 0; better && round < MOST_ROUNDS; round++) {
        better = false;
        for (uint32_t i = 0; i + 1 < n; i++)
            for (uint32_t j = i + 1; j < n; j++) {
                double now = 0, then = 0;
                if (i > 0) {
                    now += m->hop[(size_t)o[i - 1] * n + o[i]];
                    then += m->hop[(size_t)o[i - 1] * n + o[j]];
                }
                if (j + 1 < n) {
                    now += m->hop[(size_t)o[j] * n + o[j + 1]];
                    then += m->hop[(size_t)o[i] * n + o[j + 1]];
                }
                if (!(then < now * (1 - 1e-12)))
                    continue;
                better = true;
                for (uint32_t a = i, b = j; a < b; a++, b--) {
                    uint32_t one = o[a];
                    o[a] = o[b];
                    o[b] = one;
                }
            }
    }
}

/* Empties a draft placement (replica groups, each a list of datacenters with
 * numbers of stages). */
static void clear_draft(lhi_placement_draft *d)
{
    d->n_groups = d->n_parts = 0;
    d->from[0] = 0;
}

/* Appends a replica group without datacenters to a draft placement; its number
 * of replicas is open (0). */
static void add_group(lhi_placement_draft *d)
{
    d->replicas[d->n_groups++] = 0;
    d->from[d->n_groups] = d->n_parts;
}

/* Appends datacenter `i` to the last replica group's pipeline in a draft
 * placement; its number of stages is open (0). */
static void add_part(const placement_generator *m, lhi_placement_draft *d,
                     uint32_t i)
{
    d->site[d->n_parts] = m->site[i];
    d->stages[d->n_parts++] = 0;
    d->from[d->n_groups] = d->n_parts;
}

/* Cuts the first `length` datacenters of `order` into `k` contiguous replica
 * groups with about equal GPU counts, and passes the resulting draft placement
 * to the callback m->take. */
static lh_status add_cuts(const placement_generator *m, const uint32_t *order,
                          uint32_t length, uint32_t k, lh_error *err)
{
    lhi_placement_draft d;
    double all = 0, sum = 0;
    for (uint32_t i = 0; i < length; i++)
        all += m->c->capacity[m->site[order[i]]];
    clear_draft(&d);
    add_group(&d);
    for (uint32_t i = 0; i < length; i++) {
        double here = m->c->capacity[m->site[order[i]]];
        uint32_t open = k - d.n_groups;
        bool full = sum + here / 2 > all / k * d.n_groups;
        bool last = length - i == open;
        if (d.n_parts > d.from[d.n_groups - 1] && open && (full || last))
            add_group(&d);
        add_part(m, &d, order[i]);
        sum += here;
    }
    return m->take(m->context, &d, err);
}

/* Checks whether the search tries to divide n datacenters into `k` groups: k is
 * 2^i, 3 * 2^i or a divisor of n. */
static bool is_tried_count(uint32_t k, uint32_t n)
{
    uint32_t odd = k;
    while (odd % 2 == 0)
        odd /= 2;
    return odd == 1 || odd == 3 || n % k == 0;
}

/* Cuts one order of datacenters into every group count that is tried, with all
 * datacenters and with the fewest that have enough GPUs. */
static lh_status add_order(const placement_generator *m, const uint32_t *order,
                           lh_error *err)
{
    uint64_t need = (uint64_t)m->c->layout->pipeline * m->c->layout->data;
    uint64_t units = 0;
    uint32_t least = 0; /* shortest prefix with enough capacity */
    while (units < need && least < m->n)
        units += m->c->capacity[m->site[order[least++]]];
    LHI_TRY(add_cuts(m, order, m->n, 1, err));
    if (least < m->n)
        LHI_TRY(add_cuts(m, order, least, 1, err));
    for (uint32_t k = 2; k <= m->n && k <= m->c->layout->data; k++) {
        if (!is_tried_count(k, m->n))
            continue;
        LHI_TRY(add_cuts(m, order, m->n, k, err));
        if (least < m->n && least >= k)
            LHI_TRY(add_cuts(m, order, least, k, err));
    }
    return LH_OK;
}

/* Generates draft placements by agglomerative clustering: merges the two
 * closest groups of datacenters repeatedly. Within a group, the datacenters are
 * in the order that the search found best. */
static lh_status add_clusters(placement_generator *m, lh_error *err)
{
    uint32_t n = m->n;
    for (uint32_t i = 0; i < n; i++)
        m->cluster[i] = i;
    for (uint32_t k = n; k > 2; k--) {
        uint32_t a = n, b = n;
        double least = INFINITY;
        lhi_placement_draft d;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n; j++)
                if (m->cluster[i] < m->cluster[j] &&
                    m->hop[(size_t)i * n + j] < least) {
                    least = m->hop[(size_t)i * n + j];
                    a = m->cluster[i];
                    b = m->cluster[j];
                }
        for (uint32_t i = 0; i < n; i++)
            if (m->cluster[i] == b)
                m->cluster[i] = a;
        clear_draft(&d);
        for (uint32_t g = 0; g < n; g++) {
            bool any = false;
            for (uint32_t i = 0; i < n; i++) {
                if (m->cluster[m->best[i]] != g)
                    continue;
                if (!any)
                    add_group(&d);
                any = true;
                add_part(m, &d, m->best[i]);
            }
        }
        if (is_tried_count(d.n_groups, n) && d.n_groups <= m->c->layout->data)
            LHI_TRY(m->take(m->context, &d, err));
    }
    return LH_OK;
}

/* Estimates the message time per iteration between every two datacenters, in
 * ns, into m->hop. */
static lh_status read_hops(placement_generator *m, lh_error *err)
{
    lhi_ecmp_cache known = {0};
    for (uint32_t i = 0; i < m->n; i++)
        for (uint32_t j = 0; j < m->n; j++)
            if (i != j)
                LHI_TRY(lhi_placement_estimate_hop_ns(
                    m->c, m->site[i], m->site[j], &known,
                    &m->hop[(size_t)i * m->n + j], err));
    return LH_OK;
}

/* Generates placements from the job's order of datacenters, from
 * nearest-neighbour orders improved by 2-opt, and from clusters. */
static lh_status add_placements(placement_generator *m, lh_error *err)
{
    LHI_TRY(read_hops(m, err));
    for (uint32_t i = 0; i < m->n; i++)
        m->order[i] = m->best[i] = i;
    m->best_ns = compute_length(m, m->order);
    LHI_TRY(add_order(m, m->order, err)); /* the job's order */
    uint32_t starts = m->n > VERY_MANY ? FEWER_ORDERS : MOST_ORDERS;
    for (uint32_t start = 0; start < m->n && start < starts; start++) {
        order_by_nearest(m, start);
        improve_by_2opt(m);
        if (compute_length(m, m->order) < m->best_ns) {
            m->best_ns = compute_length(m, m->order);
            memcpy(m->best, m->order, m->n * sizeof *m->best);
        }
        LHI_TRY(add_order(m, m->order, err));
    }
    return add_clusters(m, err);
}

lh_status lhi_placement_generate_heuristic(
    const lhi_placement_case *c, lhi_arena *mem,
    lh_status (*take)(void *context, const lhi_placement_draft *d,
                      lh_error *err),
    void *context, lh_error *err)
{
    uint32_t n = c->job->n_datacenters;
    placement_generator m = {.c = c, .take = take, .context = context};
    m.site = LHI_NEW(mem, uint32_t, n);
    m.hop = LHI_NEW(mem, double, (size_t)n *n);
    m.order = LHI_NEW(mem, uint32_t, n);
    m.best = LHI_NEW(mem, uint32_t, n);
    m.cluster = LHI_NEW(mem, uint32_t, n);
    m.used = LHI_NEW(mem, bool, n);
    if (!m.site || !m.hop || !m.order || !m.best || !m.cluster || !m.used)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        if (c->capacity[i])
            m.site[m.n++] = i;
    return m.n ? add_placements(&m, err) : LH_OK;
}
