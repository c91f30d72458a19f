/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/step_ops.h"

#include "base/sort.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- order ---------------------------------------------------------------- */

/* Returns an operation's sort key, from its replica, stage and kind. */
static uint64_t make_key(const lhi_op_row *row)
{
    return ((uint64_t)row->replica << 32) | ((uint64_t)row->stage << 8) |
           row->op;
}

/* Compares operations of one worker and kind by index, then by start. */
static int compare_within(const lhi_op_row *x, const lhi_op_row *y)
{
    if (x->index != y->index)
        return x->index > y->index ? 1 : -1;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

/* Compares operations by replica, stage, kind, index and start, for
 * lhi_sort(). */
static int compare_rows(const void *a, const void *b)
{
    uint64_t x = make_key(a), y = make_key(b);
    if (x != y)
        return x > y ? 1 : -1;
    return compare_within(a, b);
}

/* Sorts a step's operations by worker (a replica's stage) and kind with a
 * counting sort over n_stages stages and n_replicas replicas. */
static lh_status sort_by_counting(lhi_row_list *list, uint32_t n_stages,
                                  uint32_t n_replicas, lh_error *err)
{
    size_t cells = (size_t)n_stages * n_replicas * LHI_N_OPS;
    size_t *at = calloc(cells + 1, sizeof *at);
    lhi_op_row *sorted = malloc((list->n + 1) * sizeof *sorted);
    lh_status status = at && sorted ? LH_OK : lhi_fail_nomem(err);
    for (size_t pass = 0; status == LH_OK && pass < 2; pass++) {
        for (size_t i = 0; i < list->n; i++) {
            const lhi_op_row *row = &list->rows[i];
            size_t cell =
                ((size_t)row->replica * n_stages + row->stage) * LHI_N_OPS +
                row->op;
            if (pass == 0)
                at[cell + 1]++;
            else
                sorted[at[cell]++] = *row;
        }
        for (size_t i = 0; pass == 0 && i < cells; i++)
            at[i + 1] += at[i];
    }
    free(at);
    if (status != LH_OK) {
        free(sorted);
        return status;
    }
    free(list->rows);
    list->rows = sorted;
    list->room = list->n;
    return LH_OK;
}

/* Sorts each worker's operations of one kind, which usually are in order
 * already. */
static void sort_within(lhi_row_list *list)
{
    for (size_t from = 0, to; from < list->n; from = to) {
        bool sorted = true;
        uint64_t key = make_key(&list->rows[from]);
        for (to = from + 1; to < list->n && make_key(&list->rows[to]) == key;
             to++)
            sorted = sorted &&
                     compare_within(&list->rows[to - 1], &list->rows[to]) <= 0;
        if (!sorted)
            lhi_sort(&list->rows[from], to - from, sizeof *list->rows,
                     compare_rows);
    }
}

/* Sorts a step's operations by worker, kind and order; uses a counting sort
 * unless the stage and replica numbers are sparse. */
static lh_status sort_rows(lhi_row_list *list, lh_error *err)
{
    uint32_t n_stages = 0, n_replicas = 0;
    for (size_t i = 0; i < list->n; i++) {
        const lhi_op_row *row = &list->rows[i];
        n_stages = row->stage >= n_stages ? row->stage + 1u : n_stages;
        n_replicas =
            row->replica >= n_replicas ? row->replica + 1u : n_replicas;
    }
    if ((uint64_t)n_stages * n_replicas > list->n + 64)
        lhi_sort(list->rows, list->n, sizeof *list->rows, compare_rows);
    else
        LHI_TRY(sort_by_counting(list, n_stages, n_replicas, err));
    sort_within(list);
    return LH_OK;
}

/* --- duplicates ----------------------------------------------------------- */

/* Checks whether two operations belong to the same replica and stage. */
static bool same_worker(const lhi_op_row *a, const lhi_op_row *b)
{
    return a->replica == b->replica && a->stage == b->stage;
}

/* Checks whether two entries record the same operation: equal worker, kind,
 * order, microbatch and chunk. */
static bool is_duplicate(const lhi_op_row *a, const lhi_op_row *b)
{
    return make_key(a) == make_key(b) && compare_within(a, b) == 0 &&
           a->microbatch == b->microbatch && a->stage_chunk == b->stage_chunk;
}

/* Returns the smallest rank number among the first operations in `rows` that
 * belong to one worker (at most n). Tensor-parallel ranks of a worker run the
 * same operations, so one represents them. */
static uint32_t find_least_rank(const lhi_op_row *rows, size_t n)
{
    uint32_t least = rows[0].rank;
    for (size_t i = 1; i < n && same_worker(&rows[0], &rows[i]); i++)
        least = rows[i].rank < least ? rows[i].rank : least;
    return least;
}

/* Removes duplicate operations, and those of all but one tensor-parallel rank
 * of each worker, from the list; counts both as defects. */
static void drop_rows(lhi_row_list *list, lhi_defect_counts *remarks)
{
    size_t kept = 0;
    uint32_t rank = 0;
    for (size_t i = 0; i < list->n; i++) {
        const lhi_op_row row = list->rows[i];
        bool begins = kept == 0 || !same_worker(&list->rows[kept - 1], &row);
        if (begins)
            rank = find_least_rank(&list->rows[i], list->n - i);
        if (row.rank != rank)
            lhi_defect_add(remarks, LHI_REMARK_PEERS, 1,
                           "rank %" PRIu32 " beside %" PRIu32
                           " in step %" PRIu64,
                           row.rank, rank, list->step);
        else if (!begins && is_duplicate(&list->rows[kept - 1], &row))
            lhi_defect_add(remarks, LHI_REMARK_DOUBLED, 1,
                           "%s %" PRIu32
                           " of stage %u, replica %u in step %" PRIu64,
                           lhi_op_name((lhi_op_type)row.op), row.index,
                           row.stage, row.replica, list->step);
        else
            list->rows[kept++] = row;
    }
    list->n = kept;
}

/* --- complete replicas ---------------------------------------------------- */

/* Returns the number of stages on which some rank ran passes. */
static uint32_t count_stages(const lhi_row_list *list)
{
    uint32_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (lhi_op_is_pass((lhi_op_type)list->rows[i].op) &&
            list->rows[i].stage >= n)
            n = list->rows[i].stage + 1u;
    return n;
}

/* Checks whether the replica whose operations begin at index `from` ran passes
 * on all n_stages stages; *to: its operations' end. */
static bool is_complete(const lhi_row_list *list, size_t from,
                        uint32_t n_stages, size_t *to)
{
    uint32_t seen = 0;
    size_t i = from;
    for (; i < list->n && list->rows[i].replica == list->rows[from].replica;
         i++)
        if (lhi_op_is_pass((lhi_op_type)list->rows[i].op) &&
            list->rows[i].stage == seen)
            seen++;
    *to = i;
    return seen == n_stages && seen > 0;
}

/* Removes the operations of replicas that lack one of n_stages stages from the
 * list and counts them as a defect; returns how many replicas remain. */
static uint32_t keep_complete(lhi_row_list *list, uint32_t n_stages,
                              lhi_defect_counts *remarks)
{
    uint32_t n_replicas = 0;
    size_t kept = 0;
    for (size_t from = 0, to; from < list->n; from = to) {
        if (!is_complete(list, from, n_stages, &to)) {
            lhi_defect_add(remarks, LHI_REMARK_REPLICAS, 1,
                           "replica %u in step %" PRIu64,
                           list->rows[from].replica, list->step);
            continue;
        }
        n_replicas++;
        for (size_t i = from; i < to; i++)
            if (list->rows[i].stage < n_stages)
                list->rows[kept++] = list->rows[i];
    }
    list->n = kept;
    return n_replicas;
}

lh_status lhi_step_ops_sort(lhi_row_list *list, lhi_defect_counts *remarks,
                            lhi_arena *arena, lhi_step_ops *out, lh_error *err)
{
    *out =
        (lhi_step_ops){.step = list->step, .is_preposted = list->is_preposted};
    LHI_TRY(sort_rows(list, err));
    drop_rows(list, remarks);
    out->n_stages = count_stages(list);
    out->n_replicas = keep_complete(list, out->n_stages, remarks);
    out->rows = list->rows;
    out->n = (uint32_t)list->n;
    out->n_workers = out->n_stages * out->n_replicas;
    out->replicas = LHI_NEW(arena, uint32_t, out->n_replicas);
    out->first = LHI_NEW(arena, uint32_t, out->n_workers * LHI_N_OPS + 1);
    if (!out->replicas || !out->first)
        return lhi_fail_nomem(err);
    uint32_t replica = 0, cell = 0;
    for (uint32_t i = 0; i < out->n; i++) {
        const lhi_op_row *row = &out->rows[i];
        if (i && row->replica != row[-1].replica)
            replica++;
        out->replicas[replica] = row->replica;
        uint32_t own =
            (replica * out->n_stages + row->stage) * LHI_N_OPS + row->op;
        while (cell <= own)
            out->first[cell++] = i;
    }
    while (cell <= out->n_workers * LHI_N_OPS)
        out->first[cell++] = out->n;
    return LH_OK;
}
