/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a file's ranges into operations. If a range launched GPU work, its
 * kernels determine the operation's time. Otherwise the range itself does, less
 * the time in which a pass waited for a receive. */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

/* Least wait: below it the message had already arrived. */
#define MIN_WAIT_NS INT64_C(100000)

/* A time interval. */
typedef struct span {
    int64_t begin, end; /* begin > end: empty */
} span;

static const span no_span = {INT64_MAX, INT64_MIN};

/* Extends time interval `s` to include the interval from `begin` to `end`, in
 * ns. */
static void extend(span *s, int64_t begin, int64_t end)
{
    s->begin = begin < s->begin ? begin : s->begin;
    s->end = end > s->end ? end : s->end;
}

/* Ranges sorted by start: those for operations, which do not overlap, and those
 * from communication libraries, inside or beside them. */
typedef struct sorted_ranges {
    lhi_named_range **work, **talk;
    size_t n_work, n_talk;
    span *gpu; /* per range, indexed as in the file */
    const lhi_named_range *all;
} sorted_ranges;

/* Compares pointers to ranges by start, then by position in the file, for
 * lhi_sort(). */
static int compare_starts(const void *a, const void *b)
{
    const lhi_named_range *x = *(lhi_named_range *const *)a,
                          *y = *(lhi_named_range *const *)b;
    if (x->start_ns != y->start_ns)
        return x->start_ns > y->start_ns ? 1 : -1;
    return (x > y) - (x < y);
}

/* Frees the arrays of sorted ranges, but not the ranges. */
static void free_sorted_ranges(sorted_ranges *s)
{
    free(s->work);
    free(s->talk);
    free(s->gpu);
}

/* Separates the operations' ranges from the communication libraries', and sorts
 * both by start. Release with free_sorted_ranges(). */
static lh_status sort_ranges(lhi_file_events *e, sorted_ranges *s,
                             lh_error *err)
{
    s->all = e->ranges;
    s->work = malloc((e->n_ranges + 1) * sizeof *s->work);
    s->talk = malloc((e->n_ranges + 1) * sizeof *s->talk);
    s->gpu = malloc((e->n_ranges + 1) * sizeof *s->gpu);
    if (!s->work || !s->talk || !s->gpu)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < e->n_ranges; i++) {
        lhi_named_range *r = &e->ranges[i];
        s->gpu[i] = no_span;
        if (r->kind < LHI_N_OPS)
            s->work[s->n_work++] = r;
        else if (r->kind >= LHI_RANGE_SEND)
            s->talk[s->n_talk++] = r;
    }
    lhi_sort(s->work, s->n_work, sizeof *s->work, compare_starts);
    lhi_sort(s->talk, s->n_talk, sizeof *s->talk, compare_starts);
    return LH_OK;
}

/* Returns the last range that starts at or before `ns`, if it lasts until
 * then; else NULL. `sorted`: n ranges by start. */
static lhi_named_range *find_range(lhi_named_range **sorted, size_t n,
                                   int64_t ns)
{
    size_t from = 0;
    while (n > 0) {
        size_t half = n / 2;
        if (sorted[from + half]->start_ns <= ns) {
            from += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return from && sorted[from - 1]->end_ns >= ns ? sorted[from - 1] : NULL;
}

/* --- GPU work ------------------------------------------------------------- */

/* Compares GPU events by correlation number, the launch before its kernels,
 * for lhi_sort(). */
static int compare_correlations(const void *a, const void *b)
{
    const lhi_kernel *x = a, *y = b;
    if (x->correlation != y->correlation)
        return x->correlation > y->correlation ? 1 : -1;
    return (int)y->is_launch - (int)x->is_launch;
}

/* Extends a range's GPU interval by a kernel. Passes use compute kernels only,
 * messages and library ranges communication kernels only. */
static void assign_kernel(sorted_ranges *s, const lhi_named_range *range,
                          const lhi_kernel *k)
{
    bool counts =
        lhi_range_is_pass(range->kind) ? !k->communicates
        : lhi_range_is_message(range->kind) || range->kind >= LHI_RANGE_SEND
            ? k->communicates
            : true;
    if (counts)
        extend(&s->gpu[range - s->all], k->start_ns, k->end_ns);
}

/* Assigns kernels to the range in which the CPU launched them. All threads
 * count, because the backward pass has its own. */
static void assign_kernels(lhi_file_events *e, sorted_ranges *s)
{
    const lhi_kernel *launch = NULL;
    lhi_sort(e->kernels, e->n_kernels, sizeof *e->kernels,
             compare_correlations);
    for (size_t i = 0; i < e->n_kernels; i++) {
        const lhi_kernel *k = &e->kernels[i];
        if (k->is_launch) {
            launch = k;
            continue;
        }
        if (!launch || launch->correlation != k->correlation)
            continue;
        lhi_named_range *work =
            find_range(s->work, s->n_work, launch->start_ns);
        lhi_named_range *talk =
            find_range(s->talk, s->n_talk, launch->start_ns);
        if (work)
            assign_kernel(s, work, k);
        if (talk)
            assign_kernel(s, talk, k);
    }
}

/* --- operations ----------------------------------------------------------- */

/* Appends an `op` operation to rank `into`: its time is range `r`'s GPU
 * interval or, without kernels, the range itself; chunk, microbatch and step
 * are those of range `numbers`. */
static lh_status add_op(lhi_profiled_rank *into, const sorted_ranges *s,
                        const lhi_named_range *r, uint8_t op,
                        const lhi_named_range *numbers, lh_error *err)
{
    const span *gpu = &s->gpu[r - s->all];
    bool timed = gpu->begin <= gpu->end;
    LHI_TRY(lhi_profiler_grow_array((void **)&into->ops, into->n_ops,
                                    &into->ops_room, sizeof *into->ops, err));
    into->ops[into->n_ops++] =
        (lhi_rank_op){.start_ns = timed ? gpu->begin : r->start_ns,
                      .end_ns = timed ? gpu->end : r->end_ns,
                      .cpu_ns = r->start_ns,
                      .cpu_end_ns = r->end_ns,
                      .step = -1,
                      .chunk = (int32_t)numbers->chunk,
                      .microbatch = (int32_t)numbers->microbatch,
                      .op = op,
                      .timed_by_gpu = timed};
    return LH_OK;
}

/* Checks whether an operation is a forward pass, or an activation send or
 * receive. */
static bool is_forward(uint8_t op)
{
    return op == LHI_OP_FORWARD || op == LHI_OP_FORWARD_SEND ||
           op == LHI_OP_FORWARD_RECV;
}

/* Applies a communication library's send or receive, range `talk`: inside a
 * message's range it determines that message's time, inside a pass it becomes a
 * message of the pass. Ignores others. */
static lh_status add_library_message(lhi_profiled_rank *into,
                                     const sorted_ranges *s,
                                     lhi_named_range *talk, lh_error *err)
{
    bool sends = talk->kind == LHI_RANGE_SEND;
    lhi_named_range *within = find_range(s->work, s->n_work, talk->start_ns);
    if (!within)
        return LH_OK;
    if (within->kind == LHI_OP_FORWARD_RECV ||
        within->kind == LHI_OP_BACKWARD_RECV)
        within->end_ns =
            talk->end_ns > within->end_ns ? talk->end_ns : within->end_ns;
    if (!lhi_range_is_pass(within->kind))
        return LH_OK;
    bool forward = is_forward(within->kind);
    uint8_t op = sends ? (forward ? LHI_OP_FORWARD_SEND : LHI_OP_BACKWARD_SEND)
                       : (forward ? LHI_OP_FORWARD_RECV : LHI_OP_BACKWARD_RECV);
    LHI_TRY(add_op(into, s, talk, op, within, err));
    if (sends && talk->start_ns < within->end_ns)
        within->end_ns = talk->start_ns; /* the pass ends where it sends its
                                          * output */
    return LH_OK;
}

/* Moves the start of the pass that waits for a receive to the receive's end. */
static void remove_wait(const sorted_ranges *s, lhi_rank_op *op)
{
    lhi_named_range *pass = find_range(s->work, s->n_work, op->end_ns);
    if (op->timed_by_gpu || !pass || !lhi_range_is_pass(pass->kind) ||
        is_forward(pass->kind) != is_forward(op->op) ||
        pass->microbatch != op->microbatch ||
        (pass->chunk != op->chunk && pass->chunk >= 0 && op->chunk >= 0))
        return;
    op->is_exact = op->end_ns - pass->start_ns >= MIN_WAIT_NS;
    pass->start_ns = op->end_ns;
}

/* Converts a file's ranges into operations: messages first, because their
 * receives shorten the passes that wait for them. */
static lh_status build_operations(lhi_profiled_rank *into, sorted_ranges *s,
                                  lh_error *err)
{
    size_t first = into->n_ops;
    for (size_t i = 0; i < s->n_talk; i++)
        if (s->talk[i]->kind == LHI_RANGE_SEND ||
            s->talk[i]->kind == LHI_RANGE_RECV)
            LHI_TRY(add_library_message(into, s, s->talk[i], err));
    for (size_t i = 0; i < s->n_work; i++)
        if (!lhi_range_is_pass(s->work[i]->kind))
            LHI_TRY(
                add_op(into, s, s->work[i], s->work[i]->kind, s->work[i], err));
    for (size_t i = first; i < into->n_ops; i++)
        if (lhi_op_is_receive((lhi_op_type)into->ops[i].op))
            remove_wait(s, &into->ops[i]);
    for (size_t i = 0; i < s->n_work; i++)
        if (lhi_range_is_pass(s->work[i]->kind))
            LHI_TRY(
                add_op(into, s, s->work[i], s->work[i]->kind, s->work[i], err));
    return LH_OK;
}

/* --- steps ---------------------------------------------------------------- */

/* Compares operations by kind, chunk, microbatch and CPU start, for
 * lhi_sort(). */
static int compare_same(const void *a, const void *b)
{
    const lhi_rank_op *x = a, *y = b;
    if (x->op != y->op)
        return x->op > y->op ? 1 : -1;
    if (x->chunk != y->chunk)
        return x->chunk > y->chunk ? 1 : -1;
    if (x->microbatch != y->microbatch)
        return x->microbatch > y->microbatch ? 1 : -1;
    return (x->cpu_ns > y->cpu_ns) - (x->cpu_ns < y->cpu_ns);
}

/* Checks whether an operation is a pass or a message, whose occurrences number
 * the steps. */
static bool is_counted(const lhi_rank_op *op)
{
    return lhi_range_is_pass(op->op) || lhi_range_is_message(op->op);
}

/* Numbers steps without step ranges: a pass's or message's k-th occurrence
 * belongs to step k. Other operations belong to the preceding pass's step.
 */
static void number_steps(lhi_rank_op *ops, size_t n)
{
    lhi_sort(ops, n, sizeof *ops, compare_same);
    for (size_t i = 0; i < n; i++) {
        bool again = i && ops[i - 1].op == ops[i].op &&
                     ops[i - 1].chunk == ops[i].chunk &&
                     ops[i - 1].microbatch == ops[i].microbatch;
        ops[i].step = again ? ops[i - 1].step + 1 : 0;
    }
}

/* Compares operations by CPU start; equal ones by kind, chunk and microbatch;
 * for lhi_sort(). */
static int compare_begins(const void *a, const void *b)
{
    const lhi_rank_op *x = a, *y = b;
    if (x->cpu_ns != y->cpu_ns)
        return x->cpu_ns > y->cpu_ns ? 1 : -1;
    return compare_same(a, b);
}

/* Assigns all operations except passes and messages to the preceding pass's
 * step; -1 before the first pass. */
static void inherit_steps(lhi_rank_op *ops, size_t n)
{
    int64_t step = -1;
    for (size_t i = 0; i < n; i++) {
        if (lhi_range_is_pass(ops[i].op))
            step = ops[i].step;
        else if (!is_counted(&ops[i]))
            ops[i].step = step;
    }
}

/* Assigns a file's operations, from index `first`, to steps: by the profiler's
 * step ranges, or by counting if there are none. */
static lh_status assign_steps(lhi_file_events *e, lhi_profiled_rank *into,
                              size_t first, lh_error *err)
{
    lhi_rank_op *ops = into->ops ? into->ops + first : NULL;
    size_t n = into->n_ops - first, n_marks = 0;
    lhi_named_range **marks = malloc((e->n_ranges + 1) * sizeof *marks);
    if (!marks)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < e->n_ranges; i++)
        if (e->ranges[i].kind == LHI_RANGE_STEP)
            marks[n_marks++] = &e->ranges[i];
    lhi_sort(marks, n_marks, sizeof *marks, compare_starts);
    into->no_steps = n_marks == 0;
    if (n_marks == 0)
        number_steps(ops, n);
    lhi_sort(ops, n, sizeof *ops, compare_begins);
    if (n_marks == 0)
        inherit_steps(ops, n);
    for (size_t i = 0; i < n && n_marks; i++) {
        const lhi_named_range *mark = find_range(marks, n_marks, ops[i].cpu_ns);
        ops[i].step = mark ? mark->step : -1;
    }
    free(marks);
    return LH_OK;
}

/* --- gradients ------------------------------------------------------------ */

/* Checks whether operation `i` is the last pass of its step; *until: the start
 * of the optimizer or of the next step's first pass, INT64_MAX if neither
 * follows. */
static bool is_last_pass(const lhi_rank_op *ops, size_t n, size_t i,
                         int64_t *until)
{
    if (!lhi_range_is_pass(ops[i].op) || ops[i].step < 0)
        return false;
    size_t k = i + 1;
    while (k < n && !lhi_range_is_pass(ops[k].op) &&
           ops[k].op != LHI_OP_OPTIMIZER)
        k++;
    *until = k < n ? ops[k].cpu_ns : INT64_MAX;
    return k == n || !lhi_range_is_pass(ops[k].op) ||
           ops[k].step != ops[i].step;
}

/* Merges all gradient reductions that start in [from, until) into one
 * operation. */
static lhi_rank_op merge_reductions(const sorted_ranges *s, int64_t from,
                                    int64_t until)
{
    lhi_rank_op sum = {.chunk = -1,
                       .microbatch = -1,
                       .op = LHI_OP_REDUCE_SCATTER,
                       .cpu_ns = from,
                       .cpu_end_ns = from};
    span all = no_span;
    for (size_t i = 0; i < s->n_talk; i++) {
        const lhi_named_range *r = s->talk[i];
        const span *gpu = &s->gpu[r - s->all];
        if (r->kind != LHI_RANGE_REDUCE || r->start_ns < from ||
            r->start_ns >= until)
            continue;
        sum.timed_by_gpu = gpu->begin <= gpu->end;
        extend(&all, sum.timed_by_gpu ? gpu->begin : r->start_ns,
               sum.timed_by_gpu ? gpu->end : r->end_ns);
    }
    sum.start_ns = all.begin;
    sum.end_ns = all.end;
    return sum;
}

/* Adds each step's gradient reduction to the rank: the library's reductions
 * between its last pass and its optimizer, merged into one operation. `first`:
 * the file's first operation. */
static lh_status add_reductions(lhi_profiled_rank *into, const sorted_ranges *s,
                                size_t first, lh_error *err)
{
    size_t n = into->n_ops;
    for (size_t i = first; i < n; i++) {
        int64_t until;
        if (!is_last_pass(into->ops, n, i, &until))
            continue;
        lhi_rank_op sum = merge_reductions(s, into->ops[i].cpu_end_ns, until);
        if (sum.start_ns > sum.end_ns)
            continue;
        sum.step = into->ops[i].step;
        LHI_TRY(lhi_profiler_grow_array((void **)&into->ops, into->n_ops,
                                        &into->ops_room, sizeof *into->ops,
                                        err));
        into->ops[into->n_ops++] = sum;
    }
    return LH_OK;
}

lh_status lhi_profiler_add_operations(lhi_file_events *events,
                                      lhi_profiled_rank *into, lh_error *err)
{
    sorted_ranges s = {0};
    size_t first = into->n_ops;
    lh_status status = sort_ranges(events, &s, err);
    if (status == LH_OK) {
        assign_kernels(events, &s);
        status = build_operations(into, &s, err);
    }
    if (status == LH_OK)
        status = assign_steps(events, into, first, err);
    if (status == LH_OK)
        status = add_reductions(into, &s, first, err);
    free_sorted_ranges(&s);
    return status;
}
