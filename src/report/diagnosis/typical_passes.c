/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/typical_passes.h"

#include "base/sort.h"

/* Compares doubles, for sorting. */
static int compare_numbers(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double lhi_lower_median(double *values, uint32_t n)
{
    if (n == 0)
        return 0;
    lhi_sort(values, n, sizeof *values, compare_numbers);
    return values[(n - 1) / 2];
}

lh_status lhi_typical_passes_compute(const lh_recording *recording,
                                     lhi_arena *arena, lhi_typical_passes *out,
                                     lh_error *err)
{
    size_t n = (size_t)lhi_recording_n_workers(recording) * LHI_N_OPS;
    uint64_t *counts = LHI_NEW(arena, uint64_t, n);
    out->means = LHI_NEW(arena, double, n);
    out->scratch = LHI_NEW(arena, double,
                           (size_t)lhi_recording_n_workers(recording) +
                               recording->n_stages);
    if (!counts || !out->means || !out->scratch)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < recording->n_steps; i++) {
        const lhi_recorded_step *step = &recording->steps[i];
        for (uint32_t k = 0; k < step->graph->n_ops; k++) {
            size_t cell =
                (size_t)step->graph->worker[k] * LHI_N_OPS + step->graph->op[k];
            out->means[cell] += (double)step->duration_ns[k];
            counts[cell]++;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (counts[i])
            out->means[i] /= (double)counts[i];
    return LH_OK;
}

/* Returns a worker's mean duration for an operation kind in ns. */
static double get_mean(const lhi_typical_passes *passes, uint32_t worker,
                       lhi_op_type op)
{
    return passes->means[(size_t)worker * LHI_N_OPS + op];
}

int64_t lhi_typical_of_peers(const lhi_typical_passes *passes,
                             const lh_recording *recording, uint32_t worker,
                             lhi_op_type op)
{
    uint32_t n = 0, S = recording->n_stages;
    for (uint32_t w = worker % S; w < lhi_recording_n_workers(recording);
         w += S)
        if (w != worker)
            passes->scratch[n++] = get_mean(passes, w, op);
    return (int64_t)(lhi_lower_median(passes->scratch, n) + 0.5);
}

int64_t lhi_typical_of_stage(const lhi_typical_passes *passes,
                             const lh_recording *recording, uint32_t stage,
                             lhi_op_type op)
{
    uint32_t n = 0, S = recording->n_stages;
    for (uint32_t w = stage; w < lhi_recording_n_workers(recording); w += S)
        passes->scratch[n++] = get_mean(passes, w, op);
    return (int64_t)(lhi_lower_median(passes->scratch, n) + 0.5);
}

int64_t lhi_typical_of_other_stages(const lhi_typical_passes *passes,
                                    const lh_recording *recording,
                                    uint32_t stage, lhi_op_type op)
{
    uint32_t n = 0;
    double *stages = passes->scratch + lhi_recording_n_workers(recording);
    for (uint32_t s = 0; s < recording->n_stages; s++)
        if (s != stage)
            stages[n++] =
                (double)lhi_typical_of_stage(passes, recording, s, op);
    return (int64_t)(lhi_lower_median(stages, n) + 0.5);
}
