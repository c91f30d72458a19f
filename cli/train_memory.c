/* SPDX-License-Identifier: Apache-2.0 */
/* Implements train --memory: predicted and actual memory per rank. */
#include "train_internal.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdio.h>

/* Returns the plan's peak memory for rank `rank`'s device, in bytes; a
 * negative value if unknown: with a second direction each device has more
 * chunks than in the plan. `ran`: executed pipeline. */
static int64_t get_planned_bytes(const lh_plan *plan, const lh_pipeline *ran,
                                 uint32_t rank)
{
    if (!plan || plan->n_ranks == 0 ||
        lh_pipeline_n_chunks(ran) != lh_pipeline_n_chunks(plan->pipeline))
        return -1;
    const lh_plan_memory *m = &plan->rank_memory[rank % plan->n_ranks];
    return m->parameters_bytes + m->gradients_bytes + m->optimizer_bytes +
           m->activations_bytes + m->buffers_bytes + m->temporary_bytes;
}

/* Returns the memory by kind, in bytes, as a JSON object. */
static json_t *kinds_json(const int64_t bytes[LH_N_MEMORY_KINDS])
{
    json_t *j = json_object();
    for (uint32_t i = 0; j && i < LH_N_MEMORY_KINDS; i++)
        json_object_set_new(j, lh_memory_kind_name((lh_memory_kind)i),
                            json_integer(bytes[i]));
    return j;
}

json_t *train_memory_json(const lh_plan *plan, const lh_pipeline *ran,
                          const lh_train_result *r)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++) {
        const lh_train_memory *m = &all[i];
        int64_t planned = get_planned_bytes(plan, ran, i);
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "rank",
                            (json_int_t)i, "predicted_bytes",
                            (json_int_t)m->predicted_bytes, "measured_bytes",
                            (json_int_t)m->measured_bytes, "by_kind",
                            kinds_json(m->measured), "predicted_by_kind",
                            kinds_json(m->predicted), "limit_bytes",
                            m->limit_bytes == LH_NO_LIMIT
                                ? json_null()
                                : json_integer(m->limit_bytes),
                            "planned_bytes",
                            planned < 0 ? json_null() : json_integer(planned)));
    }
    return list;
}

/* Table columns; capacity for a cell's text, in bytes. */
enum { COLUMNS = 6, CELL = 160 };

/* Adds a row of COLUMNS cells to the table. */
static void add_row(cli_table *t, char cells[COLUMNS][CELL])
{
    const char *row[COLUMNS];
    for (uint32_t i = 0; i < COLUMNS; i++)
        row[i] = cells[i];
    cli_table_row(t, COLUMNS, row);
}

/* Writes a memory amount in MiB to a cell; '-' if unknown or unlimited. */
static void format_mib(char cell[CELL], int64_t bytes)
{
    if (bytes == LH_NO_LIMIT || bytes < 0)
        snprintf(cell, CELL, "-");
    else
        snprintf(cell, CELL, "%.2f", (double)bytes / (1 << 20));
}

/* Formats memory by kind, in MiB, into a table cell: "parameters 0.88,
 * gradients 0.88, ...". */
static void format_kinds(char cell[CELL],
                         const int64_t bytes[LH_N_MEMORY_KINDS])
{
    size_t at = 0;
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS && at < CELL; i++)
        if (i != LH_MEMORY_STORAGE || bytes[i] > 0)
            at += (size_t)snprintf(cell + at, CELL - at, "%s%s %.2f",
                                   i ? ", " : "",
                                   lh_memory_kind_name((lh_memory_kind)i),
                                   (double)bytes[i] / (1 << 20));
}

/* Checks whether the plan splits weight matrices over ranks: by tensor
 * parallelism if `tensors`, otherwise by expert parallelism. */
static bool is_split(const lh_plan *plan, bool tensors)
{
    const lh_layout *l = plan ? &plan->best.layout : NULL;
    return l && (tensors ? l->tensor : l->expert) > 1;
}

void train_memory_print(cli *c, const lh_plan *plan, const lh_pipeline *ran,
                        const lh_train_result *r)
{
    uint32_t n;
    const lh_train_memory *all = lh_train_peak_memory(r, &n);
    char cells[COLUMNS][CELL] = {"rank",     "#predicted", "#measured",
                                 "#planned", "#limit",     "measured, MiB"};
    cli_table t = {0};
    if (n == 0) { /* other ranks ran a lost rank's microbatches */
        cli_wrap(c, "memory", "not recorded");
        return;
    }
    add_row(&t, cells);
    for (uint32_t i = 0; i < n; i++) {
        const lh_train_memory *m = &all[i];
        snprintf(cells[0], CELL, "%" PRIu32, i);
        format_mib(cells[1], m->predicted_bytes);
        format_mib(cells[2], m->measured_bytes);
        format_mib(cells[3], get_planned_bytes(plan, ran, i));
        format_mib(cells[4], m->limit_bytes);
        format_kinds(cells[5], m->measured);
        add_row(&t, cells);
    }
    cli_table_print(c, "memory", &t);
    cli_wrap(c, "in MiB",
             "predicted: counted before the run; measured: allocated; planned: "
             "modelled for the plan's GPU, without scratch and the sums and "
             "arrays that replicas exchange%s%s. Excluded: the program, the "
             "data, OpenBLAS's buffers, messages in flight",
             is_split(plan, true)
                 ? ", nor the rows that ranks of a tensor group gather and "
                   "keep for W (activations here)"
                 : "",
             is_split(plan, false)
                 ? ", nor the capacity for all rows that a rank's experts may "
                   "receive (activations here; even routing on the GPU)"
                 : "");
}
