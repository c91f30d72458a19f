/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in a profiler's traces, matched by name. Gloo's receive ends when a
 * caller waits for it. If the consuming pass had to wait, that end is the
 * arrival. Otherwise the message had arrived earlier; its transfer time is
 * taken as its link's median, limited by that end. */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

/* Compares message ends (sends and receives) by step, replica and message, the
 * send before the receive, for lhi_sort(). */
static int compare_ends(const void *a, const void *b)
{
    const lhi_message_end *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? 1 : -1;
    if (x->replica != y->replica)
        return x->replica > y->replica ? 1 : -1;
    if (x->message != y->message)
        return x->message > y->message ? 1 : -1;
    if (x->is_send != y->is_send)
        return x->is_send ? -1 : 1;
    if (x->op->start_ns != y->op->start_ns)
        return x->op->start_ns > y->op->start_ns ? 1 : -1;
    return (x->rank->rank > y->rank->rank) - (x->rank->rank < y->rank->rank);
}

/* Returns a key that a message's send and receive share: receiving chunk,
 * microbatch and direction. */
static uint64_t make_message_key(const lhi_rank_op *op)
{
    bool back =
        op->op == LHI_OP_BACKWARD_SEND || op->op == LHI_OP_BACKWARD_RECV;
    int64_t to = op->chunk;
    if (op->op == LHI_OP_FORWARD_SEND)
        to++;
    if (op->op == LHI_OP_BACKWARD_SEND)
        to--;
    return ((uint64_t)(to + 1) << 33) | ((uint64_t)op->microbatch << 1) | back;
}

lh_status lhi_message_ends(const lhi_profiler *p, lhi_message_end **out,
                           size_t *n, lh_error *err)
{
    size_t k = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++)
        for (size_t j = 0; j < p->ranks[i].n_ops; j++)
            k += lhi_range_is_message(p->ranks[i].ops[j].op);
    lhi_message_end *ends = malloc((k + 1) * sizeof *ends);
    if (!ends)
        return lhi_fail_nomem(err);
    k = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        lhi_profiled_rank *r = &p->ranks[i];
        for (size_t j = 0; j < r->n_ops && r->stage != LH_NONE; j++) {
            lhi_rank_op *op = &r->ops[j];
            if (lhi_range_is_message(op->op) && op->step >= 0)
                ends[k++] = (lhi_message_end){
                    .message = make_message_key(op),
                    .step = (uint64_t)op->step,
                    .replica = r->replica,
                    .is_send = !lhi_op_is_receive((lhi_op_type)op->op),
                    .rank = r,
                    .op = op};
        }
    }
    lhi_sort(ends, k, sizeof *ends, compare_ends);
    *out = ends;
    *n = k;
    return LH_OK;
}

/* Checks whether a send and a receive belong to the same message: equal step,
 * replica and message key. */
static bool same_message(const lhi_message_end *a, const lhi_message_end *b)
{
    return a->step == b->step && a->replica == b->replica &&
           a->message == b->message;
}

bool lhi_message_is_complete(const lhi_message_end *ends, size_t n, size_t i)
{
    return i + 1 < n && ends[i].is_send && !ends[i + 1].is_send &&
           same_message(&ends[i], &ends[i + 1]);
}

/* --- links ---------------------------------------------------------------- */

/* A message with a known transfer time on a link between two ranks. */
typedef struct known_message {
    const lhi_profiled_rank *from, *to;
    bool back;
    int64_t ns;
} known_message;

/* Compares messages by link: direction, sending rank and receiving rank;
 * returns -1, 0 or 1. */
static int compare_links(const known_message *x, const known_message *y)
{
    if (x->back != y->back)
        return x->back ? 1 : -1;
    if (x->from != y->from)
        return x->from > y->from ? 1 : -1;
    return (x->to > y->to) - (x->to < y->to);
}

/* Compares messages by link, then by transfer time, for lhi_sort(). */
static int compare_known(const void *a, const void *b)
{
    const known_message *x = a, *y = b;
    int order = compare_links(x, y);
    return order ? order : (x->ns > y->ns) - (x->ns < y->ns);
}

/* Returns the link and time in ns for a send and its following receive: from
 * the later start to the receive's end. */
static known_message observe_transfer(const lhi_message_end *send)
{
    const lhi_rank_op *out = send[0].op, *in = send[1].op;
    int64_t from = out->start_ns > in->start_ns ? out->start_ns : in->start_ns;
    return (known_message){send[0].rank, send[1].rank, (send->message & 1) != 0,
                           in->end_ns - from};
}

/* Returns the median transfer time on a message's link; 0 if none is known,
 * because no pass ever waited. */
static int64_t get_link_median(const known_message *list, size_t n,
                               const known_message *one)
{
    size_t from = 0, to = n;
    while (from < to) {
        size_t half = from + (to - from) / 2;
        if (compare_links(&list[half], one) < 0)
            from = half + 1;
        else
            to = half;
    }
    for (to = from; to < n && compare_links(&list[to], one) == 0;)
        to++;
    return to > from ? list[from + (to - from - 1) / 2].ns : 0;
}

/* Sets a message's arrival to its receive's end. If no pass waited for the
 * receive, limits the transfer time to its link's median. */
static void set_arrival(lhi_message_end *send, const known_message *list,
                        size_t n)
{
    lhi_rank_op *out = send[0].op, *in = send[1].op;
    if (out->timed_by_gpu || in->timed_by_gpu)
        return;
    if (!in->is_exact) {
        known_message one = observe_transfer(send);
        int64_t begin = in->end_ns - one.ns,
                usual = get_link_median(list, n, &one);
        if (one.ns > 0 && usual < one.ns)
            in->end_ns = begin + (usual > 0 ? usual : 0);
    }
    out->end_ns = in->end_ns > out->start_ns ? in->end_ns : out->start_ns;
}

lh_status lhi_profiler_time_messages(lhi_profiler *p, lh_error *err)
{
    lhi_message_end *ends;
    size_t n, n_known = 0;
    LHI_TRY(lhi_message_ends(p, &ends, &n, err));
    known_message *list = malloc((n + 1) * sizeof *list);
    if (!list) {
        free(ends);
        return lhi_fail_nomem(err);
    }
    for (size_t i = 0; i + 1 < n; i++)
        if (lhi_message_is_complete(ends, n, i) && ends[i + 1].op->is_exact)
            list[n_known++] = observe_transfer(&ends[i]);
    lhi_sort(list, n_known, sizeof *list, compare_known);
    for (size_t i = 0; i + 1 < n; i++)
        if (lhi_message_is_complete(ends, n, i))
            set_arrival(&ends[i], list, n_known);
    free(list);
    free(ends);
    return LH_OK;
}
