/* SPDX-License-Identifier: Apache-2.0 */
/* Computes typical operation times. */
#include "report/diagnosis/replay.h"

#include <string.h>

/* Bisection state per kind. */
typedef struct ranges {
    int64_t low[LHI_N_OPS], high[LHI_N_OPS]; /* the value's bounds */
    uint64_t below[LHI_N_OPS];               /* times up to the midpoint */
} ranges;

/* Counts in r->below[kind], for each operation kind, the recording's operations
 * that last at most middle[kind] ns. */
static void count_below(const lh_recording *recording, ranges *r,
                        const int64_t *middle)
{
    memset(r->below, 0, sizeof r->below);
    for (uint32_t i = 0; i < recording->n_steps; i++) {
        const lhi_recorded_step *step = &recording->steps[i];
        for (uint32_t k = 0; k < step->graph->n_ops; k++) {
            uint8_t op = step->graph->op[k];
            r->below[op] += step->duration_ns[k] <= middle[op];
        }
    }
}

/* Computes out[kind], for each operation kind, the rank[kind]-th smallest
 * recorded duration, by bisecting the interval `r` of durations: neither copies
 * nor sorts millions of times. */
static void select_times(const lh_recording *recording, ranges r,
                         const uint64_t *rank, int64_t *out)
{
    for (bool more = true; more;) {
        int64_t middle[LHI_N_OPS];
        more = false;
        for (uint32_t k = 0; k < LHI_N_OPS; k++) {
            middle[k] = r.low[k] + (r.high[k] - r.low[k]) / 2;
            more = more || r.low[k] < r.high[k];
        }
        if (!more)
            break;
        count_below(recording, &r, middle);
        for (uint32_t k = 0; k < LHI_N_OPS; k++)
            if (r.below[k] > rank[k])
                r.high[k] = middle[k];
            else if (r.low[k] < r.high[k])
                r.low[k] = middle[k] + 1;
    }
    memcpy(out, r.low, sizeof r.low);
}

void lhi_typical_times(const lh_recording *recording,
                       int64_t usual_ns[LHI_N_OPS])
{
    ranges r = {{0}, {0}, {0}};
    uint64_t n[LHI_N_OPS] = {0}, lower[LHI_N_OPS], upper[LHI_N_OPS];
    int64_t a[LHI_N_OPS], b[LHI_N_OPS];
    double sum[LHI_N_OPS] = {0};
    for (uint32_t i = 0; i < recording->n_steps; i++) {
        const lhi_recorded_step *step = &recording->steps[i];
        for (uint32_t k = 0; k < step->graph->n_ops; k++) {
            uint8_t op = step->graph->op[k];
            int64_t ns = step->duration_ns[k];
            if (n[op]++ == 0)
                r.low[op] = r.high[op] = ns;
            r.low[op] = ns < r.low[op] ? ns : r.low[op];
            r.high[op] = ns > r.high[op] ? ns : r.high[op];
            sum[op] += (double)ns;
        }
    }
    for (uint32_t k = 0; k < LHI_N_OPS; k++) {
        lower[k] = n[k] ? (n[k] - 1) / 2 : 0;
        upper[k] = n[k] / 2;
        if (lhi_op_is_compute((lhi_op_type)k)) /* not required */
            r.high[k] = r.low[k];
    }
    select_times(recording, r, lower, a);
    select_times(recording, r, upper, b);
    for (uint32_t k = 0; k < LHI_N_OPS; k++)
        usual_ns[k] = n[k] == 0 ? 0
                      : lhi_op_is_compute((lhi_op_type)k)
                          ? (int64_t)(sum[k] / (double)n[k] + 0.5)
                          : a[k] + (b[k] - a[k]) / 2;
}
