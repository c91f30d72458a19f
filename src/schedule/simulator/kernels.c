/* SPDX-License-Identifier: Apache-2.0 */
/* Computes longest paths through a list of kernels, in topological order (Kahn,
 * CACM 5(11), 1962). */
#include "base/arena.h"
#include "base/fail.h"

#include "schedule/simulator/kernels.h"
#include <inttypes.h>

/* Longest duration of a graph: larger integers are inexact in double. As an
 * index: none. */
#define LONGEST_NS (INT64_C(1) << 53)
#define NONE UINT32_MAX

/* Dependency graph with path state. */
typedef struct graph {
    const lhi_placement_kernel *kernels;
    uint32_t n;
    size_t *first; /* [kernel]: its successors start at after[first[k]] */
    uint32_t *after;
    uint32_t *n_unfinished; /* [kernel]: predecessors without an end time */
    uint32_t *queue;        /* kernels with all predecessors finished */
    int64_t *end_ns;
    uint32_t *last; /* [kernel]: critical predecessor, or NONE */
} graph;

/* Checks kinds, durations and dependency indices of the kernels; *n_arcs:
 * number of dependencies. */
static lh_status check_kernels(const graph *g, size_t *n_arcs, lh_error *err)
{
    int64_t sum[LHI_N_KERNEL_PLACEMENTS] = {0};
    for (uint32_t k = 0; k < g->n; k++) {
        const lhi_placement_kernel *kernel = &g->kernels[k];
        if ((unsigned)kernel->kind >= LHI_N_KERNEL_KINDS)
            return lhi_fail(err, LH_EINVAL,
                            "kernel %" PRIu32 ": unknown kind %d", k,
                            (int)kernel->kind);
        for (int i = 0; i < LHI_N_KERNEL_PLACEMENTS; i++) {
            if (kernel->ns[i] < 0)
                return lhi_fail(err, LH_EINVAL,
                                "kernel %" PRIu32 ": a duration is negative",
                                k);
            if (kernel->ns[i] > LONGEST_NS - sum[i])
                return lhi_fail(err, LH_EINVAL,
                                "the durations up to kernel %" PRIu32
                                " add up to more than 2^53 ns (104 days)",
                                k);
            sum[i] += kernel->ns[i];
        }
        for (uint32_t i = 0; i < kernel->n_predecessors; i++)
            if (kernel->predecessors[i] >= g->n)
                return lhi_fail(err, LH_EINVAL,
                                "kernel %" PRIu32 " comes after kernel %" PRIu32
                                ", which does not exist; there are %" PRIu32,
                                k, kernel->predecessors[i], g->n);
        *n_arcs += kernel->n_predecessors;
    }
    return LH_OK;
}

/* Allocates the dependency graph in `mem` and builds the lists of successors
 * by counting sort. */
static lh_status make_graph(graph *g, size_t n_arcs, lhi_arena *mem,
                            lh_error *err)
{
    g->first = LHI_NEW(mem, size_t, (size_t)g->n + 2);
    g->after = LHI_NEW(mem, uint32_t, n_arcs);
    g->n_unfinished = LHI_NEW(mem, uint32_t, g->n);
    g->queue = LHI_NEW(mem, uint32_t, g->n);
    g->end_ns = LHI_NEW(mem, int64_t, g->n);
    g->last = LHI_NEW(mem, uint32_t, g->n);
    if (!g->first || !g->after || !g->n_unfinished || !g->queue || !g->end_ns ||
        !g->last)
        return lhi_fail_nomem(err);
    /* Counting sort, as in schedule/pipeline/dp.c. */
    for (uint32_t k = 0; k < g->n; k++)
        for (uint32_t i = 0; i < g->kernels[k].n_predecessors; i++)
            g->first[g->kernels[k].predecessors[i] + (size_t)2]++;
    for (size_t k = 1; k < (size_t)g->n + 2; k++)
        g->first[k] += g->first[k - 1];
    for (uint32_t k = 0; k < g->n; k++)
        for (uint32_t i = 0; i < g->kernels[k].n_predecessors; i++)
            g->after[g->first[g->kernels[k].predecessors[i] + (size_t)1]++] = k;
    return LH_OK;
}

/* Returns the first predecessor of kernel `k` that has not ended. */
static uint32_t find_unfinished_predecessor(const graph *g, uint32_t k)
{
    const uint32_t *before = g->kernels[k].predecessors;
    while (g->n_unfinished[*before] == 0)
        before++;
    return *before;
}

/* Fails because of cyclic dependencies; names a kernel of the cycle. Following
 * predecessors n times ends on the cycle from any start. */
static lh_status report_cycle(const graph *g, lh_error *err)
{
    uint32_t k = 0, length = 0;
    while (g->n_unfinished[k] == 0)
        k++;
    for (uint32_t i = 0; i < g->n; i++)
        k = find_unfinished_predecessor(g, k);
    uint32_t at = k;
    do {
        at = find_unfinished_predecessor(g, at);
        length++;
    } while (at != k);
    return lhi_fail(err, LH_EINVAL,
                    "kernel %" PRIu32 " waits for itself, in a cycle of "
                    "%" PRIu32,
                    k, length);
}

/* Computes the longest path through the kernels with one placement's durations:
 * data parallelism or the pipeline spans the datacenters. Stores in *out the
 * path's length and its time by kernel kind. */
static lh_status find_longest(graph *g, lhi_kernel_placement placed,
                              lhi_reconstruction *out, lh_error *err)
{
    uint32_t n_queued = 0, latest = NONE;
    for (uint32_t k = 0; k < g->n; k++) {
        g->n_unfinished[k] = g->kernels[k].n_predecessors;
        if (g->n_unfinished[k] == 0)
            g->queue[n_queued++] = k;
    }
    for (uint32_t q = 0; q < n_queued; q++) {
        uint32_t k = g->queue[q];
        const lhi_placement_kernel *kernel = &g->kernels[k];
        int64_t start = 0;
        g->last[k] = NONE;
        for (uint32_t i = 0; i < kernel->n_predecessors; i++) {
            uint32_t b = kernel->predecessors[i];
            if (g->last[k] == NONE || g->end_ns[b] > start) {
                g->last[k] = b;
                start = g->end_ns[b];
            }
        }
        g->end_ns[k] = start + kernel->ns[placed];
        for (size_t i = g->first[k]; i < g->first[k + (size_t)1]; i++)
            if (--g->n_unfinished[g->after[i]] == 0)
                g->queue[n_queued++] = g->after[i];
    }
    if (n_queued < g->n)
        return report_cycle(g, err);
    for (uint32_t k = 0; k < g->n; k++)
        if (latest == NONE || g->end_ns[k] > g->end_ns[latest])
            latest = k;
    out->ns[placed] = latest == NONE ? 0 : g->end_ns[latest];
    for (uint32_t k = latest; k != NONE; k = g->last[k])
        out->path_ns[placed][g->kernels[k].kind] += g->kernels[k].ns[placed];
    return LH_OK;
}

lh_status lhi_kernels_reconstruct(const lhi_placement_kernel *kernels,
                                  uint32_t n_kernels, lhi_reconstruction *out,
                                  lh_error *err)
{
    graph g = {.kernels = kernels, .n = n_kernels};
    lhi_reconstruction made = {0};
    size_t n_arcs = 0;
    LHI_TRY(check_kernels(&g, &n_arcs, err));
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = make_graph(&g, n_arcs, mem, err);
    for (int i = 0; i < LHI_N_KERNEL_PLACEMENTS && status == LH_OK; i++)
        status = find_longest(&g, (lhi_kernel_placement)i, &made, err);
    lhi_arena_free(mem);
    if (status != LH_OK)
        return status;
    made.faster = made.ns[LHI_KERNEL_PP_OUT] < made.ns[LHI_KERNEL_DP_OUT]
                      ? LHI_KERNEL_PP_OUT
                      : LHI_KERNEL_DP_OUT;
    *out = made;
    return LH_OK;
}
