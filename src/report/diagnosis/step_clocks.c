/* SPDX-License-Identifier: Apache-2.0 */
/* Rank clock offsets. A message or collective ends on all participants within
 * its transfer time. The median difference between the ends on two ranks is
 * therefore their clock offset. Offsets below a threshold stay uncorrected,
 * because network delays cause differences of that size. The reference is the
 * majority's clock. */
#include "report/diagnosis/step_ops.h"

#include "base/sort.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ENDS_PER_KIND = 32, KINDS = 4 }; /* compared ends per kind; kind count */

/* Differences between the ends on two ranks. */
typedef struct end_differences {
    /* the second rank's end minus the first's */
    int64_t ns[KINDS * (ENDS_PER_KIND + 1)];
    uint32_t n;
} end_differences;

/* Adds the differences in ns between the ends of matching operations, kind of_a
 * on worker a and kind of_b on worker b, to *out; at most a sample. None if the
 * workers' numbers of operations differ. */
static void compare_ends(const lhi_step_ops *ops, uint32_t a, lhi_op_type of_a,
                         uint32_t b, lhi_op_type of_b, end_differences *out)
{
    uint32_t x, y;
    uint32_t n_x = lhi_rows_of_kind(ops, a, of_a, &x);
    uint32_t n_y = lhi_rows_of_kind(ops, b, of_b, &y);
    if (n_x != n_y)
        return;
    uint32_t stride = 1 + n_x / ENDS_PER_KIND;
    for (uint32_t i = 0; i < n_x; i += stride)
        out->ns[out->n++] =
            lhi_row_end(&ops->rows[y + i]) - lhi_row_end(&ops->rows[x + i]);
}

/* Returns worker b's clock offset relative to a's in ns, from the ends of
 * shared operations; 0 if there are none. `neighbours`: consecutive stages in a
 * replica, otherwise replicas on a stage. */
static int64_t estimate_offset(const lhi_step_ops *ops, uint32_t a, uint32_t b,
                               bool neighbours)
{
    end_differences p = {.n = 0};
    if (neighbours) { /* a replica's consecutive stages */
        compare_ends(ops, a, LHI_OP_FORWARD_SEND, b, LHI_OP_FORWARD_RECV, &p);
        compare_ends(ops, a, LHI_OP_BACKWARD_RECV, b, LHI_OP_BACKWARD_SEND, &p);
    } else { /* a stage's replicas */
        compare_ends(ops, a, LHI_OP_ALL_GATHER, b, LHI_OP_ALL_GATHER, &p);
        compare_ends(ops, a, LHI_OP_REDUCE_SCATTER, b, LHI_OP_REDUCE_SCATTER,
                     &p);
        compare_ends(ops, a, LHI_OP_SEPARATE, b, LHI_OP_SEPARATE, &p);
        compare_ends(ops, a, LHI_OP_CLIP, b, LHI_OP_CLIP, &p);
    }
    return lhi_median_ns(p.ns, p.n);
}

/* Subtracts a clock offset, ahead_ns, from all start times of worker `w` (a
 * replica's stage). */
static void shift_clock(lhi_step_ops *ops, uint32_t w, int64_t ahead_ns)
{
    for (uint32_t i = ops->first[w * LHI_N_OPS];
         i < ops->first[(w + 1) * LHI_N_OPS]; i++)
        ops->rows[i].start_ns -= ahead_ns;
}

/* Compares times, for sorting. */
static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int64_t lhi_clock_offset_median(int64_t *ahead, uint32_t n)
{
    if (n == 0)
        return 0;
    lhi_sort(ahead, n, sizeof *ahead, compare_times);
    int64_t lower = ahead[(n - 1) / 2], upper = ahead[n / 2];
    return lower <= 0 && upper >= 0 ? 0 : lower;
}

/* Reports a corrected clock as a defect of the recording: worker `w` (a
 * replica's stage) was `ahead` ns ahead of the others, or behind if
 * negative. */
static void report_clock(const lhi_step_ops *ops, uint32_t w, int64_t ahead,
                         lhi_defect_counts *remarks)
{
    lhi_defect_add(remarks, LHI_REMARK_CLOCKS, 1,
                   "stage %" PRIu32 " of replica %" PRIu32 " in step %" PRIu64
                   ", %s by %.3f s",
                   w % ops->n_stages, ops->replicas[w / ops->n_stages],
                   ops->step, ahead > 0 ? "ahead" : "behind",
                   fabs((double)ahead) / 1e9);
}

lh_status lhi_step_correct_clocks(lhi_step_ops *ops, lhi_arena *arena,
                                  lhi_defect_counts *remarks, lh_error *err)
{
    int64_t *ahead = LHI_NEW(arena, int64_t, ops->n_workers);
    int64_t *sorted = LHI_NEW(arena, int64_t, ops->n_workers);
    if (!ahead || !sorted)
        return lhi_fail_nomem(err);
    /* Compares each worker with one already corrected: the previous stage, or
     * for a first stage the first replica's. */
    for (uint32_t w = 1; w < ops->n_workers; w++) {
        bool in_first = w < ops->n_stages;
        bool begins = w % ops->n_stages == 0;
        uint32_t other = in_first || !begins ? w - 1 : 0;
        ahead[w] = estimate_offset(ops, other, w, !begins);
        if (llabs(ahead[w]) < LHI_CLOCK_TOLERANCE_NS)
            ahead[w] = 0;
        shift_clock(ops, w, ahead[w]);
    }
    memcpy(sorted, ahead, ops->n_workers * sizeof *sorted);
    int64_t usual = lhi_clock_offset_median(sorted, ops->n_workers);
    for (uint32_t w = 0; w < ops->n_workers; w++) {
        shift_clock(ops, w, -usual);
        if (llabs(ahead[w] - usual) >= LHI_CLOCK_TOLERANCE_NS)
            report_clock(ops, w, ahead[w] - usual, remarks);
    }
    return LH_OK;
}
