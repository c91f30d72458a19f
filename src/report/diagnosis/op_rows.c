/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/op_rows.h"

#include "base/sort.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    lh_operation operation;
} ops[LHI_N_OPS] = {
#define LHI_OP_ROW(name, text, operation) {text, LH_OPERATION_##operation},
    LHI_OP_LIST(LHI_OP_ROW)
#undef LHI_OP_ROW
};

static const char *const operations[LH_N_OPERATIONS] = {
#define LHI_OPERATION_ROW(name, text) text,
    LH_OPERATION_LIST(LHI_OPERATION_ROW)
#undef LHI_OPERATION_ROW
};

const char *lh_operation_name(lh_operation operation)
{
    return operations[operation];
}

lh_operation lhi_op_operation(lhi_op_type op)
{
    return ops[op].operation;
}

const char *lhi_op_name(lhi_op_type op)
{
    return ops[op].name;
}

lhi_op_type lhi_op_find(const char *text, size_t len)
{
    for (uint32_t i = 0; i < LHI_N_OPS; i++)
        if (strlen(ops[i].name) == len && memcmp(ops[i].name, text, len) == 0)
            return (lhi_op_type)i;
    return LHI_N_OPS;
}

bool lhi_op_is_pass(lhi_op_type op)
{
    return op <= LHI_OP_WEIGHT;
}

bool lhi_op_is_receive(lhi_op_type op)
{
    return op == LHI_OP_FORWARD_RECV || op == LHI_OP_BACKWARD_RECV;
}

bool lhi_op_is_compute(lhi_op_type op)
{
    return lhi_op_is_pass(op) || op == LHI_OP_OPTIMIZER || op == LHI_OP_GC;
}

/* --- steps ---------------------------------------------------------------- */

/* Fails with LH_EINPUT if a step's operations were already processed. */
static lh_status check_not_closed(const lhi_rows *rows, uint64_t step,
                                  lh_error *err)
{
    for (uint32_t i = 0; i < rows->n_closed; i++)
        if (rows->closed[i] == step)
            return lhi_fail(err, LH_EINPUT,
                            "step %" PRIu64 " appears again after %" PRIu32
                            " others, which is too late in a recording of this "
                            "size; sort the rows by step",
                            step, rows->n_closed);
    return LH_OK;
}

/* Finds a step's operation list, or adds an empty one; stores its index in
 * rows->latest_list. LH_EINPUT: too many steps. */
static lh_status find_list(lhi_rows *rows, uint64_t step, lh_error *err)
{
    /* Other ranks' files contain the steps in the same order, so the search
     * starts after the last hit. */
    for (uint32_t i = 0; i < rows->n_lists; i++) {
        uint32_t at = (rows->latest_list + 1 + i) % rows->n_lists;
        if (rows->lists[at].step == step) {
            rows->latest_list = at;
            return LH_OK;
        }
    }
    LHI_TRY(check_not_closed(rows, step, err));
    if (rows->n_lists + rows->n_closed == LHI_MAX_RECORDED_STEPS)
        return lhi_fail(err, LH_EINPUT,
                        "more than %d steps; diagnose fewer steps",
                        LHI_MAX_RECORDED_STEPS);
    if (rows->n_lists == rows->room) {
        uint32_t room = rows->room ? 2 * rows->room : 64;
        lhi_row_list *grown = room > rows->room
                                  ? realloc(rows->lists, room * sizeof *grown)
                                  : NULL;
        if (!grown)
            return lhi_fail_nomem(err);
        rows->lists = grown;
        rows->room = room;
    }
    rows->latest_list = rows->n_lists++;
    rows->lists[rows->latest_list] = (lhi_row_list){.step = step};
    return LH_OK;
}

/* Passes the operations in the step with list number `at` to the callback
 * rows->close and frees them. */
static lh_status close_list(lhi_rows *rows, uint32_t at, lh_error *err)
{
    lhi_row_list list = rows->lists[at];
    if (rows->n_closed == rows->closed_room) {
        uint32_t room = rows->closed_room ? 2 * rows->closed_room : 64;
        uint64_t *grown = room > rows->closed_room
                              ? realloc(rows->closed, room * sizeof *grown)
                              : NULL;
        if (!grown)
            return lhi_fail_nomem(err);
        rows->closed = grown;
        rows->closed_room = room;
    }
    rows->closed[rows->n_closed++] = list.step;
    lh_status status = rows->close(rows->context, &list, err);
    free(list.rows);
    rows->n -= list.n;
    rows->n_lists--;
    memmove(&rows->lists[at], &rows->lists[at + 1],
            (rows->n_lists - at) * sizeof *rows->lists);
    return status;
}

lh_status lhi_rows_add(lhi_rows *rows, uint64_t step, const lhi_op_row *row,
                       lh_error *err)
{
    if (rows->n_lists == 0 || rows->lists[rows->latest_list].step != step) {
        /* In a table sorted by step, all other steps are complete. */
        while (rows->n > rows->max_rows && rows->n_lists)
            LHI_TRY(close_list(rows, 0, err));
        LHI_TRY(find_list(rows, step, err));
    }
    lhi_row_list *list = &rows->lists[rows->latest_list];
    if (list->n == LHI_MAX_STEP_ROWS)
        return lhi_fail(err, LH_EINPUT,
                        "step %" PRIu64 " has more than %d operations", step,
                        LHI_MAX_STEP_ROWS);
    if (list->n == list->room) {
        size_t room = list->room ? list->room + (list->room + 1) / 2 : 2;
        lhi_op_row *grown = room < SIZE_MAX / sizeof *grown
                                ? realloc(list->rows, room * sizeof *grown)
                                : NULL;
        if (!grown)
            return lhi_fail_nomem(err);
        list->rows = grown;
        list->room = room;
    }
    list->rows[list->n++] = *row;
    rows->n++;
    return LH_OK;
}

void lhi_rows_mark_preposted(lhi_rows *rows)
{
    rows->lists[rows->latest_list].is_preposted = true;
}

/* Compares operation lists by step number, for lhi_sort(). */
static int compare_steps(const void *a, const void *b)
{
    const lhi_row_list *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

lh_status lhi_rows_close(lhi_rows *rows, lh_error *err)
{
    lhi_sort(rows->lists, rows->n_lists, sizeof *rows->lists, compare_steps);
    while (rows->n_lists)
        LHI_TRY(close_list(rows, 0, err));
    return LH_OK;
}

void lhi_rows_fini(lhi_rows *rows)
{
    for (uint32_t i = 0; i < rows->n_lists; i++)
        free(rows->lists[i].rows);
    free(rows->lists);
    free(rows->closed);
}
