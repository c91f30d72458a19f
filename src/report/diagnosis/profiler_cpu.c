/* SPDX-License-Identifier: Apache-2.0 */
/* CPU operators in a profiler's trace: each thread's outermost ones. An
 * operator inside another only widens the outer one's sequence numbers. The
 * autograd engine gives every graph node a number; a node's forward operator
 * and backward function have the same number. */
#include "report/diagnosis/profiler_internal.h"

#include <stdlib.h>
#include <string.h>

/* Returns a PyTorch operator's kind by its name's prefix: autograd function,
 * send, receive, other communication, or others. */
static lhi_cpu_kind classify_operator(const char *name)
{
    static const struct {
        const char *prefix;
        lhi_cpu_kind kind;
    } prefixes[] = {
        {"autograd::engine::evaluate_function", LHI_CPU_AUTOGRAD},
        {"c10d::send", LHI_CPU_SEND},
        {"c10d::recv", LHI_CPU_RECV},
        {"c10d::", LHI_CPU_COMMUNICATION},
        {"gloo:", LHI_CPU_COMMUNICATION},
        {"nccl:", LHI_CPU_COMMUNICATION},
        {"mpi:", LHI_CPU_COMMUNICATION},
        {"ucc:", LHI_CPU_COMMUNICATION},
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i].prefix, strlen(prefixes[i].prefix)) == 0)
            return prefixes[i].kind;
    return LHI_CPU_OTHER;
}

/* Returns a thread's latest outermost operator; NULL if there is none. Searches
 * at most LOOK_BACK operators backward: a thread's events are rarely far
 * apart. */
static lhi_cpu_op *latest_of_thread(const lhi_file_events *e, int64_t thread)
{
    enum { LOOK_BACK = 64 };
    for (size_t i = 0; i < LOOK_BACK && i < e->n_operators; i++) {
        lhi_cpu_op *op = &e->operators[e->n_operators - 1 - i];
        if (op->thread == thread && !op->is_range)
            return op;
    }
    return NULL;
}

/* Extends outer operator `outer`'s range of autograd sequence numbers by
 * `number`, that of an operator inside; -1: none. An autograd function that
 * already has a number keeps it. */
static void merge_numbers(lhi_cpu_op *outer, int64_t number)
{
    bool is_final = outer->kind == LHI_CPU_AUTOGRAD && outer->first_number >= 0;
    if (number < 0 || is_final)
        return;
    if (outer->first_number < 0 || number < outer->first_number)
        outer->first_number = number;
    if (number > outer->last_number)
        outer->last_number = number;
}

lh_status lhi_profiler_add_operator(lhi_file_events *e, const char *name,
                                    lhi_cpu_op op, lh_error *err)
{
    op.kind = classify_operator(name);
    if (op.is_range && op.kind != LHI_CPU_COMMUNICATION)
        return LH_OK;
    op.last_number = op.first_number;
    lhi_cpu_op *outer = op.is_range ? NULL : latest_of_thread(e, op.thread);
    if (outer && outer->start_ns <= op.start_ns && outer->end_ns >= op.end_ns) {
        merge_numbers(outer, op.first_number);
        return LH_OK;
    }
    LHI_TRY(lhi_profiler_grow_array((void **)&e->operators, e->n_operators,
                                    &e->operators_room, sizeof *e->operators,
                                    err));
    op.order = e->n_operators;
    e->operators[e->n_operators++] = op;
    return LH_OK;
}
