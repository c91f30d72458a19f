/* SPDX-License-Identifier: Apache-2.0 */
/* Capacity of one machine. The operations that must start at `a` or later and
 * end at `b` or earlier need at most b - a of machine time; if they need more
 * for some interval [a, b], no order of the machine keeps the windows. The
 * condition is exact for preemptive schedules and necessary for all others
 * (docs/formats/certificate.md). */
#include "schedule/verifier/model.h"

#include "base/integer_math.h"

#include <stdlib.h>

/* Compares operations by time, then by number, for qsort(). */
static int compare_events(const void *a, const void *b)
{
    const lhi_verify_event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* Lists the machine's operations as events, in ascending order of their
 * `time`. */
static void sort_operations(lhi_verify_event *events,
                            const lhi_verify_machine *m, const int64_t *time)
{
    for (uint32_t i = 0; i < m->n_ops; i++)
        events[i] = (lhi_verify_event){time[m->first_op + i], m->first_op + i};
    qsort(events, m->n_ops, sizeof *events, compare_events);
}

/* Adds an operation of duration `time` at leaf `leaf` (its rank by deadline) to
 * the tree. Updates, in all nodes above, the sum of durations and its largest
 * excess over a deadline. Node i has children 2i and 2i + 1. */
static void add_demand(lhi_verify_demand *tree, uint32_t leaf, int64_t time,
                       int64_t deadline)
{
    tree[leaf] = (lhi_verify_demand){time, time - deadline};
    for (uint32_t i = leaf / 2; i > 0; i /= 2) {
        const lhi_verify_demand *left = &tree[2 * i], *right = left + 1;
        tree[i].sum = left->sum + right->sum;
        tree[i].excess = lhi_max_int64(left->excess, left->sum + right->excess);
    }
}

bool lhi_verify_is_overloaded(lhi_verify_model *claim, uint32_t m)
{
    const lhi_verify_machine *machine = &claim->machines[m];
    uint32_t n = machine->n_ops, leaves = 1;
    uint32_t depth = 1;
    while (leaves < n) {
        leaves *= 2;
        depth++;
    }
    lhi_verify_count_work(claim, 3 * (uint64_t)n * depth + 2 * leaves);
    for (uint32_t i = 1; i < 2 * leaves; i++)
        claim->demand[i] = (lhi_verify_demand){0, -LHI_NEVER};
    sort_operations(claim->events, machine, claim->finish);
    for (uint32_t i = 0; i < n; i++)
        claim->rank[claim->events[i].op - machine->first_op] = i;
    sort_operations(claim->events, machine, claim->start);
    for (uint32_t i = n; i-- > 0;) {
        uint32_t o = claim->events[i].op;
        add_demand(claim->demand, leaves + claim->rank[o - machine->first_op],
                   claim->rows[claim->row_of[o]].time, claim->finish[o]);
        if (claim->demand[1].excess > -claim->start[o])
            return true;
    }
    return false;
}
