/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's activity from any trace: how long it computed, communicated and was
 * idle. Kernels give these times, or on a CPU the outermost operators. */
#include "report/diagnosis/profiler_internal.h"

#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

/* Longest credible trace, 27 hours: a longer one mixes several clocks. Sums
 * over 65,536 files of this length fit into 64 bits. */
#define MAX_SPAN_NS INT64_C(100000000000000)

/* Activity kind. */
enum { COMPUTE, COMMUNICATION, COPY, N_KINDS };

/* An activity's begin or end. */
typedef struct change {
    int64_t at_ns;
    int8_t kind, by; /* by: 1 begins, -1 ends */
} change;

/* Compares changes (an activity's begin or end) by time, for lhi_sort(). Their
 * order within a time does not affect the sums. */
static int compare_changes(const void *a, const void *b)
{
    const change *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

/* Appends the begin and the end of a `kind` activity (compute, communication,
 * copy) to the list of n changes. */
static void add_change(change *list, size_t *n, int kind, int64_t start_ns,
                       int64_t end_ns)
{
    list[(*n)++] = (change){start_ns, (int8_t)kind, 1};
    list[(*n)++] = (change){end_ns, (int8_t)kind, -1};
}

/* Lists the begins and ends of the GPU's kernels and copies; omits the CPU's
 * calls that launched them. */
static void list_kernels(const lhi_file_events *e, change *list, size_t *n)
{
    for (size_t i = 0; i < e->n_kernels; i++) {
        const lhi_kernel *k = &e->kernels[i];
        if (!k->is_launch)
            add_change(list, n,
                       k->is_copy        ? COPY
                       : k->communicates ? COMMUNICATION
                                         : COMPUTE,
                       k->start_ns, k->end_ns);
    }
}

/* Lists the CPU operators' begins and ends, as activities by kind. */
static void list_operators(const lhi_file_events *e, change *list, size_t *n)
{
    for (size_t i = 0; i < e->n_operators; i++) {
        const lhi_cpu_op *op = &e->operators[i];
        add_change(list, n,
                   op->kind == LHI_CPU_OTHER || op->kind == LHI_CPU_AUTOGRAD
                       ? COMPUTE
                       : COMMUNICATION,
                   op->start_ns, op->end_ns);
    }
}

/* Adds the intervals between n sorted changes to *out, by the activities that
 * run in them: computation, communication, both, copies, or none (idle). */
static void sum_changes(const change *list, size_t n, lhi_activity *out)
{
    int64_t active[N_KINDS] = {0};
    out->idle_ns = list[0].at_ns - out->start_ns + out->end_ns -
                   list[n - 1].at_ns; /* of the marked steps */
    for (size_t i = 0; i < n; i++) {
        int64_t ns = i ? list[i].at_ns - list[i - 1].at_ns : 0;
        if (active[COMPUTE])
            out->compute_ns += ns;
        if (active[COMMUNICATION])
            out->communication_ns += ns;
        if (active[COMPUTE] && active[COMMUNICATION])
            out->overlap_ns += ns;
        if (active[COPY])
            out->copy_ns += ns;
        if (!active[COMPUTE] && !active[COMMUNICATION] && !active[COPY])
            out->idle_ns += ns;
        active[list[i].kind] += list[i].by;
    }
}

/* Sets the span out->start_ns to out->end_ns to the first and last of n changes
 * (begins or ends of activities), extended by the profiler's step marks; counts
 * the marks in out->n_steps. */
static void find_span(const lhi_file_events *e, const change *list, size_t n,
                      lhi_activity *out)
{
    out->start_ns = list[0].at_ns;
    out->end_ns = list[n - 1].at_ns;
    for (size_t i = 0; i < e->n_ranges; i++) {
        const lhi_named_range *r = &e->ranges[i];
        if (r->kind != LHI_RANGE_STEP)
            continue;
        out->n_steps++;
        out->start_ns =
            r->start_ns < out->start_ns ? r->start_ns : out->start_ns;
        out->end_ns = r->end_ns > out->end_ns ? r->end_ns : out->end_ns;
    }
    out->span_ns = out->end_ns - out->start_ns;
}

lh_status lhi_profiler_measure_activity(const lhi_profiler *p,
                                        const lhi_file_events *e,
                                        lhi_profiled_rank *into, lh_error *err)
{
    lhi_activity *out = &into->activity;
    size_t n = 0;
    change *list =
        malloc((2 * (e->n_kernels + e->n_operators) + 1) * sizeof *list);
    if (!list)
        return lhi_fail_nomem(err);
    list_kernels(e, list, &n);
    out->source = n ? LH_ACTIVITY_GPU : LH_ACTIVITY_CPU;
    if (n == 0)
        list_operators(e, list, &n);
    lhi_sort(list, n, sizeof *list, compare_changes);
    if (n)
        find_span(e, list, n, out);
    if (out->span_ns > MAX_SPAN_NS) {
        *out = (lhi_activity){0};
        lhi_defect_add(p->remarks, LHI_REMARK_UNREAD, 1,
                       "%s: its times are more than 27 hours apart",
                       into->file);
    } else if (n) {
        sum_changes(list, n, out);
    }
    free(list);
    return LH_OK;
}
