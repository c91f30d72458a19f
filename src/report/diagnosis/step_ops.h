/* SPDX-License-Identifier: Apache-2.0 */
/* One step's sorted operations, without damaged rows. */
#ifndef LHI_REPORT_DIAGNOSIS_STEP_OPS_H
#define LHI_REPORT_DIAGNOSIS_STEP_OPS_H

#include "base/arena.h"
#include "report/diagnosis/op_rows.h"

/* A step's sorted rows. Workers are numbered as replica * n_stages + stage. */
typedef struct lhi_step_ops {
    uint64_t step;
    bool is_preposted;
    lhi_op_row *rows; /* by worker, kind, order; owned by the list */
    uint32_t n;
    uint32_t n_stages, n_replicas, n_workers;
    uint32_t *replicas; /* replica numbers in the recording */
    /* at w * LHI_N_OPS + k: first row for worker w and kind k */
    uint32_t *first;
} lhi_step_ops;

/* Counts rows of worker `w` and a kind; *from is the first. */
static inline uint32_t lhi_rows_of_kind(const lhi_step_ops *ops, uint32_t w,
                                        lhi_op_type op, uint32_t *from)
{
    const uint32_t *first = &ops->first[w * LHI_N_OPS + op];
    *from = first[0];
    return first[1] - first[0];
}

/* Returns the end of a row's operation in ns. */
static inline int64_t lhi_row_end(const lhi_op_row *row)
{
    return row->start_ns + row->ns;
}

/* Sorts the operations in `list` in place and drops replicas that lack a stage.
 * out->n_replicas is 0 if no replica is complete. `out` refers to memory in the
 * arena and the list. */
lh_status lhi_step_ops_sort(lhi_row_list *list, lhi_defect_counts *remarks,
                            lhi_arena *arena, lhi_step_ops *out, lh_error *err);

/* Clock offsets below this stay uncorrected: networks cause as much. */
#define LHI_CLOCK_TOLERANCE_NS INT64_C(10000000)

/* Sorts n clock offsets and returns their lower median; 0 if there are
 * none, or if 0 lies between the two middle values, so that the clock stays
 * unchanged. */
int64_t lhi_clock_offset_median(int64_t *ahead, uint32_t n);

/* Corrects the clocks of ranks by the ends of shared operations, if their
 * offset exceeds the networks' delays. */
lh_status lhi_step_correct_clocks(lhi_step_ops *ops, lhi_arena *arena,
                                  lhi_defect_counts *remarks, lh_error *err);

#endif
