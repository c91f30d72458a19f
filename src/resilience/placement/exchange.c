/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the best host placement: exhaustively for few hosts, by pairwise
 * exchanges for many. An order's time depends only on its slow links' traffic,
 * so most orders equal another one; each such class is simulated once.
 */
#include "resilience/placement/placement_internal.h"

#include "base/options.h"

#include <longhaul/experimental/simulate.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Maximum host count for the exhaustive search; initial slots of the hash
 * table. */
enum { MOST_HOSTS = 8, FIRST_SLOTS = 256 };

/* A hash entry for a simulated view; ns is -1 if it is free. */
typedef struct hash_entry {
    int64_t ns;
    const void *view;
} hash_entry;

/* Search state. */
typedef struct search {
    const lh_host_placement *places;
    lhi_host_slowdown_tables slow;
    const lh_schedule *schedule;
    const lh_sim_options *sim;
    double lasts;
    lhi_arena *mem;
    lhi_placement_view view;
    size_t n_slots; /* a power of two */
    hash_entry *slots;
    uint32_t *from; /* each place's present host */
    uint32_t *best, *trial;
    int64_t *free_at;
    lh_host_move *moves, *best_moves;
    uint32_t n_best_moves;
    int64_t now_ns, best_ns, best_move_ns;
    double best_total;
    uint64_t n_tried, n_simulated;
} search;

/* --- evaluation ----------------------------------------------------------- */

/* Returns the 64-bit FNV-1a hash of `n` bytes, with its high bits mixed into
 * the low ones that index the table. */
static uint64_t hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * UINT64_C(1099511628211);
    return h ^ h >> 29;
}

/* Returns the hash entry of a view (slowdowns per link and device that a host
 * order leads to), or the free entry for a new one (open addressing with linear
 * probing). */
static hash_entry *find_entry(const search *s, const void *view)
{
    size_t bytes = lhi_placement_view_bytes(s->places);
    size_t i = (size_t)hash_bytes(view, bytes) & (s->n_slots - 1);
    while (s->slots[i].ns >= 0 && memcmp(s->slots[i].view, view, bytes) != 0)
        i = (i + 1) & (s->n_slots - 1);
    return &s->slots[i];
}

/* Enlarges the hash table of simulated views (slowdowns per link and device) to
 * `n` slots, a power of two; false on allocation failure. */
static bool grow_table(search *s, size_t n)
{
    size_t n_old = s->n_slots;
    hash_entry *old = s->slots, *fresh = malloc(n * sizeof *fresh);
    if (!fresh)
        return false;
    for (size_t i = 0; i < n; i++)
        fresh[i] = (hash_entry){-1, NULL};
    s->slots = fresh;
    s->n_slots = n;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].ns >= 0)
            *find_entry(s, old[i].view) = old[i];
    free(old);
    return true;
}

/* Simulates an iteration under the slowdowns per link and device in s->view;
 * *ns is the makespan in ns. */
static lh_status simulate(search *s, int64_t *ns, lh_error *err)
{
    lh_pipeline *p;
    lh_evaluator *judge;
    LHI_TRY(lhi_placement_view_pipeline(s->places, &s->view, &p, err));
    lh_status status = lh_evaluator_make(p, s->sim, &judge, err);
    if (status == LH_OK) {
        status = lh_evaluator_run(judge, s->schedule, ns, err);
        lh_evaluator_free(judge);
    }
    lh_pipeline_free(p);
    s->n_simulated++;
    return status;
}

/* Sets *ns to the iteration time with host hosts[i] at place i. Simulates it
 * unless an order with the same slowdowns per link and device was simulated
 * before. */
static lh_status estimate_order(search *s, const uint32_t *hosts, int64_t *ns,
                                lh_error *err)
{
    lhi_placement_view_fill(s->places, &s->slow, hosts, &s->view);
    s->n_tried++;
    hash_entry *found = find_entry(s, s->view.links);
    if (found->ns >= 0) {
        *ns = found->ns;
        return LH_OK;
    }
    LHI_TRY(simulate(s, ns, err));
    size_t bytes = lhi_placement_view_bytes(s->places);
    void *view = lhi_arena_alloc(s->mem, bytes, 1);
    if (!view ||
        (2 * s->n_simulated > s->n_slots && !grow_table(s, 2 * s->n_slots)))
        return lhi_fail_nomem(err);
    memcpy(view, s->view.links, bytes);
    *find_entry(s, view) = (hash_entry){*ns, view};
    return LH_OK;
}

/* --- search --------------------------------------------------------------- */

/* Evaluates a host order (hosts[i]: host at place i), migration time included,
 * and keeps it as the best one if it saves time. *better (may be NULL): whether
 * it did. */
static lh_status try_order(search *s, const uint32_t *hosts, bool *better,
                           lh_error *err)
{
    int64_t ns;
    uint32_t n_moves;
    for (uint32_t i = 0; i < s->places->n_hosts; i++)
        if (!lhi_host_placement_can_host(s->places, hosts[i], i))
            return LH_OK;
    LHI_TRY(estimate_order(s, hosts, &ns, err));
    double total = (double)ns * s->lasts;
    if (total > s->best_total)
        return LH_OK;
    int64_t move =
        lhi_host_placement_plan_transfers(s->places, &s->slow, s->from, hosts,
                                          NULL, s->free_at, s->moves, &n_moves);
    total += (double)move;
    bool is_less = total < s->best_total ||
                   (total <= s->best_total && n_moves < s->n_best_moves);
    if (move < 0 || !is_less)
        return LH_OK;
    s->best_total = total;
    s->best_ns = ns;
    s->best_move_ns = move;
    s->n_best_moves = n_moves;
    memcpy(s->best, hosts, s->places->n_hosts * sizeof *hosts);
    memcpy(s->best_moves, s->moves, n_moves * sizeof *s->moves);
    if (better)
        *better = true;
    return LH_OK;
}

/* Exchanges the host numbers *a and *b. */
static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t c = *a;
    *a = *b;
    *b = c;
}

/* Advances `at`, a permutation of `n` numbers, to the next one in lexicographic
 * order; false: it was the last one. */
static bool next_order(uint32_t *at, uint32_t n)
{
    uint32_t i = n - 1, j = n - 1;
    while (i > 0 && at[i - 1] >= at[i])
        i--;
    if (i == 0)
        return false;
    while (at[j] <= at[i - 1])
        j--;
    swap(&at[i - 1], &at[j]);
    for (j = n - 1; i < j; i++, j--)
        swap(&at[i], &at[j]);
    return true;
}

/* Evaluates every permutation of the hosts over the places, and keeps the best
 * one. */
static lh_status try_all(search *s, lh_error *err)
{
    uint32_t n = s->places->n_hosts;
    s->n_tried = 0; /* the present order is evaluated again */
    for (uint32_t i = 0; i < n; i++)
        s->trial[i] = i;
    do
        LHI_TRY(try_order(s, s->trial, NULL, err));
    while (next_order(s->trial, n));
    return LH_OK;
}

/* Improves the host order by the best exchange of two hosts, again and again,
 * until no exchange reduces the total time. */
static lh_status try_exchanges(search *s, lh_error *err)
{
    uint32_t n = s->places->n_hosts;
    for (bool better = true; better;) {
        better = false;
        memcpy(s->trial, s->best, n * sizeof *s->trial);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = i + 1; j < n; j++) {
                swap(&s->trial[i], &s->trial[j]);
                LHI_TRY(try_order(s, s->trial, &better, err));
                swap(&s->trial[i], &s->trial[j]);
            }
    }
    return LH_OK;
}

/* --- result --------------------------------------------------------------- */

/* Checks the options, allocates the search's arrays, and evaluates the running
 * host order under the slowdowns `now`. */
static lh_status set_up(search *s, const lh_host_slowdowns *now,
                        const lh_host_exchange_options *o, lh_error *err)
{
    uint32_t n = s->places->n_hosts;
    if (!(o->benefit_steps >= 0) || o->benefit_steps > 1e15 ||
        o->max_exhaustive_hosts > MOST_HOSTS)
        return lhi_fail(
            err, LH_EINVAL,
            "lh_host_exchange_options: benefit_steps is %g and must be from 0 "
            "to 1e15; max_exhaustive_hosts is %" PRIu32
            " and must be at most %d",
            o->benefit_steps, o->max_exhaustive_hosts, MOST_HOSTS);
    /* Default horizon: long enough that migration time hardly matters, short
     * enough that it still breaks ties. */
    s->lasts = o->benefit_steps > 0 ? o->benefit_steps : 1e6;
    s->sim = o->sim;
    LHI_TRY(lhi_host_slowdowns_check(s->places, now, s->mem, &s->slow, err));
    LHI_TRY(lhi_host_placement_copy_hosts(s->places, o->hosts, s->mem, &s->from,
                                          err));
    s->best = LHI_NEW(s->mem, uint32_t, n);
    s->trial = LHI_NEW(s->mem, uint32_t, n);
    s->free_at = LHI_NEW(s->mem, int64_t, 2 * (size_t)n);
    s->moves = LHI_NEW(s->mem, lh_host_move, (size_t)n + 1);
    s->best_moves = LHI_NEW(s->mem, lh_host_move, n);
    if (!s->best || !s->trial || !s->free_at || !s->moves || !s->best_moves ||
        !lhi_placement_view_make(s->places, s->mem, &s->view) ||
        !grow_table(s, FIRST_SLOTS))
        return lhi_fail_nomem(err);
    memcpy(s->best, s->from, n * sizeof *s->best);
    LHI_TRY(estimate_order(s, s->from, &s->now_ns, err));
    s->best_ns = s->now_ns;
    s->best_total = (double)s->now_ns * s->lasts;
    return LH_OK;
}

/* The result with its arena, which contains it. */
typedef struct owned {
    lh_host_exchange exchange; /* first */
    lhi_arena *mem;
} owned;

/* Builds the result: the best host order with its moves, times and explanation.
 * `all`: all orders were evaluated. *out owns the search's arena. */
static lh_status make_result(search *s, bool all, lh_host_exchange **out,
                             lh_error *err)
{
    uint32_t n = s->places->n_hosts;
    owned *x = LHI_NEW(s->mem, owned, 1);
    char *why = LHI_NEW(s->mem, char, LHI_EXCHANGE_REASON_SIZE);
    if (!x || !why)
        return lhi_fail_nomem(err);
    x->mem = s->mem;
    x->exchange = (lh_host_exchange){.is_exchange = s->n_best_moves > 0,
                                     .n_hosts = n,
                                     .hosts = s->best,
                                     .current_ns = s->now_ns,
                                     .predicted_ns = s->best_ns,
                                     .move_ns = s->best_move_ns,
                                     .n_moves = s->n_best_moves,
                                     .moves = s->best_moves,
                                     .is_exhaustive = all,
                                     .n_evaluated = s->n_tried,
                                     .n_simulated = s->n_simulated,
                                     .why = why};
    lhi_host_exchange_explain(s->places, &s->slow, s->from, s->lasts,
                              &x->exchange, why);
    *out = &x->exchange;
    return LH_OK;
}

lh_status lh_host_placement_find_exchange(
    const lh_host_placement *places, const lh_host_slowdowns *now,
    const lh_schedule *schedule, const lh_host_exchange_options *options,
    lh_host_exchange **out, lh_error *err)
{
    lh_host_exchange_options o;
    search s = {.places = places, .schedule = schedule};
    LHI_TRY(LHI_OPTIONS_COPY(lh_host_exchange_options, &o, options, err));
    s.mem = lhi_arena_make(0);
    if (!s.mem)
        return lhi_fail_nomem(err);
    lh_status status = set_up(&s, now, &o, err);
    uint32_t most =
        o.max_exhaustive_hosts ? o.max_exhaustive_hosts : MOST_HOSTS;
    bool all = places->n_hosts <= most;
    if (status == LH_OK)
        status = all ? try_all(&s, err) : try_exchanges(&s, err);
    if (status == LH_OK)
        status = make_result(&s, all, out, err);
    free(s.slots);
    if (status != LH_OK)
        lhi_arena_free(s.mem);
    return status;
}

void lh_host_exchange_free(lh_host_exchange *exchange)
{
    if (exchange)
        lhi_arena_free(((owned *)(void *)exchange)->mem);
}
