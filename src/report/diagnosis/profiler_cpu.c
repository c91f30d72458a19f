/* SPDX-License-Identifier: Apache-2.0 */
/* CPU operators of a profiler's trace: the outermost ones of each thread. An
 * operator inside another only widens the sequence numbers of the outer one.
 * The autograd engine gives every node of the graph a number; the forward
 * operator and the backward function of a node have the same number. */
#include "report/diagnosis/profiler_internal.h"

#include <stdlib.h>
#include <string.h>

/* Returns the kind of an operator from its name. */
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

/* Returns a number for an event's thread, which is an integer or a text. */
static int64_t thread_of(const json_t *event)
{
    const json_t *tid = json_object_get(event, "tid");
    const char *text = json_string_value(tid);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    if (!text)
        return json_integer_value(tid);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return (int64_t)(hash >> 1);
}

/* Returns the latest outermost operator of a thread; NULL if there is none.
 * Searches the operators backward, at most LOOK_BACK of them: threads take
 * turns rarely. */
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

/* Widens an operator's sequence numbers by those of an operator inside. */
static void merge_numbers(lhi_cpu_op *outer, int64_t number)
{
    if (number < 0 || outer->kind == LHI_CPU_AUTOGRAD)
        return;
    if (outer->first_number < 0 || number < outer->first_number)
        outer->first_number = number;
    if (number > outer->last_number)
        outer->last_number = number;
}

lh_status lhi_profiler_add_operator(lhi_file_events *e, const json_t *event,
                                    const char *name, bool is_range,
                                    int64_t start_ns, int64_t end_ns,
                                    lh_error *err)
{
    const json_t *number =
        json_object_get(json_object_get(event, "args"), "Sequence number");
    lhi_cpu_kind kind = classify_operator(name);
    if (is_range && kind != LHI_CPU_COMMUNICATION)
        return LH_OK;
    lhi_cpu_op op = {start_ns, end_ns, -1,       -1,
                     0,        kind,   is_range, thread_of(event)};
    op.first_number = op.last_number =
        json_is_integer(number) && json_integer_value(number) >= 0
            ? json_integer_value(number)
            : -1;
    lhi_cpu_op *outer = is_range ? NULL : latest_of_thread(e, op.thread);
    if (outer && outer->start_ns <= start_ns && outer->end_ns >= end_ns) {
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
