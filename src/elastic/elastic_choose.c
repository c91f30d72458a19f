/* SPDX-License-Identifier: Apache-2.0 */
/* Queue size, sharding and recomputation together (PipeMesh, section IV-B).
 *
 * The sums of stored bytes that subsets of the operations can have are walked
 * operation by operation, keeping for each sum the least time of what is not
 * stored. That is the paper's table with its start at L[0][0] = D(F(0)): the
 * differences of exposed communication along a row cancel, so they are added
 * once, at the end. */
#include "elastic/elastic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SUMS = 1 << 23 }; /* of all rows together: 128 MiB */

/* What a queue size comes to. */
typedef struct option {
    uint32_t queue;
    int64_t passes, exposed_ns;
    lhi_wide states; /* over D M */
} option;

typedef struct sum {
    int64_t stored, recompute_ns;
} sum;

typedef struct row {
    sum *sums; /* by `stored` */
    size_t count;
} row;

typedef struct chooser {
    const lh_elastic_case *g;
    lhi_arena *mem;
    uint32_t n_ops;
    const lh_elastic_op *ops;
    lhi_wide budget; /* over D M */
    lh_elastic_search search;
    uint32_t n_options;
    option *options; /* by queue, largest first */
    row *rows;       /* [k]: of the first k operations */
    uint32_t *parts; /* room for a plan's sequences */
} chooser;

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
                        " fewer than the %" PRIu32 " stages; a group needs as "
                        "many",
                        g->microbatches, g->stages - g->microbatches,
                        g->stages);
    for (uint32_t q = g->microbatches; q >= g->stages && q >= 1; q--) {
        lh_elastic_plan plan;
        uint32_t n = lhi_elastic_groups(g, q);
        if (lhi_elastic_fill(g, q, c->parts, c->parts + n, &plan, NULL) !=
            LH_OK)
            continue;
        c->options[c->n_options++] = (option){
            .queue = q,
            .passes = lh_elastic_passes(g, &plan, 1),
            .exposed_ns = lh_elastic_exposed(g, &plan, 0).sum_ns,
            .states = lhi_elastic_states(g, &plan),
        };
    }
    return LH_OK;
}

/* The row after `from`: each sum with the next operation recomputed, and with
 * it stored; both are sorted, so one pass merges them. */
static lh_status extend(chooser *c, const row *from, const lh_elastic_op *op,
                        row *to, size_t *total, lh_error *err)
{
    if (*total + 2 * from->count > MOST_SUMS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the operations' sizes have more than %d different "
                        "sums; round them to a coarser unit",
                        MOST_SUMS);
    to->sums = LHI_NEW(c->mem, sum, 2 * from->count);
    if (!to->sums)
        return lhi_fail_nomem(err);
    size_t again = 0, kept = 0;
    while (kept < from->count) {
        int64_t a = again < from->count ? from->sums[again].stored : INT64_MAX;
        int64_t b = from->sums[kept].stored + op->bytes;
        sum next = {a < b ? a : b, INT64_MAX};
        if (a == next.stored)
            next.recompute_ns = from->sums[again++].recompute_ns + op->ns;
        if (b == next.stored) {
            int64_t ns = from->sums[kept++].recompute_ns;
            if (ns < next.recompute_ns)
                next.recompute_ns = ns;
        }
        to->sums[to->count++] = next;
    }
    *total += to->count;
    return LH_OK;
}

static lh_status find_sums(chooser *c, lh_error *err)
{
    c->rows = LHI_NEW(c->mem, row, (size_t)c->n_ops + 1);
    sum *start = LHI_NEW(c->mem, sum, 1);
    if (!c->rows || !start)
        return lhi_fail_nomem(err);
    c->rows[0] = (row){start, 1};
    size_t total = 1;
    for (uint32_t k = 0; k < c->n_ops; k++)
        LHI_TRY(extend(c, &c->rows[k], &c->ops[k], &c->rows[k + 1], &total,
                       err));
    return LH_OK;
}

static lhi_wide need_of(const chooser *c, const option *o, int64_t stored)
{
    lhi_wide unit = (lhi_wide)c->g->replicas * c->g->chunks;
    return o->states + (lhi_wide)o->passes * stored * unit;
}

/* F(o), or the queue with the least exposed communication. NULL: none fits. */
static const option *queue_for(const chooser *c, int64_t stored)
{
    const option *best = NULL;
    for (uint32_t i = 0; i < c->n_options; i++) {
        const option *o = &c->options[i];
        if (need_of(c, o, stored) >= c->budget)
            continue;
        if (!best || o->exposed_ns < best->exposed_ns)
            best = o;
        if (c->search == LH_ELASTIC_LARGEST)
            return best;
    }
    return best;
}

static lh_status refuse_budget(const chooser *c, int64_t budget,
                               lh_error *err)
{
    lhi_wide unit = (lhi_wide)c->g->replicas * c->g->chunks, least = 0;
    uint32_t queue = 0;
    for (uint32_t i = 0; i < c->n_options; i++) {
        lhi_wide need = need_of(c, &c->options[i], 0);
        if (queue == 0 || need < least) {
            least = need;
            queue = c->options[i].queue;
        }
    }
    int64_t need = (int64_t)lhi_wide_ceil(least, unit);
    return lhi_fail(err, LH_EINFEASIBLE,
                    "no plan fits: with everything recomputed a queue of "
                    "%" PRIu32 " takes %" PRId64 " bytes, %" PRId64
                    " more than stays below the budget of %" PRId64,
                    queue, need, need - budget + 1, budget);
}

/* Which operations a sum of the last row stores. */
static void trace_back(const chooser *c, sum at, bool *recomputed)
{
    for (uint32_t k = c->n_ops; k-- > 0;) {
        const row *r = &c->rows[k];
        const lh_elastic_op *op = &c->ops[k];
        recomputed[k] = false;
        for (size_t i = 0; i < r->count; i++)
            if (r->sums[i].stored == at.stored &&
                r->sums[i].recompute_ns + op->ns == at.recompute_ns) {
                recomputed[k] = true;
                at = r->sums[i];
                break;
            }
        if (!recomputed[k])
            at.stored -= op->bytes;
    }
}

typedef struct owned_choice {
    lh_elastic_choice choice;
    lhi_arena *mem;
    lh_elastic_plan *plan;
} owned_choice;

static lh_status fill_choice(chooser *c, const option *o, sum at,
                             owned_choice *out, lh_error *err)
{
    const lh_elastic_case *g = c->g;
    lh_elastic_choice *choice = &out->choice;
    bool *recomputed = LHI_NEW(out->mem, bool, c->n_ops);
    if (!recomputed)
        return lhi_fail_nomem(err);
    trace_back(c, at, recomputed);
    LHI_TRY(lh_elastic_plan_queue(g, o->queue, &out->plan, err));
    int64_t J = (int64_t)g->chunks * g->microbatches + g->stages - 1;
    *choice = (lh_elastic_choice){
        .plan = out->plan,
        .n_ops = c->n_ops,
        .recomputed = recomputed,
        .stored = at.stored,
        .recompute_ns = at.recompute_ns,
        .lost_ns = J * at.recompute_ns + o->exposed_ns,
        .time_ns = lh_elastic_time(g, out->plan, at.recompute_ns),
        .memory = lh_elastic_memory_of(g, out->plan, at.stored),
    };
    choice->slow_time_ns =
        choice->time_ns - o->exposed_ns +
        lh_elastic_exposed(g, out->plan, g->b_ns + at.recompute_ns).sum_ns;
    return LH_OK;
}

static lh_status choose(chooser *c, int64_t budget, owned_choice *out,
                        lh_error *err)
{
    LHI_TRY(find_options(c, err));
    LHI_TRY(find_sums(c, err));
    int64_t J = (int64_t)c->g->chunks * c->g->microbatches + c->g->stages - 1;
    const row *all = &c->rows[c->n_ops];
    const option *best = NULL;
    const sum *at = NULL;
    lhi_wide least = 0;
    for (size_t i = 0; i < all->count; i++) {
        const option *o = queue_for(c, all->sums[i].stored);
        if (!o)
            break; /* more bytes fit no better */
        lhi_wide lost =
            (lhi_wide)J * all->sums[i].recompute_ns + o->exposed_ns;
        if (!best || lost < least) {
            least = lost;
            best = o;
            at = &all->sums[i];
        }
    }
    if (!best)
        return refuse_budget(c, budget, err);
    return fill_choice(c, best, *at, out, err);
}

static lh_status check_ops(const lh_elastic_case *g, uint32_t n,
                           const lh_elastic_op *ops, lh_error *err)
{
    int64_t J = (int64_t)g->chunks * g->microbatches + g->stages;
    lhi_wide bytes = 0, ns = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (ops[k].bytes < 0 || ops[k].ns < 0)
            return lhi_fail(err, LH_EINVAL,
                            "operation %" PRIu32 ": negative bytes or time",
                            k);
        bytes += ops[k].bytes;
        ns += ops[k].ns;
    }
    if (bytes * J > (lhi_wide)1 << 62 || ns * J > (lhi_wide)1 << 60)
        return lhi_fail(err, LH_EINVAL,
                        "the operations add up to more than is handled");
    return LH_OK;
}

lh_status lh_elastic_choose(const lh_elastic_case *given, uint32_t n_ops,
                            const lh_elastic_op *ops, int64_t budget,
                            lh_elastic_search search, lh_elastic_choice **out,
                            lh_error *err)
{
    LHI_TRY(lhi_elastic_check_case(given, err));
    LHI_TRY(check_ops(given, n_ops, ops, err));
    lhi_arena *mem = lhi_arena_make(0), *keep = lhi_arena_make(0);
    owned_choice *choice = keep ? LHI_NEW(keep, owned_choice, 1) : NULL;
    lh_status status;
    if (!mem || !choice) {
        status = lhi_fail_nomem(err);
    } else {
        chooser c = {.g = given,
                     .mem = mem,
                     .n_ops = n_ops,
                     .ops = ops,
                     .budget = (lhi_wide)budget * given->replicas *
                               given->chunks,
                     .search = search};
        choice->mem = keep;
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
