/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of one step in order, with what is damaged taken out. */
#ifndef LHI_STEP_OPS_H
#define LHI_STEP_OPS_H

#include "base/arena.h"
#include "diagnose/op_rows.h"

/* Workers are numbered replica by replica: replica * n_stages + stage. */
typedef struct lhi_step_ops {
    uint64_t step;
    bool ahead;
    lhi_op_row *rows; /* by worker, kind, order; the list's own */
    uint32_t n;
    uint32_t n_stages, n_replicas, n_workers;
    uint32_t *replicas; /* their numbers in the recording */
    uint32_t *first; /* of worker w and kind k: first[w * LHI_N_OPS + k], up to
                        the next */
} lhi_step_ops;

/* The rows of worker w and a kind are rows[*from] .. rows[to - 1]; returns
 * how many there are. */
static inline uint32_t lhi_rows_of_kind(const lhi_step_ops *ops, uint32_t w,
                                        lhi_op_type op, uint32_t *from)
{
    const uint32_t *first = &ops->first[w * LHI_N_OPS + op];
    *from = first[0];
    return first[1] - first[0];
}

static inline int64_t lhi_row_end(const lhi_op_row *row)
{
    return row->start_ns + row->ns;
}

/* Sorts the rows of `list` in place. Replicas that lack a stage are left out.
 * out->n_replicas 0: nothing is whole. `out` is of the arena and the list. */
lh_status lhi_step_ops_sort(lhi_row_list *list, lhi_remark_counts *remarks,
                            lhi_arena *arena, lhi_step_ops *out, lh_error *err);

/* Closer clocks are left as they are: networks differ by as much. */
#define LHI_CLOCKS_AGREE_NS INT64_C(10000000)

/* What most clocks show, of how far they are ahead of the first, which it
 * sorts: the one in the middle, of two the lesser; 0, so that none is moved,
 * where the first's may be that. */
int64_t lhi_usual_clock(int64_t *ahead, uint32_t n);

/* Sets clocks of ranks by the ends of what they did together, where they are
 * off by more than what networks explain. */
lh_status lhi_step_clocks(lhi_step_ops *ops, lhi_arena *arena,
                          lhi_remark_counts *remarks, lh_error *err);

#endif
