/* SPDX-License-Identifier: Apache-2.0 */
/* Orders a ring through datacenters. A ring with n members takes n - 1 steps,
 * each as long as its slowest link. For few datacenters the search is
 * exhaustive; for many, local search moves one datacenter at a time. */
#include "planner/layout/layout.h"

#include "model/paths.h"
#include "model/shape.h"

#include <math.h>
#include <string.h>

/* Maximum datacenter count for the exact search; its time is exponential.
 */
enum { MOST_EXACT = 8 };

/* Ring search state. */
typedef struct ring {
    uint32_t n;
    double bytes;
    double *ns_per_byte, *latency; /* [from * n + to] */
    uint32_t *order, *best;
    bool *used;
    double best_ns;
} ring;

/* Returns one ring step's time over a link with this time per byte and latency,
 * in ns. */
static double compute_time(const ring *r, double ns_per_byte, double latency)
{
    return r->bytes / r->n * ns_per_byte + latency;
}

/* Returns a ring step's duration in this order of datacenters, in ns: the
 * largest time per byte and its links' largest latency. */
static double compute_step_ns(const ring *r, const uint32_t *order)
{
    double slow = 0, late = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        size_t at = (size_t)order[i] * r->n + order[(i + 1) % r->n];
        slow = fmax(slow, r->ns_per_byte[at]);
        late = fmax(late, r->latency[at]);
    }
    return compute_time(r, slow, late);
}

/* Searches all orders that start with the first datacenter (branch and bound);
 * of equally fast ones the first wins. `placed`: datacenters in r->order;
 * `slow`, `late`: largest time per byte and latency so far. */
static void search_orders(ring *r, uint32_t placed, double slow, double late)
{
    uint32_t last = r->order[placed - 1];
    if (placed == r->n) {
        double ns = compute_step_ns(r, r->order);
        if (ns < r->best_ns) {
            r->best_ns = ns;
            memcpy(r->best, r->order, r->n * sizeof *r->best);
        }
        return;
    }
    for (uint32_t next = 1; next < r->n; next++) {
        size_t at = (size_t)last * r->n + next;
        double a = fmax(slow, r->ns_per_byte[at]);
        double b = fmax(late, r->latency[at]);
        if (r->used[next] || compute_time(r, a, b) >= r->best_ns)
            continue;
        r->used[next] = true;
        r->order[placed] = next;
        search_orders(r, placed + 1, a, b);
        r->used[next] = false;
    }
}

/* Moves order[from] to position `to`. */
static void move_in_order(uint32_t *order, uint32_t from, uint32_t to)
{
    uint32_t one = order[from];
    if (from < to)
        memmove(order + from, order + from + 1, (to - from) * sizeof *order);
    else
        memmove(order + to + 1, order + to, (from - to) * sizeof *order);
    order[to] = one;
}

/* Returns the position in the order where the ring's slowest link begins. */
static uint32_t find_slowest(const ring *r)
{
    uint32_t worst = 0;
    double most = -1;
    for (uint32_t i = 0; i < r->n; i++) {
        size_t at = (size_t)r->order[i] * r->n + r->order[(i + 1) % r->n];
        double ns = compute_time(r, r->ns_per_byte[at], r->latency[at]);
        if (ns > most) {
            most = ns;
            worst = i;
        }
    }
    return worst;
}

/* Moves the datacenter at position `from` to the position where the ring is
 * fastest. Returns false if it stays. */
static bool move_to_best_position(ring *r, uint32_t from)
{
    uint32_t best = from;
    for (uint32_t to = 0; to < r->n; to++) {
        move_in_order(r->order, from, to);
        double ns = compute_step_ns(r, r->order);
        if (ns < r->best_ns) {
            r->best_ns = ns;
            best = to;
        }
        move_in_order(r->order, to, from);
    }
    move_in_order(r->order, from, best);
    return best != from;
}

/* Builds a ring order by going to the nearest datacenter not yet visited. */
static void build_nearest_neighbour_order(ring *r)
{
    for (uint32_t i = 1; i < r->n; i++) {
        uint32_t last = r->order[i - 1], best = i;
        double least = INFINITY;
        for (uint32_t j = i; j < r->n; j++) {
            size_t at = (size_t)last * r->n + r->order[j];
            double ns = compute_time(r, r->ns_per_byte[at], r->latency[at]);
            if (ns < least) {
                least = ns;
                best = j;
            }
        }
        move_in_order(r->order, best, i);
    }
}

/* Improves the ring order by local search: moves an end of the slowest link
 * while that makes the ring faster. */
static void improve_slowest_link(ring *r)
{
    double listed = compute_step_ns(r, r->order);
    build_nearest_neighbour_order(r);
    r->best_ns = compute_step_ns(r, r->order);
    for (uint32_t round = 0; round < r->n; round++) {
        uint32_t at = find_slowest(r);
        if (!move_to_best_position(r, at) &&
            !move_to_best_position(r, (at + 1) % r->n))
            break;
    }
    if (!(r->best_ns < listed))
        return;
    memcpy(r->best, r->order, r->n * sizeof *r->best);
}

/* Checks whether the ring step is as short as a lower bound: each datacenter
 * has one outgoing link, at best its fastest. */
static bool is_at_lower_bound(const ring *r)
{
    double slow = 0, late = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        double out = INFINITY, soon = INFINITY;
        for (uint32_t j = 0; j < r->n; j++) {
            size_t at = (size_t)i * r->n + j;
            out = i == j ? out : fmin(out, r->ns_per_byte[at]);
            soon = i == j ? soon : fmin(soon, r->latency[at]);
        }
        slow = fmax(slow, out);
        late = fmax(late, soon);
    }
    return compute_step_ns(r, r->order) <= compute_time(r, slow, late);
}

/* Reads time per byte and latency between all datacenters of the ring, with
 * `concurrent` rings on each link. */
static lh_status read_links(ring *r, const lh_job *job,
                            const lh_cost_site *sites, double concurrent,
                            lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .constants = lhi_find_cost_constants(job)};
    lhi_ecmp_cache known = {0};
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t j = 0; j < r->n; j++) {
            lh_cost_path path;
            if (i == j)
                continue;
            LHI_TRY(lhi_compute_inter_datacenter_path(
                job, sites[i].datacenter, sites[j].datacenter, concurrent,
                &options, &known, &path, err));
            r->ns_per_byte[(size_t)i * r->n + j] = 1e9 / path.bytes_per_s;
            r->latency[(size_t)i * r->n + j] = path.latency_ns;
        }
    return LH_OK;
}

/* Reorders `sites` into the ring order with the shortest step: exhaustively for
 * few datacenters, else by local search. `concurrent`: rings on each link. */
static lh_status find_order(ring *r, const lh_job *job, lh_cost_site *sites,
                            double concurrent, lhi_arena *mem, lh_error *err)
{
    uint32_t n = r->n;
    lh_cost_site *listed = LHI_NEW(mem, lh_cost_site, n);
    r->ns_per_byte = LHI_NEW(mem, double, (size_t)n *n);
    r->latency = LHI_NEW(mem, double, (size_t)n *n);
    r->order = LHI_NEW(mem, uint32_t, n);
    r->best = LHI_NEW(mem, uint32_t, n);
    r->used = LHI_NEW(mem, bool, n);
    if (!listed || !r->ns_per_byte || !r->latency || !r->order || !r->best ||
        !r->used)
        return lhi_fail_nomem(err);
    LHI_TRY(read_links(r, job, sites, concurrent, err));
    for (uint32_t i = 0; i < n; i++)
        r->order[i] = r->best[i] = i;
    if (is_at_lower_bound(r))
        return LH_OK;
    r->best_ns = INFINITY;
    if (n <= MOST_EXACT)
        search_orders(r, 1, 0, 0);
    else
        improve_slowest_link(r);
    memcpy(listed, sites, n * sizeof *sites);
    for (uint32_t i = 0; i < n; i++)
        sites[i] = listed[r->best[i]];
    return LH_OK;
}

lh_status lhi_ring_order(const lh_job *job, uint32_t n, lh_cost_site *sites,
                         double concurrent, double bytes, lh_error *err)
{
    ring r = {.n = n, .bytes = bytes};
    if (n < 3)
        return LH_OK; /* forth and back */
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = find_order(&r, job, sites, concurrent, mem, err);
    lhi_arena_free(mem);
    return status;
}
