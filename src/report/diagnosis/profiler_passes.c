/* SPDX-License-Identifier: Apache-2.0 */
/* Passes and messages in a pipeline whose trace has no ranges for them, such as
 * that of PyTorch's Schedule1F1B. Derived in each step from the CPU
 * operators' order:
 *
 * 1. A backward pass is a run of autograd functions. A next one begins where
 *    another operator came between and the sequence numbers rise, or where a
 *    message came between.
 * 2. A forward pass is the run of operators, between messages and backward
 *    passes, with a backward pass's sequence numbers. Forward passes are
 *    numbered in their order; the backward pass has its forward pass's number.
 * 3. Between two passes, sends belong to the pass before, receives to the pass
 *    after. This also holds for passes with ranges, if messages have none. */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

/* A pass, as derived. */
typedef struct derived_pass {
    int64_t start_ns, end_ns;
    int64_t first_number, last_number; /* sequence numbers */
    size_t from, to;           /* its operators: first, one past the last */
    int64_t chunk, microbatch; /* chunk -1: unknown */
    bool is_forward;
} derived_pass;

/* One step's operators and passes. */
typedef struct step_passes {
    const lhi_cpu_op *ops; /* outermost operators, by start */
    size_t n_ops;
    derived_pass *passes; /* backward passes first, then all by start */
    size_t n, room;
    lhi_file_events *events;
} step_passes;

/* Compares operators by start, longer ones first, then in file order, for
 * lhi_sort(). */
static int compare_operators(const void *a, const void *b)
{
    const lhi_cpu_op *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns > y->start_ns ? 1 : -1;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? 1 : -1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Compares derived passes by start, for lhi_sort(). */
static int compare_passes(const void *a, const void *b)
{
    const derived_pass *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Checks whether an operator posts a send or a receive between ranks. */
static bool is_message(const lhi_cpu_op *op)
{
    return op->kind == LHI_CPU_SEND || op->kind == LHI_CPU_RECV;
}

/* --- passes --------------------------------------------------------------- */

/* Lists the step's backward passes in s->passes; each is a run of autograd
 * operators. */
static lh_status find_backward_passes(step_passes *s, lh_error *err)
{
    derived_pass *own = NULL;
    bool is_apart = false, has_message = false;
    for (size_t i = 0; i < s->n_ops; i++) {
        const lhi_cpu_op *op = &s->ops[i];
        int64_t number = op->first_number;
        if (op->kind != LHI_CPU_AUTOGRAD) {
            is_apart = true;
            has_message = has_message || is_message(op);
            continue;
        }
        if (number >= 0 &&
            (!own ||
             (is_apart && (has_message || number > own->last_number)))) {
            LHI_TRY(lhi_profiler_grow_array((void **)&s->passes, s->n, &s->room,
                                            sizeof *s->passes, err));
            own = &s->passes[s->n++];
            *own = (derived_pass){.start_ns = op->start_ns,
                                  .end_ns = op->end_ns,
                                  .first_number = number,
                                  .last_number = number,
                                  .from = i,
                                  .to = i + 1,
                                  .chunk = -1};
        }
        if (!own)
            continue; /* a gradient that no function precedes */
        own->to = i + 1;
        own->end_ns = op->end_ns > own->end_ns ? op->end_ns : own->end_ns;
        if (number >= 0 && number < own->first_number)
            own->first_number = number;
        if (number > own->last_number)
            own->last_number = number;
        is_apart = has_message = false;
    }
    return LH_OK;
}

/* Checks whether an operator belongs to a backward pass or posts a message, so
 * that it cannot be inside a forward pass and separates two of them. */
static bool is_divider(const lhi_cpu_op *op)
{
    return op->kind == LHI_CPU_AUTOGRAD || is_message(op);
}

/* Checks whether an operator in a forward pass made autograd nodes (by sequence
 * number) that backward pass `back` used. */
static bool has_numbers_of(const lhi_cpu_op *op, const derived_pass *back)
{
    return !is_divider(op) && op->last_number >= back->first_number &&
           op->first_number <= back->last_number;
}

/* Finds in *out the forward pass whose autograd nodes backward pass `back`
 * used; false if the step has no such pass. */
static bool find_forward_pass(const step_passes *s, const derived_pass *back,
                              derived_pass *out)
{
    size_t at = back->from;
    /* The number of a pass's first node is also that of operators before it
     * that made no node. Therefore the search begins at the last one. */
    while (at > 0 && !has_numbers_of(&s->ops[at - 1], back))
        at--;
    if (at == 0)
        return false;
    *out = (derived_pass){.first_number = back->first_number,
                          .last_number = back->last_number,
                          .from = at - 1,
                          .to = at,
                          .chunk = -1,
                          .is_forward = true};
    while (out->from > 0 && !is_divider(&s->ops[out->from - 1]))
        out->from--;
    while (out->to < s->n_ops && !is_divider(&s->ops[out->to]))
        out->to++;
    return true;
}

/* Checks whether the step has GPU kernels. They determine the pass times;
 * ranges then only determine to which pass a kernel belongs. */
static bool launches_kernels(const step_passes *s)
{
    return s->events->n_kernels > 0;
}

/* Returns the end of a communication library's last send that ended after
 * `from` and not after `to`; `from` if there is none. */
static int64_t find_last_wait(const step_passes *s, int64_t from, int64_t to)
{
    int64_t last = from;
    for (size_t i = 0; i < s->events->n_ranges; i++) {
        const lhi_named_range *r = &s->events->ranges[i];
        if (r->kind == LHI_RANGE_SEND && r->end_ns > last && r->end_ns <= to)
            last = r->end_ns;
    }
    return last;
}

/* Returns the end of forward pass `f`, whose last operator known to belong to
 * it is `last`: the start of the next message or backward pass or, if the
 * thread waited for a send before that, the last operator before the wait. */
static int64_t find_forward_end(const step_passes *s, const derived_pass *f,
                                size_t last)
{
    int64_t end = s->ops[last].end_ns;
    int64_t next =
        f->to < s->n_ops ? s->ops[f->to].start_ns : s->ops[f->to - 1].end_ns;
    int64_t wait = find_last_wait(s, end, next);
    if (wait == end)
        return next;
    while (last + 1 < f->to && s->ops[last + 1].end_ns <= wait)
        last++;
    return s->ops[last].end_ns;
}

/* Determines when a forward pass ran. It lasts from the message or backward
 * pass before it to the next, because a module's own code is no operator. */
static void time_forward_pass(const step_passes *s, derived_pass *f)
{
    size_t first = f->from, last = f->to - 1;
    while (!has_numbers_of(&s->ops[first], f))
        first++;
    while (!has_numbers_of(&s->ops[last], f))
        last--;
    if (launches_kernels(s))
        f->start_ns = s->ops[f->from].start_ns;
    else if (f->from > 0)
        f->start_ns = find_last_wait(s, s->ops[f->from - 1].end_ns,
                                     s->ops[first].start_ns);
    else
        f->start_ns = first ? s->ops[first - 1].end_ns : s->ops[0].start_ns;
    f->end_ns = find_forward_end(s, f, last);
}

/* Sets backward pass `back`'s start to the message's end before it, unless
 * one of the n passes `forward` ends there or the pass has GPU kernels, which
 * give its times. */
static void time_backward_pass(const step_passes *s,
                               const derived_pass *forward, size_t n,
                               derived_pass *back)
{
    size_t at = back->from;
    for (size_t i = 0; i < n; i++)
        if (forward[i].to == at || launches_kernels(s))
            return;
    while (at > 0 && !is_divider(&s->ops[at - 1]))
        at--;
    if (at > 0 && is_message(&s->ops[at - 1]))
        back->start_ns =
            find_last_wait(s, s->ops[at - 1].end_ns, back->start_ns);
}

/* Adds the forward pass of each backward pass, and numbers the microbatches in
 * the forward passes' order. Backward passes without a forward pass in the step
 * are omitted. */
static lh_status add_forward_passes(step_passes *s, lh_error *err)
{
    size_t n_back = s->n, kept = 0;
    derived_pass *forward = malloc((n_back + 1) * sizeof *forward);
    if (!forward)
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < n_back; i++)
        if (find_forward_pass(s, &s->passes[i], &forward[kept])) {
            time_forward_pass(s, &forward[kept]);
            s->passes[kept++] = s->passes[i];
        }
    s->n = kept;
    for (size_t i = 0; i < kept; i++)
        time_backward_pass(s, forward, kept, &s->passes[i]);
    lh_status status = LH_OK;
    for (size_t i = 0; status == LH_OK && i < kept; i++) {
        for (size_t k = 0; k < kept; k++)
            forward[i].microbatch += forward[k].start_ns < forward[i].start_ns;
        s->passes[i].microbatch = forward[i].microbatch;
        status = lhi_profiler_grow_array((void **)&s->passes, s->n, &s->room,
                                         sizeof *s->passes, err);
        if (status == LH_OK)
            s->passes[s->n++] = forward[i];
    }
    free(forward);
    if (s->n)
        lhi_sort(s->passes, s->n, sizeof *s->passes, compare_passes);
    return status;
}

/* --- ranges --------------------------------------------------------------- */

/* Appends a named `kind` range (a pass or message) to the file's ranges, with
 * the chunk and microbatch of derived pass `p`. */
static lh_status add_range(step_passes *s, const derived_pass *p, uint8_t kind,
                           int64_t start_ns, int64_t end_ns, lh_error *err)
{
    lhi_file_events *e = s->events;
    LHI_TRY(lhi_profiler_grow_array((void **)&e->ranges, e->n_ranges,
                                    &e->ranges_room, sizeof *e->ranges, err));
    e->ranges[e->n_ranges++] = (lhi_named_range){.start_ns = start_ns,
                                                 .end_ns = end_ns,
                                                 .chunk = p->chunk,
                                                 .microbatch = p->microbatch,
                                                 .step = -1,
                                                 .kind = kind};
    return LH_OK;
}

/* Adds the message that pass `p` sends or receives, among the operators
 * [from, to): of several, the first send or the last receive. */
static lh_status add_message(step_passes *s, const derived_pass *p, bool sends,
                             size_t from, size_t to, lh_error *err)
{
    const lhi_cpu_op *found = NULL;
    uint8_t kind =
        sends ? (p->is_forward ? LHI_OP_FORWARD_SEND : LHI_OP_BACKWARD_SEND)
              : (p->is_forward ? LHI_OP_FORWARD_RECV : LHI_OP_BACKWARD_RECV);
    for (size_t i = from; i < to; i++)
        if (s->ops[i].kind == (sends ? LHI_CPU_SEND : LHI_CPU_RECV) &&
            !(sends && found))
            found = &s->ops[i];
    return found ? add_range(s, p, kind, found->start_ns, found->end_ns, err)
                 : LH_OK;
}

/* Adds a named range for each message that the step's passes send or
 * receive. */
static lh_status add_messages(step_passes *s, lh_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        const derived_pass *p = &s->passes[i];
        size_t before = i ? s->passes[i - 1].to : 0;
        size_t after = i + 1 < s->n ? s->passes[i + 1].from : s->n_ops;
        LHI_TRY(add_message(s, p, false, before, p->from, err));
        LHI_TRY(add_message(s, p, true, p->to, after, err));
    }
    return LH_OK;
}

/* Adds a named range for each pass that was derived from the step's
 * operators. */
static lh_status add_passes(step_passes *s, lh_error *err)
{
    for (size_t i = 0; i < s->n; i++)
        LHI_TRY(add_range(s, &s->passes[i],
                          s->passes[i].is_forward ? LHI_OP_FORWARD
                                                  : LHI_OP_BACKWARD,
                          s->passes[i].start_ns, s->passes[i].end_ns, err));
    return LH_OK;
}

/* Derives one step's passes and messages from its operators, numbers `from` to
 * `to` - 1, and adds ranges for them. */
static lh_status derive_step(lhi_file_events *e, size_t from, size_t to,
                             lh_error *err)
{
    step_passes s = {
        .ops = e->operators + from, .n_ops = to - from, .events = e};
    lh_status status = find_backward_passes(&s, err);
    if (status == LH_OK)
        status = add_forward_passes(&s, err);
    if (status == LH_OK)
        status = add_passes(&s, err);
    if (status == LH_OK)
        status = add_messages(&s, err);
    free(s.passes);
    return status;
}

/* --- passes with ranges --------------------------------------------------- */

/* Returns the index of the step's first operator that starts at or after time
 * `ns`. */
static size_t first_operator(const step_passes *s, int64_t ns)
{
    size_t from = 0, n = s->n_ops;
    while (n > 0) {
        size_t half = n / 2;
        if (s->ops[from + half].start_ns < ns) {
            from += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return from;
}

/* Lists the passes that have ranges, sorted by start; omits passes of weight
 * gradients alone, which have no messages. */
static lh_status list_named_passes(step_passes *s, lh_error *err)
{
    const lhi_file_events *e = s->events;
    for (size_t i = 0; i < e->n_ranges; i++) {
        const lhi_named_range *r = &e->ranges[i];
        if (!lhi_range_is_pass(r->kind) || r->kind == LHI_OP_WEIGHT)
            continue;
        LHI_TRY(lhi_profiler_grow_array((void **)&s->passes, s->n, &s->room,
                                        sizeof *s->passes, err));
        s->passes[s->n++] =
            (derived_pass){.start_ns = r->start_ns,
                           .end_ns = r->end_ns,
                           .from = first_operator(s, r->start_ns),
                           .to = first_operator(s, r->end_ns),
                           .chunk = r->chunk,
                           .microbatch = r->microbatch,
                           .is_forward = r->kind == LHI_OP_FORWARD};
    }
    if (s->n)
        lhi_sort(s->passes, s->n, sizeof *s->passes, compare_passes);
    return LH_OK;
}

/* Derives the messages of the passes that have named ranges from operators, and
 * adds named ranges for them. */
static lh_status derive_messages(lhi_file_events *e, lh_error *err)
{
    step_passes s = {.ops = e->operators, .n_ops = e->n_operators, .events = e};
    lh_status status = list_named_passes(&s, err);
    if (status == LH_OK)
        status = add_messages(&s, err);
    free(s.passes);
    return status;
}

/* --- the file ------------------------------------------------------------- */

/* Checks whether the file has messages between ranks, but no range for one. */
static bool lacks_message_ranges(const lhi_file_events *e)
{
    bool has_messages = false;
    for (size_t i = 0; i < e->n_ranges; i++)
        if (lhi_range_is_message(e->ranges[i].kind))
            return false;
    for (size_t i = 0; i < e->n_operators; i++)
        has_messages = has_messages || is_message(&e->operators[i]);
    return has_messages;
}

/* Checks whether the file has a range for a pass. */
static bool has_pass_ranges(const lhi_file_events *e)
{
    for (size_t i = 0; i < e->n_ranges; i++)
        if (lhi_range_is_pass(e->ranges[i].kind))
            return true;
    return false;
}

/* Compares times in ns, for lhi_sort(). */
static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Lists the times at which a step begins or ends, sorted: the marks' starts and
 * ends, or without marks the optimizer's ends. Release with free(). */
static lh_status find_boundaries(const lhi_file_events *e, int64_t **out,
                                 size_t *n, lh_error *err)
{
    bool has_marks = false;
    int64_t *list = malloc((2 * e->n_ranges + 1) * sizeof *list);
    if (!list)
        return lhi_fail_nomem(err);
    *n = 0;
    for (size_t i = 0; i < e->n_ranges; i++)
        has_marks = has_marks || e->ranges[i].kind == LHI_RANGE_STEP;
    for (size_t i = 0; i < e->n_ranges; i++) {
        const lhi_named_range *r = &e->ranges[i];
        if (r->kind == (has_marks ? LHI_RANGE_STEP : LHI_OP_OPTIMIZER))
            list[(*n)++] = r->end_ns;
        if (r->kind == LHI_RANGE_STEP)
            list[(*n)++] = r->start_ns;
    }
    lhi_sort(list, *n, sizeof *list, compare_times);
    *out = list;
    return LH_OK;
}

lh_status lhi_profiler_derive_passes(lhi_file_events *e, lh_error *err)
{
    int64_t *bounds;
    size_t n_bounds, n_ops = 0, next = 0;
    if (!lacks_message_ranges(e))
        return LH_OK;
    for (size_t i = 0; i < e->n_operators; i++)
        if (!e->operators[i].is_range)
            e->operators[n_ops++] = e->operators[i];
    e->n_operators = n_ops;
    lhi_sort(e->operators, n_ops, sizeof *e->operators, compare_operators);
    if (has_pass_ranges(e))
        return derive_messages(e, err);
    LHI_TRY(find_boundaries(e, &bounds, &n_bounds, err));
    lh_status status = LH_OK;
    for (size_t from = 0, to; status == LH_OK && from < n_ops; from = to) {
        while (next < n_bounds && bounds[next] <= e->operators[from].start_ns)
            next++;
        for (to = from + 1; to < n_ops; to++)
            if (next < n_bounds && e->operators[to].start_ns >= bounds[next])
                break;
        status = derive_step(e, from, to, err);
    }
    free(bounds);
    return status;
}
