/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/op_graph.h"

#include <stdlib.h>
#include <string.h>

/* Clocks differ: a transfer that ends more than this before its start gets
 * duration 0, as in the published analysis. */
#define MIN_DURATION_NS (-LHI_CLOCK_TOLERANCE_NS)

/* Topological sort state. */
typedef struct sorting {
    const lhi_step_dependencies *needs;
    uint32_t n;       /* row count */
    uint32_t *leader; /* per row: its group's least row; LH_NONE: stray */
    uint32_t *waits;  /* per leader: unsatisfied dependencies of its group */
    uint32_t *first;  /* per row: start of its dependents in `users` */
    uint32_t *users;  /* dependents, as leaders */
    uint32_t *queue;  /* leaders in topological order */
    uint32_t n_queue, n_leaders;
} sorting;

/* Returns the i-th operation that operation `row` waits for; LH_NONE if there
 * is none. Stray messages, which match no pass, are never waited for. */
static uint32_t get_dependency(const sorting *s, uint32_t row, uint32_t i)
{
    uint32_t need = s->needs->dependencies[row][i];
    return need == LH_NONE || s->leader[need] == LH_NONE ? LH_NONE : need;
}

/* Determines the leader of each group of operations that start together (the
 * one with the least index), and counts the groups. */
static void find_leaders(sorting *s)
{
    memset(s->leader, 0xff, s->n * sizeof *s->leader);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->leader[i] != LH_NONE || s->needs->is_stray[i])
            continue;
        uint32_t k = i;
        do {
            s->leader[k] = i;
            k = s->needs->next_in_group[k];
        } while (k != i);
        s->n_leaders++;
    }
}

/* Builds the lists of dependents per group (compressed sparse rows), and
 * counts each group's unsatisfied dependencies. */
static void find_dependents(sorting *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0;
             s->leader[i] != LH_NONE && k < LHI_MAX_DEPENDENCIES; k++) {
            uint32_t need = get_dependency(s, i, k);
            if (need == LH_NONE)
                continue;
            s->first[need + 1]++;
            s->waits[s->leader[i]]++;
        }
    for (uint32_t i = 0; i < s->n; i++)
        s->first[i + 1] += s->first[i];
    s->first[s->n + 1] = s->first[s->n];
    for (uint32_t i = s->n; i-- > 0;)
        for (uint32_t k = 0;
             s->leader[i] != LH_NONE && k < LHI_MAX_DEPENDENCIES; k++) {
            uint32_t need = get_dependency(s, i, k);
            if (need != LH_NONE)
                s->users[--s->first[need + 1]] = s->leader[i];
        }
    /* first[i + 1] is now where row i's dependents start; they end where row i
     * + 1's do, at first[i + 2]. */
}

/* Decrements the wait counts of the operation groups that wait for group
 * `leader` (its leading operation), and queues those whose count becomes 0. */
static void release_dependents(sorting *s, uint32_t leader)
{
    uint32_t row = leader;
    do {
        for (uint32_t i = s->first[row + 1]; i < s->first[row + 2]; i++)
            if (--s->waits[s->users[i]] == 0)
                s->queue[s->n_queue++] = s->users[i];
        row = s->needs->next_in_group[row];
    } while (row != leader);
}

/* Sorts the operation groups topologically; returns false if there is a
 * cycle. */
static bool sort_groups(sorting *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->leader[i] == i && s->waits[i] == 0)
            s->queue[s->n_queue++] = i;
    for (uint32_t i = 0; i < s->n_queue; i++)
        release_dependents(s, s->queue[i]);
    return s->n_queue == s->n_leaders;
}

/* --- graph ---------------------------------------------------------------- */

/* Allocates a graph for `n` operations in `n_groups` groups; NULL on allocation
 * failure. Release with lhi_op_graph_free(). */
static lhi_op_graph *alloc_graph(uint32_t n, uint32_t n_groups,
                                 uint32_t n_replicas)
{
    lhi_op_graph *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->replicas = malloc((n_replicas + 1) * sizeof *g->replicas);
    g->first = malloc(((size_t)n_groups + 1) * sizeof *g->first);
    g->dependencies = malloc(((size_t)n + 1) * sizeof *g->dependencies);
    g->worker = malloc(((size_t)n + 1) * sizeof *g->worker);
    g->microbatch = malloc(((size_t)n + 1) * sizeof *g->microbatch);
    g->chunk = malloc(((size_t)n + 1) * sizeof *g->chunk);
    g->op = malloc((size_t)n + 1);
    if (g->replicas && g->first && g->dependencies && g->worker &&
        g->microbatch && g->chunk && g->op)
        return g;
    lhi_op_graph_free(g);
    return NULL;
}

void lhi_op_graph_free(lhi_op_graph *g)
{
    if (!g)
        return;
    free(g->replicas);
    free(g->first);
    free(g->dependencies);
    free(g->worker);
    free(g->microbatch);
    free(g->chunk);
    free(g->op);
    free(g);
}

/* Assigns indices in the graph to the operations of group `leader` (its leading
 * operation), in number[row], and stores their replay durations in ns[]. */
static void number_group(const sorting *s, uint32_t leader, lhi_op_graph *g,
                         uint32_t *number, int64_t *ns)
{
    const lhi_step_ops *ops = s->needs->ops;
    const uint32_t *next = s->needs->next_in_group;
    int64_t begin = INT64_MIN;
    uint32_t row = leader;
    do {
        const lhi_op_row *r = &ops->rows[row];
        begin = r->start_ns > begin ? r->start_ns : begin;
        row = next[row];
    } while (row != leader);
    do {
        const lhi_op_row *r = &ops->rows[row];
        int64_t takes = next[leader] == leader ? r->ns : lhi_row_end(r) - begin;
        uint32_t i = number[row] = g->n_ops++;
        ns[i] = takes < MIN_DURATION_NS ? 0 : takes;
        g->op[i] = r->op;
        g->microbatch[i] = (uint32_t)r->microbatch;
        g->chunk[i] = lhi_op_is_pass((lhi_op_type)r->op)
                          ? (uint16_t)lhi_step_pass_chunk(ops, r)
                          : (uint16_t)0xffff;
        row = next[row];
    } while (row != leader);
}

/* Returns a multiplicative hash of an array of 32-bit words, chained from
 * `hash`. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const uint32_t *words = bytes;
    for (size_t i = 0; i < n / sizeof *words; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

/* Fills in the graph's sorted groups, workers, dependencies and hash.
 * number[row]: the operation's index in the graph; ns: durations. */
static void fill_graph(const sorting *s, lhi_op_graph *g, uint32_t *number,
                       int64_t *ns)
{
    const lhi_step_ops *ops = s->needs->ops;
    for (uint32_t i = 0; i < s->n_queue; i++) {
        g->first[g->n_groups++] = g->n_ops;
        number_group(s, s->queue[i], g, number, ns);
    }
    g->first[g->n_groups] = g->n_ops;
    uint32_t replica = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (i && ops->rows[i].replica != ops->rows[i - 1].replica)
            replica++;
        if (s->leader[i] == LH_NONE)
            continue;
        uint32_t *needs = g->dependencies[number[i]], n = 0;
        g->worker[number[i]] = replica * ops->n_stages + ops->rows[i].stage;
        memset(needs, 0, sizeof *g->dependencies);
        for (uint32_t k = 0; k < LHI_MAX_DEPENDENCIES; k++) {
            uint32_t need = get_dependency(s, i, k);
            if (need != LH_NONE)
                needs[n++] = number[need] + 1;
        }
    }
    g->hash =
        hash_bytes(0, g->dependencies, g->n_ops * sizeof *g->dependencies);
    g->hash = hash_bytes(g->hash, g->worker, g->n_ops * sizeof *g->worker);
}

lh_status lhi_op_graph_make(const lhi_step_dependencies *needs,
                            lhi_arena *arena, lhi_op_graph **out, int64_t **ns,
                            lh_error *err)
{
    const lhi_step_ops *ops = needs->ops;
    uint32_t n = ops->n;
    sorting s = {.needs = needs, .n = n};
    s.leader = LHI_NEW(arena, uint32_t, n);
    s.waits = LHI_NEW(arena, uint32_t, n);
    s.first = LHI_NEW(arena, uint32_t, (size_t)n + 2);
    s.users = LHI_NEW(arena, uint32_t, (size_t)n * LHI_MAX_DEPENDENCIES);
    s.queue = LHI_NEW(arena, uint32_t, n);
    if (!s.leader || !s.waits || !s.first || !s.users || !s.queue)
        return lhi_fail_nomem(err);
    find_leaders(&s);
    find_dependents(&s);
    if (!sort_groups(&s)) {
        *out = NULL;
        *ns = NULL;
        return LH_OK;
    }
    lhi_op_graph *g = alloc_graph(n, s.n_queue, ops->n_replicas);
    int64_t *takes = malloc(((size_t)n + 1) * sizeof *takes);
    if (!g || !takes) {
        lhi_op_graph_free(g);
        free(takes);
        return lhi_fail_nomem(err);
    }
    g->n_stages = ops->n_stages;
    g->n_replicas = ops->n_replicas;
    g->n_chunks = needs->n_chunks;
    g->n_microbatches = needs->n_microbatches;
    memcpy(g->replicas, ops->replicas, ops->n_replicas * sizeof *g->replicas);
    fill_graph(&s, g, s.waits, takes);
    *out = g;
    *ns = takes;
    return LH_OK;
}

bool lhi_op_graph_equals(const lhi_op_graph *a, const lhi_op_graph *b)
{
    size_t n = a->n_ops;
    return a->hash == b->hash && n == b->n_ops && a->n_groups == b->n_groups &&
           a->n_stages == b->n_stages && a->n_replicas == b->n_replicas &&
           a->n_chunks == b->n_chunks &&
           a->n_microbatches == b->n_microbatches &&
           memcmp(a->replicas, b->replicas,
                  a->n_replicas * sizeof *a->replicas) == 0 &&
           memcmp(a->first, b->first,
                  ((size_t)a->n_groups + 1) * sizeof *a->first) == 0 &&
           memcmp(a->dependencies, b->dependencies,
                  n * sizeof *a->dependencies) == 0 &&
           memcmp(a->worker, b->worker, n * sizeof *a->worker) == 0 &&
           memcmp(a->microbatch, b->microbatch, n * sizeof *a->microbatch) ==
               0 &&
           memcmp(a->chunk, b->chunk, n * sizeof *a->chunk) == 0 &&
           memcmp(a->op, b->op, n) == 0;
}
