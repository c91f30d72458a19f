/* SPDX-License-Identifier: Apache-2.0 */
/* Rank clock offsets. A message never arrives before it was sent, and no
 * collective ends before all ranks have started it: both bound the offset
 * between two clocks from above and below. If offset 0 is within the bounds,
 * the clocks stay as they are, because an asymmetric link looks like an offset.
 * Otherwise the bounds' midpoint, or the only bound, is subtracted. */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"
#include "report/diagnosis/step_ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A rank, and the rank earlier in the list with which its clock is compared. */
typedef struct clock_comparison {
    lhi_profiled_rank *rank;
    uint32_t with;       /* index in the same list; LH_NONE: none */
    int64_t least, most; /* bounds on its clock's offset */
    int64_t ahead_ns;    /* offset from the first rank's clock */
} clock_comparison;

/* Clock comparison state. */
typedef struct clocks {
    lhi_profiler *p;
    clock_comparison *list;
    uint32_t n;
    uint32_t *of_rank; /* per entry of p->ranks: index in the list */
} clocks;

/* Compares ranks by replica, stage and rank number, for lhi_sort(). */
static int compare_ranks(const void *a, const void *b)
{
    const lhi_profiled_rank *x = ((const clock_comparison *)a)->rank;
    const lhi_profiled_rank *y = ((const clock_comparison *)b)->rank;
    if (x->replica != y->replica)
        return x->replica > y->replica ? 1 : -1;
    if (x->stage != y->stage)
        return x->stage > y->stage ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Returns the rank with which rank i's clock is compared: the same replica's
 * previous stage; for a replica's first rank, one of the same stage. */
static uint32_t choose_reference(const clocks *c, uint32_t i)
{
    const lhi_profiled_rank *own = c->list[i].rank;
    if (i && c->list[i - 1].rank->replica == own->replica)
        return i - 1;
    for (uint32_t k = 0; k < i; k++)
        if (c->list[k].rank->stage == own->stage)
            return k;
    return LH_NONE;
}

/* Lists the ranks with a known stage, sorted by replica and stage, and chooses
 * for each the rank with which its clock is compared. */
static lh_status list_ranks(lhi_profiler *p, clocks *c, lh_error *err)
{
    c->p = p;
    c->list = calloc(p->n_ranks + 1u, sizeof *c->list);
    c->of_rank = calloc(p->n_ranks + 1u, sizeof *c->of_rank);
    if (!c->list || !c->of_rank)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (p->ranks[i].stage != LH_NONE)
            c->list[c->n++] = (clock_comparison){
                .rank = &p->ranks[i], .least = INT64_MIN, .most = INT64_MAX};
    lhi_sort(c->list, c->n, sizeof *c->list, compare_ranks);
    for (uint32_t i = 0; i < c->n; i++) {
        c->list[i].with = choose_reference(c, i);
        c->of_rank[c->list[i].rank - p->ranks] = i;
    }
    return LH_OK;
}

/* Tightens a clock offset's bounds: an event on `a` at from_ns, by its own
 * clock, is not later than an event on `b` at to_ns. */
static void add_order(clocks *c, const lhi_profiled_rank *a, int64_t from_ns,
                      const lhi_profiled_rank *b, int64_t to_ns)
{
    uint32_t x = c->of_rank[a - c->p->ranks], y = c->of_rank[b - c->p->ranks];
    int64_t apart = to_ns - from_ns;
    if (c->list[y].with == x && apart < c->list[y].most)
        c->list[y].most = apart;
    if (c->list[x].with == y && -apart > c->list[x].least)
        c->list[x].least = -apart;
}

/* Tightens the offset bounds by each message whose send and receive are both
 * recorded. */
static lh_status apply_messages(clocks *c, lh_error *err)
{
    lhi_message_end *ends;
    size_t n;
    LHI_TRY(lhi_message_ends(c->p, &ends, &n, err));
    for (size_t i = 0; i + 1 < n; i++)
        if (lhi_message_is_complete(ends, n, i))
            add_order(c, ends[i].rank, ends[i].op->start_ns, ends[i + 1].rank,
                      ends[i + 1].op->end_ns);
    free(ends);
    return LH_OK;
}

/* Returns the index of the rank's next collective over a stage's replicas, from
 * index `i` on; the operation count if there is none. */
static size_t find_next_collective(const lhi_profiled_rank *r, size_t i)
{
    while (i < r->n_ops && r->ops[i].op != LHI_OP_REDUCE_SCATTER &&
           r->ops[i].op != LHI_OP_ALL_GATHER &&
           r->ops[i].op != LHI_OP_SEPARATE && r->ops[i].op != LHI_OP_CLIP)
        i++;
    return i;
}

/* Tightens the offset bounds by the collectives between two ranks on one stage,
 * whose operations are sorted by step. */
static void apply_collectives(clocks *c, const lhi_profiled_rank *a,
                              const lhi_profiled_rank *b)
{
    size_t i = find_next_collective(a, 0), k = find_next_collective(b, 0);
    while (i < a->n_ops && k < b->n_ops) {
        const lhi_rank_op *x = &a->ops[i], *y = &b->ops[k];
        if (x->step == y->step && x->op == y->op) {
            add_order(c, a, x->start_ns, b, y->end_ns);
            add_order(c, b, y->start_ns, a, x->end_ns);
        }
        bool first = x->step<y->step, second = x->step> y->step;
        if (!second)
            i = find_next_collective(a, i + 1);
        if (!first)
            k = find_next_collective(b, k + 1);
    }
}

/* Returns a clock offset in ns that lies within the bounds in `one`: 0 if
 * possible, else the midpoint or the only bound. */
static int64_t estimate_offset(const clock_comparison *one)
{
    if (one->least <= 0 && one->most >= 0)
        return 0;
    if (one->least == INT64_MIN)
        return one->most;
    if (one->most == INT64_MAX)
        return one->least;
    return one->least / 2 + one->most / 2;
}

/* Returns a clock offset limited to +-10^18 ns, so that sums do not overflow;
 * clocks further apart are unrelated. */
static int64_t limit_offset(int64_t ahead_ns)
{
    const int64_t most = INT64_C(1000000000000000000);
    return ahead_ns > most ? most : ahead_ns < -most ? -most : ahead_ns;
}

/* Subtracts an offset in ns from all times of a rank; reports offsets above the
 * tolerance as a defect. */
static void shift_clock(lhi_profiler *p, lhi_profiled_rank *r, int64_t ahead_ns)
{
    uint64_t n_steps = 0;
    int64_t step = -1;
    for (size_t i = 0; i < r->n_ops; i++) {
        n_steps += r->ops[i].step != step;
        step = r->ops[i].step;
        r->ops[i].start_ns -= ahead_ns;
        r->ops[i].end_ns -= ahead_ns;
    }
    if (llabs(ahead_ns) >= LHI_CLOCK_TOLERANCE_NS)
        lhi_defect_add(p->remarks, LHI_REMARK_CLOCKS, n_steps,
                       "rank %" PRIu32 ", %s by %.3f s", r->rank,
                       ahead_ns > 0 ? "ahead" : "behind",
                       (double)llabs(ahead_ns) / 1e9);
}

/* Estimates each rank's offset along the reference chain, and corrects all
 * clocks relative to the median offset. */
static lh_status shift_clocks(clocks *c, lh_error *err)
{
    int64_t usual = 0, *ahead = calloc(c->n + 1u, sizeof *ahead);
    if (!ahead)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < c->n; i++) {
        clock_comparison *one = &c->list[i];
        if (one->with != LH_NONE)
            one->ahead_ns = limit_offset(c->list[one->with].ahead_ns +
                                         estimate_offset(one));
        ahead[i] = one->ahead_ns;
    }
    usual = lhi_clock_offset_median(ahead, c->n);
    for (uint32_t i = 0; i < c->n; i++)
        shift_clock(c->p, c->list[i].rank, c->list[i].ahead_ns - usual);
    free(ahead);
    return LH_OK;
}

lh_status lhi_profiler_correct_clocks(lhi_profiler *p, lh_error *err)
{
    clocks c = {0};
    lh_status status = list_ranks(p, &c, err);
    if (status == LH_OK)
        status = apply_messages(&c, err);
    for (uint32_t i = 0; status == LH_OK && i < c.n; i++)
        if (c.list[i].with != LH_NONE &&
            c.list[c.list[i].with].rank->stage == c.list[i].rank->stage)
            apply_collectives(&c, c.list[c.list[i].with].rank, c.list[i].rank);
    if (status == LH_OK)
        status = shift_clocks(&c, err);
    free(c.list);
    free(c.of_rank);
    return status;
}
