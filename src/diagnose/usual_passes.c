/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/usual_passes.h"

#include "base/sort.h"

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

lh_status lhi_usual_passes_find(const lh_recording *recording, lhi_arena *arena,
                                lhi_usual_passes *out, lh_error *err)
{
    size_t n = (size_t)lhi_n_workers(recording) * LHI_N_OPS;
    uint64_t *counts = LHI_NEW(arena, uint64_t, n);
    out->means = LHI_NEW(arena, double, n);
    out->room = LHI_NEW(arena, double,
                        (size_t)lhi_n_workers(recording) + recording->n_stages);
    if (!counts || !out->means || !out->room)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < recording->n_steps; i++) {
        const lhi_recorded_step *step = &recording->steps[i];
        for (uint32_t k = 0; k < step->graph->n_ops; k++) {
            size_t cell =
                (size_t)step->graph->worker[k] * LHI_N_OPS + step->graph->op[k];
            out->means[cell] += (double)step->ns[k];
            counts[cell]++;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (counts[i])
            out->means[i] /= (double)counts[i];
    return LH_OK;
}

static double mean_of(const lhi_usual_passes *passes, uint32_t worker,
                      lhi_op_type op)
{
    return passes->means[(size_t)worker * LHI_N_OPS + op];
}

int64_t lhi_usual_beside(const lhi_usual_passes *passes,
                         const lh_recording *recording, uint32_t worker,
                         lhi_op_type op)
{
    uint32_t n = 0, S = recording->n_stages;
    for (uint32_t w = worker % S; w < lhi_n_workers(recording); w += S)
        if (w != worker)
            passes->room[n++] = mean_of(passes, w, op);
    return (int64_t)(lhi_lower_median(passes->room, n) + 0.5);
}

int64_t lhi_usual_of_stage(const lhi_usual_passes *passes,
                           const lh_recording *recording, uint32_t stage,
                           lhi_op_type op)
{
    uint32_t n = 0, S = recording->n_stages;
    for (uint32_t w = stage; w < lhi_n_workers(recording); w += S)
        passes->room[n++] = mean_of(passes, w, op);
    return (int64_t)(lhi_lower_median(passes->room, n) + 0.5);
}

int64_t lhi_usual_elsewhere(const lhi_usual_passes *passes,
                            const lh_recording *recording, uint32_t stage,
                            lhi_op_type op)
{
    uint32_t n = 0;
    double *stages = passes->room + lhi_n_workers(recording);
    for (uint32_t s = 0; s < recording->n_stages; s++)
        if (s != stage)
            stages[n++] = (double)lhi_usual_of_stage(passes, recording, s, op);
    return (int64_t)(lhi_lower_median(stages, n) + 0.5);
}
