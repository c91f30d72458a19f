/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses queue size, sharding and recomputation together (PipeMesh, section
 * IV-B).
 *
 * For every distinct total of stored bytes, takes the minimum recompute time
 * and the queue that then fits. This is the paper's table with its start at
 * L[0][0] = D(F(0)): the differences in exposed communication along a row
 * cancel, so they are added once, at the end. */
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A queue size with its memory and exposed communication. */
typedef struct option {
    uint32_t queue;
    int64_t passes, exposed_ns;
    lhi_int128 states; /* numerator over D M, bytes */
} option;

/* State for one choice: feasible queues, recompute table and memory budget. */
typedef struct choice_state {
    const lh_elastic_case *g;
    lhi_arena *mem;
    lhi_elastic_recompute_table sums;
    lhi_int128 budget; /* numerator over D M, bytes */
    lh_elastic_search search;
    uint32_t n_options;
    option *options; /* by queue, largest first */
    uint32_t *parts; /* scratch for a plan's sequences */
} chooser;

/* Lists in the chooser all queue sizes (microbatches per elastic group) from
 * `microbatches` down to `stages` for which a plan exists, with their memory
 * and exposed communication. */
static lh_status find_options(chooser *c, lh_error *err)
{
    const lh_elastic_case *g = c->g;
    c->options = LHI_NEW(c->mem, option, g->microbatches);
    c->parts = LHI_NEW(c->mem, uint32_t, 2 * (size_t)g->microbatches);
    if (!c->options || !c->parts)
        return lhi_fail_nomem(err);
    if (g->microbatches < g->stages)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "%" PRIu32 " microbatches are %" PRIu32
                        " fewer than the %" PRIu32 " stages; a group needs at "
                        "least one microbatch per "
                        "stage",
                        g->microbatches, g->stages - g->microbatches,
                        g->stages);
    for (uint32_t q = g->microbatches; q >= g->stages && q >= 1; q--) {
        lh_elastic_plan plan;
        uint32_t n = lhi_elastic_count_groups(g, q);
        if (lhi_elastic_fill_plan(g, q, c->parts, c->parts + n, &plan, NULL) !=
            LH_OK)
            continue;
        c->options[c->n_options++] = (option){
            .queue = q,
            .passes = lh_elastic_resident_passes(g, &plan, 1),
            .exposed_ns = lh_elastic_exposed_communication(g, &plan, 0).sum_ns,
            .states = lhi_elastic_compute_states(g, &plan),
        };
    }
    return LH_OK;
}

/* Returns the memory per device in bytes if groups have o->queue microbatches
 * and each chunk pass stores `stored` bytes of activations. It is multiplied by
 * replicas x chunks (D M in the PipeMesh paper), so that the value is an exact
 * integer. */
static lhi_int128 compute_memory(const chooser *c, const option *o,
                                 int64_t stored)
{
    lhi_int128 unit = (lhi_int128)c->g->replicas * c->g->chunks;
    return o->states +
           (lhi_int128)o->passes * (stored + c->g->base_bytes) * unit;
}

/* Returns the queue size (microbatches per group) whose memory is below the
 * budget when each chunk pass stores `stored` bytes. It is the largest or, with
 * LH_ELASTIC_ANY, the one with the least exposed communication. NULL: none
 * fits. */
static const option *find_queue(const chooser *c, int64_t stored)
{
    const option *best = NULL;
    for (uint32_t i = 0; i < c->n_options; i++) {
        const option *o = &c->options[i];
        if (compute_memory(c, o, stored) >= c->budget)
            continue;
        if (!best || o->exposed_ns < best->exposed_ns)
            best = o;
        if (c->search == LH_ELASTIC_LARGEST)
            return best;
    }
    return best;
}

/* Fails with LH_EINFEASIBLE: no queue size fits into `budget` bytes. The
 * message has the smallest memory over all queue sizes if every operation is
 * recomputed. */
static lh_status report_infeasible_budget(const chooser *c, int64_t budget,
                                          lh_error *err)
{
    lhi_int128 unit = (lhi_int128)c->g->replicas * c->g->chunks, least = 0;
    uint32_t queue = 0;
    for (uint32_t i = 0; i < c->n_options; i++) {
        lhi_int128 need = compute_memory(c, &c->options[i], 0);
        if (queue == 0 || need < least) {
            least = need;
            queue = c->options[i].queue;
        }
    }
    int64_t need = (int64_t)lhi_int128_divide_ceil(least, unit);
    return lhi_fail(err, LH_EINFEASIBLE,
                    "no plan fits: with full recomputation, a queue of %" PRIu32
                    " takes %" PRId64 " bytes, %" PRId64
                    " more than stays below the budget of %" PRId64,
                    queue, need, need - budget + 1, budget);
}

/* A choice with the memory that it owns; `choice` comes first. */
typedef struct owned_choice {
    lh_elastic_choice choice;
    lhi_arena *mem;
    lh_elastic_plan *plan;
} owned_choice;

/* Fills in the result for queue size `o` (microbatches per group) and for `at`,
 * the recomputation that stores at.stored bytes per chunk pass and takes
 * at.recompute_ns. */
static lh_status fill_choice(chooser *c, const option *o,
                             lhi_elastic_recompute_point at, owned_choice *out,
                             lh_error *err)
{
    const lh_elastic_case *g = c->g;
    bool *recomputed = LHI_NEW(out->mem, bool, c->sums.n_ops);
    if (!recomputed)
        return lhi_fail_nomem(err);
    lhi_elastic_recover_operations(&c->sums, at, recomputed);
    LHI_TRY(lh_elastic_plan_queue(g, o->queue, &out->plan, err));
    int64_t J = (int64_t)g->chunks * g->microbatches + g->stages - 1;
    out->choice = (lh_elastic_choice){
        .plan = out->plan,
        .n_ops = c->sums.n_ops,
        .recomputed = recomputed,
        .stored = at.stored,
        .recompute_ns = at.recompute_ns,
        .overhead_ns = J * at.recompute_ns + o->exposed_ns,
        .time_ns = lhi_elastic_iteration_ns(g, out->plan, at.recompute_ns),
        .memory = lh_elastic_peak_memory(g, out->plan, at.stored),
    };
    return LH_OK;
}

/* Chooses the queue size and the recomputed operations that minimise recompute
 * time plus exposed communication, with memory below `budget` bytes. */
static lh_status choose(chooser *c, int64_t budget, owned_choice *out,
                        lh_error *err)
{
    LHI_TRY(find_options(c, err));
    int64_t J = (int64_t)c->g->chunks * c->g->microbatches + c->g->stages - 1;
    const struct lhi_elastic_recompute_row *all = &c->sums.rows[c->sums.n_ops];
    const option *best = NULL;
    const lhi_elastic_recompute_point *at = NULL;
    lhi_int128 least = 0;
    for (size_t i = 0; i < all->count; i++) {
        const option *o = find_queue(c, all->sums[i].stored);
        if (!o)
            break; /* more stored bytes do not fit either */
        lhi_int128 lost =
            (lhi_int128)J * all->sums[i].recompute_ns + o->exposed_ns;
        if (!best || lost < least) {
            least = lost;
            best = o;
            at = &all->sums[i];
        }
    }
    if (!best)
        return report_infeasible_budget(c, budget, err);
    return fill_choice(c, best, *at, out, err);
}

lh_status lh_elastic_choose(const lh_elastic_case *given, uint32_t n_ops,
                            const lh_elastic_op *ops, int64_t budget,
                            lh_elastic_search search, lh_elastic_choice **out,
                            lh_error *err)
{
    LHI_TRY(lhi_elastic_check_case(given, err));
    lhi_arena *mem = lhi_arena_make(0), *keep = lhi_arena_make(0);
    owned_choice *choice = keep ? LHI_NEW(keep, owned_choice, 1) : NULL;
    lh_status status;
    if (!mem || !choice) {
        status = lhi_fail_nomem(err);
    } else {
        chooser c = {.g = given,
                     .mem = mem,
                     .budget =
                         (lhi_int128)budget * given->replicas * given->chunks,
                     .search = search};
        choice->mem = keep;
        status = lhi_elastic_build_recompute_table(given, n_ops, ops, false,
                                                   mem, &c.sums, err);
        if (status == LH_OK)
            status = choose(&c, budget, choice, err);
    }
    lhi_arena_free(mem);
    if (status != LH_OK) {
        if (choice)
            lh_elastic_plan_free(choice->plan);
        lhi_arena_free(keep);
        return status;
    }
    *out = &choice->choice;
    return LH_OK;
}

void lh_elastic_choice_free(lh_elastic_choice *choice)
{
    if (!choice)
        return;
    owned_choice *owned = (owned_choice *)choice;
    lh_elastic_plan_free(owned->plan);
    lhi_arena_free(owned->mem);
}
